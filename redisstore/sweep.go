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
)

var (
	//go:embed sweep.lua
	sweepLua string
	//go:embed unlink.lua
	unlinkLua string
)

// lifetimes are what this process knows of the hashes that it decides on, from their heads,
// which each reply has: when they began, and when they are dead, that is, none of their
// states matters any more. A hash that is gone before is lost state.
//
// A hash that is written to is turned, and what is before it unlinked, by the write. One
// that is not would expire, and a server that lets a large hash expire does nothing else
// meanwhile: a second for two million clients. So hashes expire a margin after they are
// dead, and every process looks, within half of that margin, after those that it has seen
// and that nothing has turned since.
type sweeper struct {
	store  *Store
	clock  func() time.Duration
	script *Script

	discards *Script

	mu      sync.Mutex
	hashes  map[string]*lifetime    // by the key of cur
	latest  map[int32]stint.Instant // the latest time of each server that was seen, by place
	running bool
	closed  bool
	runs    sync.WaitGroup

	retired []retired
	lost    atomic.Uint64     // hashes
	evicted atomic.Uint64     // keys
	asked   time.Duration     // when the servers were last asked for evictions, if ever
	asking  sync.Mutex        // of counts
	counts  map[string]uint64 // of evicted keys, by the run of a server
	told    Loss
	toldAt  time.Duration
}

// A Loss is state that is gone although it still mattered, as far as a process notices.
// Clients whose state is lost start anew, so they may use their limits again.
type Loss struct {
	// Hashes is how many hashes, each with the clients of one partition of a limit, were
	// gone or begun anew before their time: by eviction, FLUSHALL, a restart without a
	// file or a failover that lost writes. Logs, which have keys of their own, do not
	// count.
	Hashes uint64
	// Evicted is how many keys the servers evicted, whoever wrote them.
	Evicted uint64
}

// lifetime is what is known of a partition's two hashes.
type lifetime struct {
	names     *generationKeys
	partition int32
	asOf      stint.Instant    // the server's time of what is known
	start     stint.Instant    // of cur; 0 for none
	dead      [2]stint.Instant // when cur and prev are; 0 for none
	due       time.Duration    // when to look, by the local clock
	policy    string
	sawPrev   bool // whether prev was seen, as prev or as the cur before
}

// retired is a partition's hashes of an earlier epoch.
type retired struct {
	names     *generationKeys
	partition int32
}

const (
	sweepGap   = 250 * time.Millisecond // how often what is due is looked for: the least margin is a second
	sweepTime  = time.Second            // longest that a look may take
	sweepBatch = 64                     // hashes of so many partitions in one call

	overtaken   = 1_000_000        // microseconds by which a reply may come late
	evictionGap = 30 * time.Second // how often servers are asked for evictions
	lossGap     = time.Minute      // between reports of losses
)

func newSweeper(s *Store) *sweeper {
	sw := &sweeper{store: s, clock: uptime(), script: newScript(sweepLua), discards: newScript(unlinkLua), hashes: map[string]*lifetime{}, latest: map[int32]stint.Instant{}}
	if now := s.options.Now; now != nil {
		sw.clock = func() time.Duration { return micros(int64(now())) }
	}
	return sw
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
		latest := sw.observeTime(now, sw.place(groups[0].partition))
		for _, g := range groups {
			h := sw.hashes[g.keys.cur]
			if h == nil {
				h = &lifetime{names: g.keys, partition: g.partition, policy: g.limit.policy}
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

// place is where a partition's hashes are: partitions of a cluster may be on several
// servers, of which each has its clock.
func (sw *sweeper) place(partition int32) int32 {
	if sw.store.conn.Cluster() {
		return partition
	}
	return 0
}

// pass notes the time of a server and returns the latest that was seen of it. When the clock
// was set back, hashes may be gone that will be dead only later, so what is known of
// them is dropped; a reply that was overtaken is a little older, too.
func (sw *sweeper) observeTime(now stint.Instant, place int32) stint.Instant {
	latest := sw.latest[place]
	if latest-now >= overtaken {
		for _, h := range sw.hashes {
			if sw.place(h.partition) == place {
				h.asOf, h.start, h.sawPrev = now, 0, false
			}
		}
		latest = now
	}
	latest = max(latest, now)
	sw.latest[place] = latest
	return latest
}

// lost reports whether a reply shows that state is gone that still mattered. While a
// generation that was seen is not dead, it is cur, or prev of a cur that says when that is:
// nothing turns twice before. What is dead by the latest time may have been unlinked.
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

// run looks after hashes for as long as there are any.
func (sw *sweeper) run() {
	tick := time.NewTicker(sweepGap)
	defer tick.Stop()
	for {
		select {
		case <-sw.store.life.Done():
			return
		case <-tick.C:
		}
		sw.sweep(sw.store.life, false)
		if here := sw.clock(); sw.asked == 0 || here-sw.asked > evictionGap {
			sw.asked = here
			sw.askEvictions(sw.store.life)
		}
		sw.tell()
	}
}

// retire has the hashes unlinked that a batcher has served in earlier epochs of their policies.
func (br *batcher) retireHashes() {
	sw := br.store.sweeper
	sw.mu.Lock()
	defer sw.mu.Unlock()
	maps.DeleteFunc(sw.hashes, func(_ string, h *lifetime) bool {
		if br.index != int(sw.place(h.partition)) || h.names.epoch == br.epochs.get(h.policy) {
			return false
		}
		sw.retired = append(sw.retired, retired{h.names, h.partition})
		return true
	})
}

// askEvictions asks the servers how many keys they evicted, and counts those since it first
// asked. What a server does not tell is passed over.
func (sw *sweeper) askEvictions(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	sw.asking.Lock()
	defer sw.asking.Unlock()
	first := sw.counts == nil
	counts := map[string]uint64{}
	for _, server := range sw.store.servers(ctx) {
		run, err := server.Ask(ctx, "INFO", "server")
		if err != nil {
			continue
		}
		stats, err := server.Ask(ctx, "INFO", "stats")
		if err != nil {
			continue
		}
		id := infoOf(run, "run_id")
		evicted, err := strconv.ParseUint(infoOf(stats, "evicted_keys"), 10, 64)
		if err != nil {
			continue
		}
		before, known := sw.counts[id]
		switch {
		case known && evicted >= before:
			sw.evicted.Add(evicted - before)
		case !known && !first: // another one, or started anew
			sw.evicted.Add(evicted)
		}
		counts[id] = evicted
	}
	if sw.counts == nil && len(counts) > 0 {
		sw.counts = counts
	} else {
		maps.Copy(sw.counts, counts)
	}
}

// tell reports what was lost, unless it did so a short while ago.
func (sw *sweeper) tell() {
	loss, here := sw.loss(), sw.clock()
	report := sw.store.options.OnLoss
	if report == nil || loss == sw.told || sw.told != (Loss{}) && here-sw.toldAt < lossGap {
		return
	}
	report(Loss{Hashes: loss.Hashes - sw.told.Hashes, Evicted: loss.Evicted - sw.told.Evicted})
	sw.told, sw.toldAt = loss, here
}

func (sw *sweeper) loss() Loss { return Loss{sw.lost.Load(), sw.evicted.Load()} }

// sweep looks after the hashes that are due, or all.
func (sw *sweeper) sweep(ctx context.Context, all bool) {
	here := sw.clock()
	due := map[int32][]*lifetime{} // by place
	sw.mu.Lock()
	for _, h := range sw.hashes {
		if !all && here < h.due {
			continue
		}
		at := sw.place(h.partition)
		due[at] = append(due[at], h)
	}
	gone := map[int32][]string{}
	for _, r := range sw.retired {
		at := sw.place(r.partition)
		gone[at] = append(gone[at], r.names.cur, r.names.prev)
	}
	sw.retired = nil
	sw.mu.Unlock()
	for _, keys := range gone {
		for batch := range slices.Chunk(keys, 2*sweepBatch) {
			sw.discard(ctx, batch)
		}
	}
	for _, list := range due {
		for len(list) > 0 {
			n := min(len(list), sweepBatch)
			if sw.unlink(ctx, list[:n]) != nil {
				sw.later(list[:n])
			}
			list = list[n:]
		}
	}
}

// discard has the server unlink hashes that nobody reads any more. If that fails, their time to
// live does it.
func (sw *sweeper) discard(ctx context.Context, keys []string) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	_, _ = sw.store.conn.Eval(ctx, sw.discards, keys, nil)
}

// later puts off what could not be looked at.
func (sw *sweeper) later(list []*lifetime) {
	here := sw.clock()
	sw.mu.Lock()
	defer sw.mu.Unlock()
	for _, h := range list {
		h.due = here + sweepTime
	}
}

// unlink has the server unlink those hashes that are dead, and learns when others are.
func (sw *sweeper) unlink(ctx context.Context, list []*lifetime) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	keys := make([]string, 0, 2*len(list))
	for _, h := range list {
		keys = append(keys, h.names.cur, h.names.prev)
	}
	reply, err := sw.store.conn.Eval(ctx, sw.script, keys, []string{sw.store.now()})
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
	sw.observeTime(at, sw.place(list[0].partition))
	for _, h := range list {
		dead := [2]stint.Instant{stint.Instant(r.number(8)), stint.Instant(r.number(8))}
		switch {
		case h.asOf > at: // a batch knows more
		case dead == [2]stint.Instant{}:
			delete(sw.hashes, h.names.cur)
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

// close ends the looking.
func (sw *sweeper) close() {
	sw.mu.Lock()
	sw.closed = true
	sw.mu.Unlock()
	sw.runs.Wait()
}
