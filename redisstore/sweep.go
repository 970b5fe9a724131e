package redisstore

import (
	"context"
	_ "embed" // the script
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
	"github.com/stint-go/stint/internal/sleep"
)

//go:embed sweep.lua
var sweepLua string

// sweeper looks after the hashes that this process decides on. It knows from their heads,
// which each reply has, when they began, and when they are dead, that is, none of their
// states matters any more. A hash that is gone before is lost state.
//
// A hash that is written to is turned, and the one before it unlinked, by the write. One
// that is not would expire, and a server that lets a large hash expire does nothing else
// meanwhile: a second for two million clients. So hashes expire a margin after they are
// dead, and within half of that margin every process sweeps those that it has seen
// and that nothing has turned since.
type sweeper struct {
	store  *Store
	clock  func() time.Duration
	script *Script

	mu      sync.Mutex
	hashes  map[string]*lifetime    // by the key of cur
	latest  map[int32]stint.Instant // the latest time of each server that was seen, by server
	running bool
	closed  bool
	runs    sync.WaitGroup

	lost    atomic.Uint64     // hashes
	evicted atomic.Uint64     // keys
	asking  sync.Mutex        // of counts
	counts  map[string]uint64 // of evicted keys, by the run of a server; nil before the first answer
}

// A Loss is state noticed to be gone although it mattered, by eviction, FLUSHALL, a restart or a
// failover: its clients may use their limits again.
type Loss struct {
	Hashes  uint64 // with all clients of a partition of a limit each; logs do not count
	Evicted uint64 // keys that the servers evicted, of this store or not
}

// lifetime is what is known of a partition's two hashes.
type lifetime struct {
	keys      *generationKeys
	partition int32
	field     string           // of the policy's epoch
	asOf      stint.Instant    // the server's time of what is known
	start     stint.Instant    // of cur; 0 for none
	dead      [2]stint.Instant // when cur and prev are; 0 for none
	due       time.Duration    // when to sweep, by the local clock
	sawPrev   bool             // whether prev was seen, as prev or as the cur before
	retired   bool             // whether it is of an earlier epoch
}

const (
	sweepGap   = 250 * time.Millisecond // how often it is looked what is due: the shortest margin is a second
	sweepTime  = time.Second            // the longest that a sweep may take
	sweepBatch = 64                     // pairs of hashes in one call

	lateReply   = 1_000_000        // microseconds by which a reply may be overtaken by others
	evictionGap = 30 * time.Second // how often servers are asked for evictions
	lossGap     = time.Minute      // between reports of losses
)

func newSweeper(s *Store) *sweeper {
	return &sweeper{
		store: s, clock: s.uptime(), script: newScript(sweepLua), hashes: map[string]*lifetime{}, latest: map[int32]stint.Instant{},
	}
}

// note takes down what a batch's reply says of hashes.
func (sw *sweeper) note(now stint.Instant, limits ...[]*group) {
	here := sw.clock()
	sw.mu.Lock()
	defer sw.mu.Unlock()
	for _, groups := range limits {
		if len(groups) == 0 {
			continue
		}
		latest := sw.observeTime(now, sw.server(groups[0].partition))
		for _, g := range groups {
			h := sw.hashes[g.keys.cur]
			if h == nil {
				h = &lifetime{keys: g.keys, partition: g.partition, field: g.limit.epochField}
				sw.hashes[g.keys.cur] = h
			}
			if now < h.asOf {
				continue // it was overtaken
			}
			if h.lost(now, latest, g) {
				sw.lost.Add(1)
			}
			h.learn(now, g)
			h.plan(here)
		}
	}
	if !sw.running && !sw.closed && sw.store.options.Now == nil {
		sw.running = true
		sw.runs.Go(sw.run)
	}
}

// server tells where a partition's hashes are: partitions of a cluster may be on several
// servers, of which each has its clock.
func (sw *sweeper) server(partition int32) int32 {
	if sw.store.conn.Cluster() {
		return partition
	}
	return 0
}

// observeTime notes the time of a server and returns the latest that was seen of it. When the clock
// was set back, hashes may be gone that will be dead only later, so what is known of
// them is dropped; a reply that was overtaken is a little older, too.
func (sw *sweeper) observeTime(now stint.Instant, server int32) stint.Instant {
	latest := sw.latest[server]
	if latest-now >= lateReply {
		for _, h := range sw.hashes {
			if sw.server(h.partition) == server {
				h.asOf, h.start, h.sawPrev = now, 0, false
			}
		}
		latest = now
	}
	latest = max(latest, now)
	sw.latest[server] = latest
	return latest
}

// lost reports whether a reply shows that state is gone that still mattered. While a
// generation that was seen is not dead, it is cur, or prev of a cur that says when that is:
// nothing turns twice before. A hash that is dead by the latest time may have been unlinked.
func (h *lifetime) lost(now, latest stint.Instant, g *group) bool {
	cur := &g.current
	if h.start == 0 || now == h.asOf {
		return false
	}
	behind := h.sawPrev
	if cur.start != h.start {
		if latest >= h.dead[0] {
			return false
		}
		if cur.previousDead < h.dead[0] {
			return true
		}
		behind = true // it was cur
	}
	return behind && g.missing && latest < cur.previousDead && g.previous.start == 0
}

// learn takes down what a reply said.
func (h *lifetime) learn(now stint.Instant, g *group) {
	h.asOf = now
	switch {
	case g.current.start == 0:
		// If the batch wrote it started one, which turns after a life, and is dead after two.
		life := stint.Instant(g.limit.life + algorithm.Margin(g.limit.life))
		h.start, h.dead = 0, [2]stint.Instant{now + 2*life, g.previous.dead()}
		h.sawPrev = false
	case g.current.start != h.start:
		h.sawPrev = h.start != 0 || g.previous.start != 0
		h.start, h.dead = g.current.start, [2]stint.Instant{g.current.dead(), g.current.previousDead}
	default:
		h.sawPrev = h.sawPrev || g.previous.start != 0
		h.dead[0] = g.current.dead()
	}
	if g.missing && g.previous.start == 0 {
		h.sawPrev = false
	}
}

// plan sets when to look: in the second quarter of the margin after the first is dead.
func (h *lifetime) plan(here time.Duration) {
	dead := h.dead[0]
	if h.dead[1] != 0 {
		dead = min(dead, h.dead[1])
	}
	margin := algorithm.Margin(int64(dead-h.start) / 2)
	if h.start == 0 {
		margin = algorithm.Margin(0)
	}
	grace := margin/4 + rand.Int64N(margin/4) //nolint:gosec // nobody gains by guessing it
	h.due = here + micros(max(0, int64(dead-h.asOf))+grace)
}

// run sweeps, asks for evictions and reports losses, for as long as the store lives.
func (sw *sweeper) run() {
	var asked, toldAt time.Duration
	var told Loss
	report := sw.store.options.OnLoss
	sleep.Every(sw.store.life, sweepGap, func() {
		sw.sweep(sw.store.life, false)
		here := sw.clock()
		if asked == 0 || here-asked > evictionGap {
			asked = here
			sw.askEvictions(sw.store.life)
		}
		if loss := sw.loss(); report != nil && loss != told && (told == Loss{} || here-toldAt >= lossGap) {
			report(Loss{Hashes: loss.Hashes - told.Hashes, Evicted: loss.Evicted - told.Evicted})
			told, toldAt = loss, here
		}
	})
}

func (sw *sweeper) loss() Loss { return Loss{sw.lost.Load(), sw.evicted.Load()} }

// askEvictions asks the servers how many keys they evicted, and counts those since it first
// asked. What a server does not tell is passed over.
func (sw *sweeper) askEvictions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	sw.asking.Lock()
	defer sw.asking.Unlock()
	counts := maps.Clone(sw.counts)
	for _, server := range sw.store.Servers(ctx) {
		info, err := server.Ask(ctx, "INFO")
		if err != nil {
			continue
		}
		run := infoOf(info, "run_id")
		evicted, err := strconv.ParseUint(infoOf(info, "evicted_keys"), 10, 64)
		if err != nil {
			continue
		}
		if before, known := sw.counts[run]; known || sw.counts != nil { // else another one, or one that was started anew
			sw.evicted.Add(evicted - min(before, evicted))
		}
		if counts == nil {
			counts = map[string]uint64{}
		}
		counts[run] = evicted
	}
	sw.counts = counts
}

// retire has the hashes unlinked that a batcher has used in earlier epochs of their policies.
func (sw *sweeper) retire(br *batcher) {
	sw.mu.Lock()
	defer sw.mu.Unlock()
	for _, h := range sw.hashes {
		if br.index == int(sw.server(h.partition)) && h.keys.epoch != br.epochs.get(h.field) {
			h.retired, h.due = true, 0
		}
	}
}

// sweep sweeps the hashes that are due, or all.
func (sw *sweeper) sweep(ctx context.Context, all bool) {
	here := sw.clock()
	due := map[int32][]*lifetime{} // by server
	sw.mu.Lock()
	for _, h := range sw.hashes {
		if all || here >= h.due {
			server := sw.server(h.partition)
			due[server] = append(due[server], h)
		}
	}
	sw.mu.Unlock()
	for _, list := range due {
		for batch := range slices.Chunk(list, sweepBatch) {
			if err := sw.unlink(ctx, batch); err != nil {
				sw.mu.Lock()
				for _, h := range batch {
					h.due = sw.clock() + sweepTime
				}
				sw.mu.Unlock()
			}
		}
	}
}

// unlink has a server unlink those hashes that are dead, and learns when others are.
func (sw *sweeper) unlink(ctx context.Context, list []*lifetime) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	keys, retired := make([]string, 0, 2*len(list)), make([]byte, len(list))
	sw.mu.Lock()
	for i, h := range list {
		keys = append(keys, h.keys.cur, h.keys.prev)
		retired[i] = '0'
		if h.retired {
			retired[i] = '1'
		}
	}
	sw.mu.Unlock()
	reply, err := sw.store.conn.Eval(ctx, sw.script, keys, []string{sw.store.now(), string(retired)})
	if err != nil {
		return err
	}
	if len(reply) != 8+8*len(keys) {
		return fmt.Errorf("unexpected reply of %d bytes", len(reply))
	}
	r := reader{text: reply}
	at, here := stint.Instant(r.number(8)), sw.clock()
	sw.mu.Lock()
	defer sw.mu.Unlock()
	sw.observeTime(at, sw.server(list[0].partition))
	for _, h := range list {
		dead := [2]stint.Instant{stint.Instant(r.number(8)), stint.Instant(r.number(8))}
		switch {
		case h.asOf > at: // a batch knows more
		case dead == [2]stint.Instant{}:
			delete(sw.hashes, h.keys.cur)
		default:
			h.sawPrev = h.sawPrev && dead[1] != 0
			if dead[0] != h.dead[0] {
				h.start = 0 // another generation, or one that lives for longer
			}
			h.asOf, h.dead = at, dead
			if dead[0] == 0 {
				h.dead[0] = dead[1]
			}
			h.plan(here)
		}
	}
	return nil
}

// close waits for a sweep under way, once the store's life has ended.
func (sw *sweeper) close() {
	sw.mu.Lock()
	sw.closed = true
	sw.mu.Unlock()
	sw.runs.Wait()
}
