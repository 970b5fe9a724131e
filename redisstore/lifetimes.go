package redisstore

import (
	"context"
	_ "embed" // the script
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/algorithm"
)

//go:embed sweep.lua
var sweepLua string

// lifetimes are what this process knows of the hashes that it decides on, from their heads,
// which each reply has: when they are dead, that is, none of their states matters any more.
//
// A hash that is written to is turned, and what is before it unlinked, by the write. One
// that is not would expire, and a server that lets a large hash expire does nothing else
// meanwhile: a second for two million clients. So hashes expire a margin after they are
// dead, and every process looks, within half of that margin, after those that it has seen
// and that nothing has turned since.
type lifetimes struct {
	store  *Store
	clock  func() time.Duration
	script *Script

	mu      sync.Mutex
	hashes  map[string]*lifetime // by the key of cur
	running bool
	closed  bool
	runs    sync.WaitGroup
}

// lifetime is what is known of a partition's two hashes.
type lifetime struct {
	names     generations
	partition int32
	at        stint.Instant    // the server's time of what is known
	start     stint.Instant    // of cur; 0 for none
	dead      [2]stint.Instant // when cur and prev are; 0 for none
	due       time.Duration    // when to look, by the local clock
}

const (
	sweepGap   = 250 * time.Millisecond // how often what is due is looked for: the least margin is a second
	sweepTime  = time.Second            // longest that a look may take
	sweepBatch = 64                     // hashes of so many partitions in one call
)

func newLifetimes(s *Store) *lifetimes {
	l := &lifetimes{store: s, clock: uptime(), script: newScript(sweepLua), hashes: map[string]*lifetime{}}
	if now := s.options.Now; now != nil {
		l.clock = func() time.Duration { return micros(int64(now())) }
	}
	return l
}

// note takes down what a flight's reply says of hashes.
func (l *lifetimes) note(now stint.Instant, parts ...[]*group) {
	here := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, groups := range parts {
		for _, g := range groups {
			names := g.limit.names[g.partition]
			h := l.hashes[names.now]
			if h == nil {
				h = &lifetime{names: names, partition: g.partition}
				l.hashes[names.now] = h
			}
			if now < h.at {
				continue // it was overtaken
			}
			h.learn(now, g)
			h.plan(here)
		}
	}
	if !l.running && !l.closed && l.store.options.Now == nil && len(l.hashes) > 0 {
		l.running = true
		l.runs.Go(l.run)
	}
}

// learn takes down what a reply said.
func (h *lifetime) learn(now stint.Instant, g *group) {
	h.at = now
	switch {
	case g.current.start == 0:
		// If the flight wrote it started one, which turns after a life, and is dead after two.
		life := stint.Instant(g.limit.life + algorithm.Margin(g.limit.life))
		h.start, h.dead = 0, [2]stint.Instant{now + 2*life, g.before.dead()}
	case g.current.start != h.start:
		h.start, h.dead = g.current.start, [2]stint.Instant{g.current.dead(), g.current.before}
	default:
		h.dead[0] = g.current.dead()
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
	h.due = here + micros(max(0, int64(dead-h.at))+grace)
}

// run looks after hashes for as long as there are any.
func (l *lifetimes) run() {
	tick := time.NewTicker(sweepGap)
	defer tick.Stop()
	for {
		select {
		case <-l.store.life.Done():
			return
		case <-tick.C:
		}
		l.sweep(l.store.life, false)
		l.mu.Lock()
		if len(l.hashes) == 0 {
			l.running = false
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
	}
}

// sweep looks after the hashes that are due, or all.
func (l *lifetimes) sweep(ctx context.Context, all bool) {
	here := l.clock()
	due := map[int32][]*lifetime{} // by partition of a cluster
	l.mu.Lock()
	for _, h := range l.hashes {
		if !all && here < h.due {
			continue
		}
		at := int32(0)
		if l.store.conn.Cluster() {
			at = h.partition
		}
		due[at] = append(due[at], h)
	}
	l.mu.Unlock()
	for _, list := range due {
		for len(list) > 0 {
			n := min(len(list), sweepBatch)
			if l.unlink(ctx, list[:n]) != nil {
				l.later(list[:n])
			}
			list = list[n:]
		}
	}
}

// later puts off what could not be looked at.
func (l *lifetimes) later(list []*lifetime) {
	here := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range list {
		h.due = here + sweepTime
	}
}

// unlink has the server unlink those hashes that are dead, and learns when others are.
func (l *lifetimes) unlink(ctx context.Context, list []*lifetime) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	keys := make([]string, 0, 2*len(list))
	for _, h := range list {
		keys = append(keys, h.names.now, h.names.before)
	}
	now := ""
	if pin := l.store.options.Now; pin != nil {
		now = strconv.FormatInt(int64(pin()), 10)
	}
	reply, err := l.store.conn.Eval(ctx, l.script, keys, []string{now})
	if err != nil {
		return err
	}
	if len(reply) != 8+8*len(keys) {
		return fmt.Errorf("unexpected reply of %d bytes", len(reply))
	}
	r := reader{text: reply}
	at, here := stint.Instant(r.number(8)), l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range list {
		dead := [2]stint.Instant{stint.Instant(r.number(8)), stint.Instant(r.number(8))}
		switch {
		case h.at > at: // a flight knows more
		case dead == [2]stint.Instant{}:
			delete(l.hashes, h.names.now)
		default:
			h.at, h.dead = at, dead
			if dead[0] == 0 {
				h.start, h.dead[0] = 0, dead[1]
			}
			h.plan(here)
		}
	}
	return nil
}

// close ends the looking.
func (l *lifetimes) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.runs.Wait()
}
