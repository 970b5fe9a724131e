package redisstore

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/queue"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// routes are the layout of now, and where operations are sent from: one batcher, or on a cluster one for each
// partition.
type routes struct {
	*layout.Layout
	batchers []*queue.Batcher
}

// batcherOf is where operations on a client are sent from.
func (r *routes) batcherOf(client string) *queue.Batcher {
	if len(r.batchers) == 1 {
		return r.batchers[0]
	}
	return r.batchers[r.Partition(client)]
}

// plan is a policy as it is sent in the layout of now.
func (s *Store) plan(policy *stint.Policy) layout.Plan { return s.routes.Load().Plan(policy) }

// setLayout takes a layout, with the batchers of the one before where their number is the same.
// Batchers survive a change of the encoding; one of the number of partitions makes new ones, and
// those of before, which are returned to be closed, finish what they have.
func (s *Store) setLayout(partitions int, encoding LogEncoding) (unused []*queue.Batcher) {
	y := &routes{Layout: layout.New(s.options.KeyPrefix, partitions, string(encoding))}
	count := 1
	if s.conn.Cluster() {
		count = partitions
	}
	if old := s.routes.Load(); old != nil && len(old.batchers) == count {
		y.batchers = old.batchers
	} else {
		if old != nil {
			unused = old.batchers
		}
		for i := range count {
			y.batchers = append(y.batchers, s.newBatcher(i))
		}
	}
	for _, br := range y.batchers {
		br.Target.Layout.Store(y.Layout)
	}
	s.routes.Store(y)
	return unused
}

// newBatcher makes a batcher. When its server is silent it tells the store's shards, of which a partition may have
// several.
func (s *Store) newBatcher(index int) *queue.Batcher {
	target := &wire.Target{Config: &s.wire, Index: index}
	try := func(ctx context.Context) error {
		_, err := s.conn.Do(ctx, "HGET", target.SettingsKey(), "layout")
		return err
	}
	return queue.New(&s.queue, target, s.timeout, try, func(cause error) {
		if report := s.unreachable.Load(); report != nil {
			for shard := range s.shards {
				if n := min(s.shards, target.Layout.Load().Partitions); shard%n == index%n {
					(*report)(shard, cause)
				}
			}
		}
	})
}

// adopt takes over the layout that the servers remember, or returns why nothing can be decided: the options name
// another one. What other processes have written stands: their states could not be found under another layout.
func (s *Store) adopt(text string) error {
	own := s.routes.Load()
	if own.Text == text {
		return nil
	}
	partitions, encoding, known := layout.Parse(text)
	conflict := func(param string, mine any) error {
		return stint.Invalid(param, mine, fmt.Sprintf(
			"%q, the layout of states that other processes have written to the key %q; to change it, "+
				"stop all processes and delete the key: redis-cli -c DEL %[2]s",
			text, own.SettingsKey()))
	}
	switch {
	case !known:
		return conflict("layout", own.Text)
	case s.options.Partitions != 0 && s.options.Partitions != partitions:
		return conflict("partitions", s.options.Partitions)
	case s.options.LogEncoding != "" && s.options.LogEncoding != LogEncoding(encoding):
		return conflict("log_encoding", string(s.options.LogEncoding))
	}
	s.adopting.Lock()
	if s.closed { // its batchers would be closed by nobody
		s.adopting.Unlock()
		return queue.ErrClosed
	}
	unused := s.setLayout(partitions, LogEncoding(encoding))
	s.leases.forgetAll()
	if s.denials != nil {
		s.denials.wipe()
	}
	s.adopting.Unlock()
	for _, br := range unused {
		br.Close() // which waits for calls whose ends may need the lock
	}
	return nil
}

// raised drops what this process has of earlier epochs: what was decided then (denials that are remembered, leased
// permits) is worth nothing any more.
func (s *Store) raised(field string) {
	if d := s.denials; d != nil {
		if field == layout.AllPolicies {
			d.wipe()
		} else {
			d.announcePolicy(field[1:])
		}
	}
	s.leases.discardOutdated()
}

// script is the script for a mix. Two batches may put one together at once; one of
// the two is kept.
func (s *Store) script(m wire.Mix) *redisconn.Script {
	if known := s.scripts[m].Load(); known != nil {
		return known
	}
	script := redisconn.NewScript(m.Script())
	s.scripts[m].Store(script)
	return script
}

// loadScripts loads what most decisions need, so that the first ones need not.
func (s *Store) loadScripts(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, queue.MaxSendTime)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	for _, server := range s.Servers(ctx) {
		for _, m := range wire.UsualMixes() {
			group.Go(func() {
				// else the first call that needs the script loads it
				if _, err := server.Ask(ctx, "SCRIPT", "LOAD", s.script(m).Source); err == nil {
					s.scriptLoads.Add(1)
				}
			})
		}
	}
}

// ResetAll implements [stint.Store], for all processes at once; on a cluster, partition by partition. After
// an error repeating the reset completes it.
func (s *Store) ResetAll(ctx context.Context, scope stint.Scope) error {
	if scope.All {
		return s.reset(ctx, layout.AllPolicies, wire.AllReset)
	}
	return s.reset(ctx, layout.EpochField(scope.Policy), wire.PolicyReset(scope.Policy))
}

// reset raises the epoch in a field of the settings, everywhere. The epoch is part of the keys'
// names, so that raising it leaves all states of before behind, in one step, however many there
// are. They expire by themselves.
func (s *Store) reset(ctx context.Context, field, announcement string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.started(ctx); err != nil {
		return err
	}
	script := redisconn.NewScript(wire.ResetScript())
	batchers := s.routes.Load().batchers
	faults := make([]error, len(batchers))
	var group sync.WaitGroup
	for i, br := range batchers {
		group.Go(func() {
			faults[i] = br.RoundTrip(ctx, func(ctx context.Context) error {
				reply, err := s.conn.Eval(
					ctx, script, []string{br.Target.SettingsKey()}, []string{s.wire.NowText(), s.channel, announcement, field},
				)
				if err != nil {
					return err
				}
				epoch, err := strconv.ParseInt(reply, 10, 64)
				if err != nil {
					return fmt.Errorf("%w: the epoch is %q", wire.ErrReply, reply)
				}
				br.Target.Raise(field, epoch)
				return nil
			})
		})
	}
	group.Wait()
	if err := errors.Join(faults...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return queue.Unavailable(err)
	}
	return nil
}

// agreement is one attempt to agree with the servers on the layout. Those who wait for one share
// its result; after an error the next attempt is another agreement.
type agreement struct {
	ended chan struct{} // closed when err is set
	err   error
}

func newAgreement() *agreement { return &agreement{ended: make(chan struct{})} }

// How often the layout is asked for until there is an answer, and checked later where the
// script of a batch can't: on a cluster, whose partitions do not know their number.
const (
	// Both are jittered, so that processes that start together do not ask together.
	startGap = 50 * time.Millisecond
	checkGap = 2 * time.Second
)

// start starts what a store does in the background, outside any caller's deadline. It returns at
// once; who decides before the layout is known waits in started.
func (s *Store) start() {
	s.loaded = make(chan struct{})
	s.agreement.Store(newAgreement())
	s.work.Go(func() {
		if !s.agree() {
			return
		}
		s.loadScripts(s.life)
		close(s.loaded)
		for s.conn.Cluster() && sleep.Jittered(s.life, checkGap) == nil {
			own := s.routes.Load()
			if text, err := s.readLayout(s.life); err == nil && text != own.Text {
				s.lostLayout(own.SettingsKey())
			}
		}
	})
	if s.denials != nil {
		s.work.Go(func() { s.denials.listen(s.life, s.conn, s.channel) })
	}
}

// lostLayout is called when the servers remember another layout under a key than was agreed on: they had lost it, and
// another process came first. Nothing more is decided until it has been read again. If it is the same, it is a
// partition of a cluster that remembers the encoding of before, and is told.
func (s *Store) lostLayout(key string) {
	if !s.agreement.CompareAndSwap(nil, newAgreement()) {
		return
	}
	s.background(func() {
		own := s.routes.Load()
		if s.agree() && s.routes.Load() == own && key != own.SettingsKey() {
			ctx, cancel := context.WithTimeout(s.life, queue.MaxSendTime)
			defer cancel()
			_, _ = s.conn.Do(ctx, "HSET", key, "layout", own.Text) // else the next batch is here again
		}
	})
}

// agree agrees with the servers on the layout, again and again until they answer with one that the options allow. It
// reports false if the store is closed first.
func (s *Store) agree() bool {
	for attempt := s.agreement.Load(); ; s.agreement.Store(attempt) {
		text, err := s.readLayout(s.life)
		if err == nil {
			err = s.adopt(text)
		}
		if err == nil {
			s.agreement.Store(nil)
			close(attempt.ended)
			return true
		}
		attempt.err = queue.Unavailable(err)
		close(attempt.ended)
		if sleep.Jittered(s.life, startGap) != nil {
			return false
		}
		attempt = newAgreement()
	}
}

// started waits until the layout is known, or returns why it is not.
func (s *Store) started(ctx context.Context) error { return s.await(ctx, s.agreement.Load()) }

// await waits for an attempt to agree on the layout, nil for none, or returns why it has failed.
func (s *Store) await(ctx context.Context, attempt *agreement) error {
	if attempt == nil {
		return nil
	}
	if err := s.awaits(ctx, attempt.ended); err != nil {
		return err
	}
	return attempt.err
}

// awaits waits for an event, or returns why it has not come.
func (s *Store) awaits(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return queue.EndOf(ctx)
	case <-s.life.Done():
		return queue.ErrClosed
	}
}

// Ready waits until layout and scripts are known, or returns why not: the context's error, one that
// wraps stint.ErrUnavailable when an attempt to reach the server has failed, or one that wraps
// stint.ErrInvalid if the options name another layout. The store goes on trying after the first
// two.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.started(ctx); err != nil {
		return err
	}
	return s.awaits(ctx, s.loaded)
}

// readLayout asks the servers for the layout. If there is none it becomes that of this process, unless another one
// comes first.
func (s *Store) readLayout(ctx context.Context) (text string, err error) {
	own := s.routes.Load()
	ctx, cancel := context.WithTimeout(ctx, queue.MaxSendTime)
	defer cancel()
	err = own.batchers[0].RoundTrip(ctx, func(ctx context.Context) (err error) {
		if text, err = s.conn.Do(ctx, "HGET", own.SettingsKey(), "layout"); err == nil && text == "" {
			script := redisconn.NewScript(wire.LayoutScript())
			text, err = s.conn.Eval(ctx, script, []string{own.SettingsKey()}, []string{own.Text})
		}
		return err
	})
	return text, err
}
