package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/redisstore/internal/layout"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// timeout is after which a silent server is unreachable: later than all that tests wait for.
const timeout = time.Hour

// sending is a batch that is with the server: the clients of its takes, and its reply.
type sending struct {
	clients []string
	reply   chan error // nil: all are admitted
}

// server answers batches of takes when the test says so. All of a test runs in a bubble of synctest: time passes when all
// wait, and goroutines that are left over at its end fail it.
type server struct {
	t       *testing.T
	sent    chan sending
	batcher *Batcher
	policy  *stint.Policy
	end     context.CancelFunc
}

func newServer(t *testing.T, config *Config) *server {
	t.Helper()
	policy := must.Get(stint.NewPolicy("p", stint.FixedWindow(1000, time.Hour)))(t)
	s := &server{t: t, sent: make(chan sending, MaxInFlight), policy: policy}
	config.Life, s.end = context.WithCancel(t.Context())
	config.Ready = func(context.Context) error { return nil }
	config.Send = s.send
	target := &wire.Target{Config: &wire.Config{Eval: eval}}
	target.Layout.Store(layout.New("test", 1, layout.Packed))
	s.batcher = New(config, target, timeout, func(context.Context) error { return nil }, func(cause error) {
		t.Errorf("the server is unreachable: %v", cause)
	})
	return s
}

// close ends what the test has not.
func (s *server) close() {
	s.batcher.Close()
	s.end()
}

// replyKey is where a context has the reply for eval.
type replyKey struct{}

func eval(ctx context.Context, _ wire.Mix, _, _ []string) (string, error) {
	reply, _ := ctx.Value(replyKey{}).(string)
	return reply, nil
}

// send holds a batch until the test replies.
func (s *server) send(ctx context.Context, b *wire.Batch) error {
	held := sending{reply: make(chan error)}
	entries := b.Entries()
	for i := range entries {
		held.clients = append(held.clients, b.Client(&b.Limits(&entries[i])[0]))
	}
	s.sent <- held
	select {
	case err := <-held.reply:
		if err != nil {
			return Unavailable(err)
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	states := slices.Compact(slices.Sorted(slices.Values(held.clients)))
	return b.Execute(context.WithValue(ctx, replyKey{}, admitted(len(states), len(entries))))
}

// admitted is the reply that batch.lua describes, of states of which there was nothing.
func admitted(states, takes int) string {
	reply := binary.BigEndian.AppendUint64([]byte{0}, 1_700_000_000_000_000) // the time
	reply = append(reply, 0, 0, 0, 0)                                        // no generations
	for range states {
		reply = append(reply, 254) // NONE
	}
	return string(append(reply, 0, 0, 0, 0, byte(takes>>8), byte(takes)))
}

// op is a take of one permit of a client.
func (s *server) op(client string) stint.Op {
	return stint.Op{Claim: stint.Claim{Key: client, Policy: s.policy, Permits: 1}}
}

// take queues a take of each client, one call of one operation, and returns where its error comes.
func (s *server) take(ctx context.Context, limit time.Duration, clients ...string) (ends []chan error) {
	for _, client := range clients {
		op, end := s.op(client), make(chan error, 1)
		op.Timeout = limit
		ends = append(ends, end)
		go func() {
			d, err := s.batcher.DecideOne(ctx, &op)
			if err == nil && !d.Allowed {
				err = errors.New("denied")
			}
			end <- err
		}()
		synctest.Wait() // so that they come in order
	}
	return ends
}

// takeTogether queues takes of clients as one call.
func (s *server) takeTogether(ctx context.Context, clients ...string) (results []stint.Result, end chan struct{}) {
	var ops []stint.Op
	for _, client := range clients {
		ops = append(ops, s.op(client))
	}
	results, end = make([]stint.Result, len(ops)), make(chan struct{})
	go func() {
		s.batcher.Decide(ctx, 0, ops, results)
		close(end)
	}()
	synctest.Wait()
	return results, end
}

// next is the batch that was sent, which must be of these clients.
func (s *server) next(clients ...string) sending {
	s.t.Helper()
	synctest.Wait()
	select {
	case sent := <-s.sent:
		if !slices.Equal(sent.clients, clients) {
			s.t.Errorf("a batch of %q was sent, want %q", sent.clients, clients)
		}
		return sent
	default:
		s.t.Fatalf("nothing was sent, want %q", clients)
		return sending{}
	}
}

// nothing fails the test if a batch was sent.
func (s *server) nothing() {
	s.t.Helper()
	synctest.Wait()
	select {
	case sent := <-s.sent:
		s.t.Fatalf("a batch of %q was sent", sent.clients)
	default:
	}
}

// pass lets the bubble's time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	must.Do(t, sleep.For(t.Context(), d))
}

// checkEnded fails the test unless calls have ended with an error, or without one.
func checkEnded(t *testing.T, ends []chan error, want error) {
	t.Helper()
	synctest.Wait()
	for i, end := range ends {
		select {
		case err := <-end:
			if !errors.Is(err, want) {
				t.Errorf("call %d ends with %v, want %v", i, err, want)
			}
		default:
			t.Fatalf("call %d has not ended", i)
		}
	}
}

// The first call is sent at once. What comes while as many batches as may be are in flight goes together, in order, and no
// more than fit.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100, InFlight: 2})
		defer s.close()
		first := s.take(t.Context(), 0, "a")
		one := s.next("a")
		second := s.take(t.Context(), 0, "b")
		two := s.next("b")
		rest := s.take(t.Context(), 0, "c", "d", "e", "f", "g", "c")
		s.nothing()
		if queued, inFlight := s.batcher.Load(); queued != 6 || inFlight != 2 {
			t.Errorf("%d wait and %d batches are in flight, want 6 and 2", queued, inFlight)
		}
		two.reply <- nil
		checkEnded(t, second, nil)
		three := s.next("c", "d", "e", "f")
		s.nothing()
		one.reply <- nil
		checkEnded(t, first, nil)
		four := s.next("g", "c")
		four.reply <- nil
		three.reply <- nil
		checkEnded(t, rest, nil)
		if queued, inFlight := s.batcher.Load(); queued != 0 || inFlight != 0 {
			t.Errorf("%d wait and %d batches are in flight at the end", queued, inFlight)
		}
	})
}

// What does not fit of a call goes back to the front of the queue once the rest is answered.
func TestRequeue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Config{MaxBatch: 3, MaxQueue: 100, InFlight: 1})
		defer s.close()
		results, end := s.takeTogether(t.Context(), "a", "b", "c", "d", "e")
		one := s.next("a", "b", "c")
		later := s.take(t.Context(), 0, "x", "y")
		one.reply <- nil
		s.next("d", "e", "x").reply <- nil
		s.next("y").reply <- nil
		checkEnded(t, later, nil)
		<-end
		for i, r := range results {
			if r.Err != nil || !r.Decision.Allowed {
				t.Errorf("operation %d: %+v", i, r)
			}
		}

		// Of a caller that leaves nothing more is sent.
		ctx, leave := context.WithCancel(t.Context())
		results, end = s.takeTogether(ctx, "a", "b", "c", "d")
		one = s.next("a", "b", "c")
		leave()
		<-end
		one.reply <- nil
		s.nothing()
		for i, r := range results { // the caller's memory, which nobody else writes to any more
			if !errors.Is(r.Err, context.Canceled) {
				t.Errorf("operation %d of a caller that has left: %+v", i, r)
			}
		}
		if queued, inFlight := s.batcher.Load(); queued != 0 || inFlight != 0 {
			t.Errorf("%d wait and %d batches are in flight", queued, inFlight)
		}
	})
}

// A call whose context ends is taken out of the queue, or is in a batch whose reply it does not wait for. Other calls of the
// batch are answered.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100, InFlight: 1})
		defer s.close()
		ctx, leave := context.WithCancel(t.Context())
		ahead := s.take(t.Context(), 0, "ahead")
		one := s.next("ahead")
		stays, leaves, alsoStays := s.take(t.Context(), 0, "a"), s.take(ctx, 0, "b"), s.take(t.Context(), 0, "c")
		leave()
		checkEnded(t, leaves, context.Canceled)
		if n := s.batcher.Calls(); n != 2 {
			t.Errorf("%d calls wait, want 2", n)
		}
		one.reply <- nil
		checkEnded(t, ahead, nil)

		ctx, leave = context.WithCancel(t.Context())
		two := s.next("a", "c")
		leaves = s.take(ctx, 0, "d")
		two.reply <- nil
		checkEnded(t, append(stays, alsoStays...), nil)
		three := s.next("d")
		leave()
		checkEnded(t, leaves, context.Canceled) // its permit stays spent
		three.reply <- nil
		s.nothing()
	})
}

// A call that has no answer in its time blames the server if that had half of it, or if what is before it has waited for
// nine tenths of it, and this process otherwise.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 100 * time.Millisecond
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100, InFlight: 1})
		defer s.close()
		sent := s.take(t.Context(), limit, "sent")
		one := s.next("sent")
		pass(t, limit/2)
		behind := s.take(t.Context(), limit/4, "behind")
		late := s.take(t.Context(), limit, "late")
		pass(t, limit/2)
		checkEnded(t, sent, stint.ErrUnavailable)
		checkEnded(t, behind, stint.ErrUnavailable)
		one.reply <- nil
		two := s.next("late") // with half of its time left, less a moment
		pass(t, limit/2-1)
		s.nothing()
		pass(t, 1)
		checkEnded(t, late, stint.ErrUnavailable)
		two.reply <- nil
		s.nothing()

		ahead := s.take(t.Context(), 0, "ahead")
		one = s.next("ahead")
		late = s.take(t.Context(), limit, "late")
		pass(t, limit/2+1)
		one.reply <- nil
		checkEnded(t, ahead, nil)
		two = s.next("late")
		pass(t, limit/2)
		checkEnded(t, late, stint.ErrOverloaded)
		two.reply <- nil
	})
}

// A full queue refuses a call, but no refund, and what is larger than the queue while nothing waits.
func TestQueueFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 2, InFlight: 1})
		defer s.close()
		ahead := s.take(t.Context(), 0, "ahead")
		one := s.next("ahead")
		_, end := s.takeTogether(t.Context(), "a", "b", "c")
		checkEnded(t, s.take(t.Context(), 0, "d"), stint.ErrOverloaded)
		op := s.op("e")
		op.Verb = wire.Refund
		refund := s.batcher.NewCall(t.Context(), &op)
		if err := s.batcher.Enqueue(refund); err != nil {
			t.Errorf("a refund: %v", err)
		}
		one.reply <- nil
		checkEnded(t, ahead, nil)
		lost := errors.New("lost")
		s.next("a", "b", "c", "e").reply <- lost
		<-end
		if !s.batcher.Await(refund) || !errors.Is(refund.Result().Err, lost) || !errors.Is(refund.Result().Err, stint.ErrUnavailable) {
			t.Errorf("the refund: %+v", refund.Result())
		}
	})
}

// A batcher that is closed takes no more calls, and sends those that it has.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100, InFlight: 1})
		defer s.end()
		first := s.take(t.Context(), 0, "a")
		one := s.next("a")
		second := s.take(t.Context(), 0, "b")
		s.batcher.Close()
		s.batcher.Close()
		checkEnded(t, s.take(t.Context(), 0, "c"), ErrClosed)
		one.reply <- nil
		checkEnded(t, first, nil)
		s.next("b").reply <- nil
		checkEnded(t, second, nil)

		// The end of the store's life ends what is in flight.
		other := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100, InFlight: 1})
		defer other.close()
		last := other.take(t.Context(), 0, "a")
		other.next("a")
		other.end()
		checkEnded(t, last, stint.ErrUnavailable)
	})
}

// To a server that is far away a batch is sent every sixteenth of a round trip, too, beyond those that are in flight.
func TestFarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const trip = 160 * time.Millisecond
		s := newServer(t, &Config{MaxBatch: 4, MaxQueue: 100})
		defer s.close()
		s.batcher.SetDistance(trip)
		var sent []sending
		ends := s.take(t.Context(), 0, "a")
		sent = append(sent, s.next("a"))
		ends = append(ends, s.take(t.Context(), 0, "b")...)
		sent = append(sent, s.next("b"))
		ends = append(ends, s.take(t.Context(), 0, "c", "d")...)
		pass(t, trip/sendsPerTrip-1)
		s.nothing()
		pass(t, 1)
		sent = append(sent, s.next("c", "d"))
		for _, one := range sent {
			one.reply <- nil
		}
		checkEnded(t, ends, nil)
	})
}

// What is in flight follows from how long batches take.
func TestPace(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	type state struct {
		inFlight, limits int
		far              bool
	}
	p := newPace(&Config{MaxBatch: 256})
	for i, step := range []struct {
		took  time.Duration
		after time.Duration
		want  state
	}{
		{time.Millisecond, 0, state{2, 256, false}},
		{12 * time.Millisecond, 0, state{2, 256, false}},             // twice the distance, and 10 ms
		{12*time.Millisecond + 1, 0, state{1, 128, false}},           // slow
		{time.Second, 0, state{1, 64, false}},                        // a quarter at least
		{time.Second, 0, state{1, 64, false}},                        //
		{time.Millisecond, 0, state{2, 128, false}},                  // quick again
		{time.Millisecond, 0, state{2, 256, false}},                  //
		{8 * time.Millisecond, paceWindow + 1, state{2, 256, false}}, // the shortest is remembered for one window more
		{8 * time.Millisecond, paceWindow + 1, state{18, 256, true}}, // far away
		{30 * time.Millisecond, 0, state{1, 128, true}},              // and slow
		{4 * time.Millisecond, 0, state{2, 256, false}},              // near
	} {
		now = now.Add(step.after)
		p.note(step.took, now)
		if got := (state{p.maxInFlight(), p.maxLimits(), p.far()}); got != step.want {
			t.Errorf("step %d: %+v, want %+v", i, got, step.want)
		}
	}
	fixed := newPace(&Config{MaxBatch: 256, InFlight: 5})
	for _, took := range []time.Duration{time.Millisecond, time.Second, 50 * time.Millisecond} {
		fixed.note(took, now)
		if got := (state{fixed.maxInFlight(), fixed.maxLimits(), fixed.far()}); got != (state{5, 256, false}) {
			t.Errorf("a fixed pace after %s: %+v", took, got)
		}
	}
}
