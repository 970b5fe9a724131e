package failover_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/watchdog"
	"github.com/stint-go/stint/storetest"
)

func TestParseMode(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		if got, err := failover.ParseMode(mode.String()); err != nil || got != mode {
			t.Errorf("ParseMode(%q) = %v, %v", mode, got, err)
		}
	}
	for _, name := range []string{"", "Open", "unknown"} {
		if _, err := failover.ParseMode(name); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "open, closed or local") {
			t.Errorf("ParseMode(%q): %v", name, err)
		}
	}
	if name := failover.Mode(3).String(); name != "unknown" {
		t.Errorf("a mode that is none is called %q", name)
	}
}

func TestInvalidConfig(t *testing.T) {
	_, err := failover.New(nil, failover.Config{Timeout: -1, Mode: failover.Local})
	for _, want := range []string{"store is", "Timeout is -1ns", "Local is"} {
		if err == nil || !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not report %q: %v", want, err)
		}
	}
	if _, err := failover.New(nil, failover.Config{Mode: 3}); err == nil || !strings.Contains(err.Error(), "Mode is 3") {
		t.Errorf("a mode that is none: %v", err)
	}
}

// pair has two limits, the second with the least capacity.
func pair(t testing.TB) *stint.Policy {
	return policy(t, "pair", stint.FixedWindow(50, time.Hour), stint.TokenBucket(20, stint.PerSecond(10)).Named("quick"))
}

func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, nil), pair(t)
		f.lose(p)
		now := stint.Instant(time.Now().UnixMicro())
		want := stint.Decision{
			Allowed: true, Degraded: true, Source: stint.SourceFailurePolicy, Index: 1, Limit: 20, Remaining: 20, At: now,
		}
		for range 30 { // beyond the limit
			if d := f.must("k", p); d != want {
				t.Fatalf("%+v, want %+v", d, want)
			}
		}
		stale := stint.Outcome{Remaining: 7, RetryAfter: 7, GrowsAfter: 7, ResetAfter: 7, Delay: 7, Applied: 7}
		each := slices.Repeat([]stint.Outcome{stale}, 5)
		o := op(stint.VerbTry, "k", p, 1, claim("k", minutely(t), 2))
		o.Each = each
		d, err := f.Decide(t.Context(), o)
		if err != nil || d != want {
			t.Errorf("two claims: %+v, %v", d, err)
		}
		if want := []stint.Outcome{
			{Allowed: true, Limit: 50, Remaining: 50},
			{Allowed: true, Limit: 20, Remaining: 20},
			{Allowed: true, Limit: 100, Remaining: 100},
			stale, stale,
		}; !slices.Equal(each, want) {
			t.Errorf("outcomes %+v", each)
		}
		// What no store would ever admit is not admitted.
		o = op(stint.VerbTake, "k", p, 21)
		o.Each = each
		d, err = f.Decide(t.Context(), o)
		if err != nil || d.Allowed || !d.Degraded || d.RetryAfter != stint.Never || d.Index != 1 || !each[0].Allowed || each[1].Allowed {
			t.Errorf("a cost above the limit: %+v, %v, outcomes %+v", d, err, each)
		}
		if s := f.Stats(); s.Open != 33 || s.Closed+s.Local != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// What the mode open says of limits on denials does not depend on whether each limit is asked for.
func TestOpenOfDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nil)
		block := stint.FixedWindow(20, time.Hour).FromFirst().OfDenials()
		slow := block.Named("slow")
		slow.Capacity = 5
		for _, limits := range [][]stint.Limit{{block}, {block, slow}, {block, stint.FixedWindow(50, time.Hour).Named("hour"), slow}} {
			p := policy(t, "p", limits...)
			f.lose(p)
			o := op(stint.VerbTake, "k", p, 1)
			o.Each = make([]stint.Outcome, p.Len())
			want := must.Get(f.Decide(t.Context(), o))(t)
			if d := f.must("k", p); d != want {
				t.Errorf("%d limits: %#v, want %#v", p.Len(), d, want)
			}
		}
	})
}

// A store that says that this process is overloaded is not unreachable, and no mode admits, unless
// AdmitOnOverload says so.
func TestOverload(t *testing.T) {
	busy := fmt.Errorf("%w: a full queue", stint.ErrOverloaded)
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		for _, admits := range []bool{false, true} {
			bubble(t, func(c *failover.Config) { c.Mode, c.AdmitOnOverload = mode, admits }, func(t *testing.T, f *fixture, p *stint.Policy) {
				f.faulty.Inject(failWith(busy))
				for range 10 {
					d, err := f.take("k", p)
					results := make([]stint.Result, 2)
					f.DecideAll(t.Context(), []stint.Op{op(0, "j", p, 1), op(0, "k", p, 1)}, results)
					want := stint.ErrOverloaded
					if admits && mode != failover.Closed {
						want = nil
					}
					if !errors.Is(err, want) || d.Degraded != (want == nil) || !errors.Is(results[1].Err, want) {
						t.Errorf("%s, %v: %+v, %v, %+v", mode, admits, d, err, results)
					}
					if _, err := f.Decide(t.Context(), op(stint.VerbPeek, "k", p, 1)); !errors.Is(err, stint.ErrOverloaded) {
						t.Errorf("%s, %v: a peek: %v", mode, admits, err)
					}
				}
				if down := f.Down(); down != nil || len(f.seen()) > 0 {
					t.Errorf("%s, %v: down: %v", mode, admits, down)
				}
				if s := f.Stats(); s.Overloaded != 40 {
					t.Errorf("%s, %v: %+v, want 40 overloaded", mode, admits, s)
				}
				// So does a server that turned the request away before.
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(busy)
				f.faulty.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: ctx.Err()} })
				if d, err := f.Decide(ctx, op(0, "k", p, 1)); admits && mode == failover.Open && (err != nil || !d.Degraded) ||
					(!admits || mode == failover.Closed) && !errors.Is(err, stint.ErrOverloaded) {
					t.Errorf("%s, %v: turned away: %+v, %v", mode, admits, d, err)
				}
				if _, err := f.Decide(ctx, op(stint.VerbPeek, "k", p, 1)); !errors.Is(err, stint.ErrOverloaded) {
					t.Errorf("%s, %v: a peek that was turned away: %v", mode, admits, err)
				}
			})
		}
	}
}

// A caller that is turned away is answered alike while the store is unreachable.
func TestOverloadWithoutTheStore(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		for _, admits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f, p := newFixture(t, func(c *failover.Config) { c.Mode, c.AdmitOnOverload = mode, admits }), pair(t)
				f.lose(p)
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(fmt.Errorf("%w: a full queue", stint.ErrOverloaded))
				want := stint.ErrOverloaded
				switch {
				case admits && mode == failover.Closed:
					want = stint.ErrUnavailable
				case admits:
					want = nil
				}
				d, err := f.Decide(ctx, op(0, "k", p, 1))
				results := make([]stint.Result, 2)
				f.DecideAll(ctx, []stint.Op{op(0, "j", p, 1), op(stint.VerbPeek, "j", p, 1)}, results)
				for _, r := range []stint.Result{{Decision: d, Err: err}, results[0]} {
					if !errors.Is(r.Err, want) || r.Decision.Allowed != (want == nil) || r.Decision.Degraded != (want == nil) {
						t.Errorf("%s, %v: %+v, want %v", mode, admits, r, want)
					}
				}
				if !errors.Is(results[1].Err, stint.ErrOverloaded) {
					t.Errorf("%s, %v: a peek: %v", mode, admits, results[1].Err)
				}
			})
		}
	}
}

// Peeks, resets and settlements have no answer but the store's.
func TestOtherVerbs(t *testing.T) {
	for _, mode := range []failover.Mode{failover.Open, failover.Closed, failover.Local} {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFixture(t, func(c *failover.Config) { c.Mode = mode }), pair(t)
			f.lose(p)
			for _, verb := range []stint.Verb{stint.VerbPeek, stint.VerbReset, stint.VerbSettle} {
				o := op(verb, "k", p, 1)
				o.Each = []stint.Outcome{{Limit: 7}, {Limit: 7}}
				d, err := f.Decide(t.Context(), o)
				if !errors.Is(err, stint.ErrUnavailable) || !errors.Is(err, watchdog.ErrSilent) || d != (stint.Decision{}) {
					t.Errorf("%s, %s: %+v, %v", mode, verb, d, err)
				}
				if o.Each[0] != (stint.Outcome{}) || o.Each[1] != (stint.Outcome{}) {
					t.Errorf("%s, %s: outcomes %+v", mode, verb, o.Each)
				}
			}
		})
	}
}

// A Limiter waits for what a mode decides, although it can't look before.
func TestWait(t *testing.T) {
	for mode, row := range map[failover.Mode]struct {
		err  error
		took time.Duration // of four waits
	}{
		failover.Open: {nil, 0}, failover.Local: {nil, 3 * time.Second},
		failover.Closed: {stint.ErrUnavailable, 4 * time.Minute}, // until the contexts end
	} {
		synctest.Test(t, func(t *testing.T) {
			f, p := newFixture(t, func(c *failover.Config) { c.Mode = mode }), policy(t, "", stint.LeakyBucket(5, stint.PerSecond(1)))
			f.lose(policy(t, "other", stint.FixedWindow(5, time.Hour)))
			limiter := must.Get(stint.NewLimiter(stint.Config{Store: f, Policy: p}))(t)
			start := time.Now()
			for range 4 {
				if d, err := limiter.Wait(within(t, time.Minute), "k"); !errors.Is(err, row.err) || d.Allowed != (row.err == nil) || d.Degraded != d.Allowed {
					t.Errorf("%s: %+v, %v", mode, d, err)
				}
			}
			if took := time.Since(start); took != row.took {
				t.Errorf("%s: four waits took %s, want %s", mode, took, row.took)
			}
		})
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, func(c *failover.Config) { c.Mode = failover.Closed }), pair(t)
		f.faulty.Inject(failWith(errRefused))
		for i := range 5 { // up to the third the store is asked
			o := op(stint.VerbTake, "k", p, 1)
			o.Each = []stint.Outcome{{Limit: 7}, {Limit: 7}}
			d, err := f.Decide(t.Context(), o)
			if !errors.Is(err, stint.ErrUnavailable) || !errors.Is(err, errRefused) || d != (stint.Decision{}) || o.Each[0] != (stint.Outcome{}) {
				t.Errorf("call %d: %+v, %v, outcomes %+v", i, d, err, o.Each)
			}
		}
		if _, err := f.Decide(t.Context(), op(0, "", p, 1)); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("an invalid operation: %v", err)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Decide(cancelled, op(0, "k", p, 1)); !errors.Is(err, context.Canceled) || errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("a caller that has gone: %v", err)
		}
		if s := f.Stats(); s.Closed != 5 || s.Errors != 3 || f.faulty.Calls() != 3 {
			t.Errorf("%+v after %d calls", s, f.faulty.Calls())
		}
	})
}

// local is a configuration of a process that is one of n.
func local(n int) func(*failover.Config) {
	return func(c *failover.Config) { c.Mode, c.Instances = failover.Local, func() int { return n } }
}

func TestLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, p := newFixture(t, local(4)), pair(t) // 12 per hour, and 5 at 10 in 4 seconds
		f.lose(p)
		for i := range int64(5) {
			if d := f.must("k", p); !d.Allowed || !d.Degraded || d.Source != stint.SourceFailurePolicy || d.Limit != 5 || d.Remaining != 4-i || d.Index != 1 {
				t.Errorf("request %d: %+v", i, d)
			}
		}
		d := f.must("k", p)
		if d.Allowed || !d.Degraded || d.RetryAfter != 400*time.Millisecond {
			t.Errorf("beyond the share: %+v", d)
		}
		<-time.After(d.RetryAfter)
		if d := f.must("k", p); !d.Allowed {
			t.Errorf("after RetryAfter: %+v", d)
		}
		o := op(stint.VerbTake, "fresh", p, 6) // above the share, not above the limit
		o.Each = make([]stint.Outcome, 2)
		d, err := f.Decide(t.Context(), o)
		if err != nil || d.Allowed || d.RetryAfter != time.Second || d.Index != 1 || !o.Each[0].Allowed || o.Each[1].RetryAfter != time.Second {
			t.Errorf("a cost above the share: %+v, %v, outcomes %+v", d, err, o.Each)
		}
		d, err = f.Decide(t.Context(), op(stint.VerbTake, "fresh", p, 6))
		if err != nil || d.Allowed || !d.Degraded || d.RetryAfter != time.Second || d.Index != 1 {
			t.Errorf("a cost above the share, of one decision: %+v, %v", d, err)
		}
		d, err = f.Decide(t.Context(), op(stint.VerbTake, "fresh", p, 21))
		if err != nil || d.Allowed || d.RetryAfter != stint.Never {
			t.Errorf("a cost above the limit: %+v, %v", d, err)
		}
		results := make([]stint.Result, 2)
		f.DecideAll(t.Context(), []stint.Op{op(0, "fresh", p, 5), op(0, "fresh", p, 5)}, results)
		if !results[0].Decision.Allowed || results[1].Decision.Allowed || !results[1].Decision.Degraded {
			t.Errorf("a batch: %+v", results)
		}
	})
}

// withOptions sets options by the policy's name.
func withOptions(rules map[string]failover.PolicyOptions) func(*failover.Config) {
	return func(c *failover.Config) {
		c.Instances = func() int { return 2 }
		c.ForPolicy = func(p *stint.Policy) (failover.PolicyOptions, bool) {
			rule, ok := rules[p.Name()]
			return rule, ok
		}
	}
}

func TestRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, withOptions(map[string]failover.PolicyOptions{
			"closed": {Mode: failover.Closed}, "local": {Mode: failover.Local}, "hasty": {Timeout: timeout / 4},
		}))
		named := func(name string) *stint.Policy { return policy(t, name, stint.FixedWindow(4, time.Hour)) }
		open, closed, local, hasty := named("open"), named("closed"), named("local"), named("hasty")
		f.faulty.Inject(silence)
		start := time.Now()
		d, err := f.Decide(t.Context(), op(0, "k", open, 1, claim("k", hasty, 1)))
		if err != nil || !d.Degraded || time.Since(start) != timeout/4 {
			t.Errorf("the least timeout counts: %+v, %v after %s", d, err, time.Since(start))
		}
		if d := f.must("k", open); !d.Allowed || d.Remaining != 4 {
			t.Errorf("open: %+v", d)
		}
		if _, err := f.Decide(t.Context(), op(0, "k", open, 1, claim("k", local, 1), claim("k", closed, 1))); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("closed wins: %v", err)
		}
		// The local claims are decided, the others admit.
		o := op(0, "k", open, 1, claim("k", local, 1), claim("l", local, 2))
		for i, want := range []struct {
			allowed bool
			left    [3]int64
		}{{true, [3]int64{4, 1, 0}}, {false, [3]int64{4, 1, 0}}} {
			o.Each = make([]stint.Outcome, 3)
			d, err := f.Decide(t.Context(), o)
			left := [3]int64{o.Each[0].Remaining, o.Each[1].Remaining, o.Each[2].Remaining}
			if err != nil || d.Allowed != want.allowed || !d.Degraded || d.Index != 2 || left != want.left || !o.Each[0].Allowed {
				t.Errorf("take %d: %+v, %v, outcomes %+v", i, d, err, o.Each)
			}
		}
		if d := f.must("k", local); !d.Allowed || d.Remaining != 0 {
			t.Errorf("what the denial left: %+v", d)
		}
	})
}

func TestRuleTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, withOptions(map[string]failover.PolicyOptions{"hasty": {Timeout: timeout / 4}}))
		hasty := policy(t, "hasty", stint.FixedWindow(4, time.Hour))
		f.faulty.Inject(silence)
		start := time.Now()
		if d, err := f.take("k", hasty); err != nil || !d.Degraded || time.Since(start) != timeout/4 {
			t.Errorf("%+v, %v after %s", d, err, time.Since(start))
		}
		f.regain()
		f.faulty.Inject(silence)
		start = time.Now()
		results := make([]stint.Result, 2)
		f.DecideAll(t.Context(), []stint.Op{op(0, "k", minutely(t), 1), op(0, "k", hasty, 1)}, results)
		if !results[0].Decision.Degraded || time.Since(start) != timeout/4 {
			t.Errorf("a batch: %+v after %s", results, time.Since(start))
		}
	})
}

func TestInvalidRules(t *testing.T) {
	for name, rule := range map[string]failover.PolicyOptions{
		"a mode that is none": {Mode: 3}, "a negative timeout": {Timeout: -1}, "local without a store": {Mode: failover.Local},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked := 0
			f := newFixture(t, func(c *failover.Config) {
				c.Local = nil
				c.ForPolicy = func(*stint.Policy) (failover.PolicyOptions, bool) { asked++; return rule, true }
			})
			p := minutely(t)
			results := make([]stint.Result, 1)
			f.DecideAll(t.Context(), []stint.Op{op(0, "k", p, 1)}, results)
			_, err := f.take("k", p)
			for _, err := range []error{err, results[0].Err} {
				if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "ForPolicy: ") {
					t.Errorf("%s: %v", name, err)
				}
			}
			if asked != 1 || f.faulty.Calls() != 0 {
				t.Errorf("%s: the rule was asked for %d times, the store %d times", name, asked, f.faulty.Calls())
			}
		})
	}
}
