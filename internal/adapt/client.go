package adapt

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// What a [Client] means when it does not say.
const (
	defaultMaxWait  = time.Minute
	defaultMaxPause = 24 * time.Hour
	// maxPauses bounds how many keys pause at a time; of more, those whose pause ends first are forgotten.
	maxPauses = 10_000
)

// A Client is by what a program's calls are paced: by plain limits, by rules or by neither, and by the pauses that
// servers ask for. Call Complete before the first use.
type Client struct {
	Limiter           *stint.Limiter
	Rules             enforce.Decider
	Refuse            bool
	MaxWait, MaxPause time.Duration

	evaluations Evaluations
	pauses      Pauses
}

// Faults are all that is wrong with a configuration.
func (c *Client) Faults(f Functions) (faults []error) {
	f.Key = false // without limits it is for the pauses alone
	faults = f.faults(c.Limiter != nil && c.Rules == nil, c.Rules != nil)
	if c.Rules != nil && c.Limiter != nil {
		faults = append(faults, stint.Invalid("Rules", "set", "nil beside a limiter of plain limits"))
	}
	switch {
	case c.Limiter == nil:
	case c.Limiter.Policy() == nil:
		faults = append(faults, errZero)
	case c.Limiter.Policy().NeedsReserve():
		faults = append(faults, stint.Invalid("Limiter", "one with a concurrency limit", "limits that are not of "+
			"concurrency, as a call holds nothing"))
	}
	if c.MaxWait < 0 {
		faults = append(faults, stint.Invalid("MaxWait", c.MaxWait, "a positive duration; 0 for the default"))
	}
	if c.MaxPause < 0 {
		faults = append(faults, stint.Invalid("MaxPause", c.MaxPause, "a positive duration; 0 for the default"))
	}
	return faults
}

// Complete fills in the defaults.
func (c *Client) Complete() {
	c.MaxWait = cmp.Or(c.MaxWait, defaultMaxWait)
	c.pauses.Most, c.pauses.Longest = maxPauses, cmp.Or(c.MaxPause, defaultMaxPause)
}

// A Call is what is known of a call before it leaves.
type Call struct {
	// Server is whom it is for: a host or a target.
	Server string
	// Key is whom it counts for, and Cost what it costs, by plain limits.
	Key  string
	Cost int64
	// Describe describes it to rules.
	Describe func(*Evaluation) error
	// Refused makes the error of a call that may not leave.
	Refused func(*Refusal) error
}

// A Refusal is why a call may not leave.
type Refusal struct {
	// Verdict is the denial by limits; nil: the server asked for a pause.
	Verdict *enforce.Verdict
	// RetryAfter is how long until it may leave, stint.Never when no wait will do. 0 says that it is not known.
	RetryAfter time.Duration
	// Late says that the call would wait, but its context ends before.
	Late bool
}

// pauseOf is under which key the pauses of a call's server are kept: what the server says of one key says nothing of
// the others.
func (c *Call) pauseOf() string {
	if c.Key == c.Server {
		return c.Server
	}
	return c.Server + "\x00" + c.Key
}

// Pause notes that the call's server asked for a pause, and returns the one that it is granted.
func (c *Client) Pause(call *Call, pause time.Duration) (granted time.Duration) {
	c.pauses.Add(call.pauseOf(), pause)
	return min(pause, c.pauses.Longest)
}

// Await returns when a call may leave, or why it may not: what Refused makes of it, the context's error, or why it
// could not be decided. MaxWait bounds the whole of it. The server comes first, so that no permit is spent on a call
// that it would refuse. If the server has asked for a pause by the time at which the limiter admits, that permit is
// spent, and the limiter is asked for another one after the pause: all who waited with one would leave at once.
func (c *Client) Await(ctx context.Context, call *Call) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, c.MaxWait)
	defer cancel()
	for pause := call.pauseOf(); ; {
		if err := c.awaitPause(ctx, waiting, pause, call); err != nil {
			return err
		}
		if c.Rules == nil && c.Limiter == nil {
			return nil
		}
		if err := c.decide(ctx, waiting, call); err != nil {
			return err
		}
		if c.pauses.Left(pause) == 0 {
			return nil
		}
	}
}

// MayWait reports whether a call may wait so long.
func (c *Client) MayWait(ctx context.Context, wait time.Duration) bool {
	return wait <= 0 || !c.Refuse && wait <= c.MaxWait && !isBeyond(ctx, wait)
}

// isBeyond reports whether the context ends sooner.
func isBeyond(ctx context.Context, wait time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return bounded && wait > time.Until(deadline)
}

// awaitPause waits until the server's pause is over. A wait that would be too long is not begun.
func (c *Client) awaitPause(ctx, waiting context.Context, pause string, call *Call) (err error) {
	left := c.pauses.Left(pause)
	if left > 0 && !c.Refuse {
		left, err = c.pauses.Await(waiting, pause)
	}
	switch {
	case left == 0:
		return nil
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	default:
		return call.Refused(&Refusal{RetryAfter: left, Late: !c.Refuse && isBeyond(ctx, left)})
	}
}

// decide has the limiter or the rules decide, and holds an admitted call until its turn.
func (c *Client) decide(ctx, waiting context.Context, call *Call) (err error) {
	e := c.evaluations.Get()
	defer c.evaluations.Put(e)
	v := &e.Verdict
	v.Held = 0
	switch {
	case c.Rules != nil:
		if err := call.Describe(e); err != nil {
			return err
		}
		err = c.Rules.Decide(waiting, &e.Request, v)
	case !e.begin(c.Limiter, call.Key, call.Cost):
	case c.Refuse:
		deadline, _ := waiting.Deadline()
		err = e.take(waiting, c.Limiter, deadline)
	default:
		err = e.wait(waiting, c.Limiter)
	}
	switch {
	case err == nil && v.Allowed:
		return c.awaitTurn(ctx, waiting, call, v)
	case err == nil:
		return call.Refused(c.refusal(ctx, v))
	case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
		return err
	case v.Held > 0: // behind others, so that it was not known how long
		return call.Refused(&Refusal{Verdict: v})
	default:
		return prefix.Errorf("%w: no decision within %s: %w", stint.ErrUnavailable, c.MaxWait, err)
	}
}

// awaitTurn waits for the turn of a leaky bucket. One that is too far away is a denial.
func (c *Client) awaitTurn(ctx, waiting context.Context, call *Call, v *enforce.Verdict) error {
	turn := v.Decision.Delay
	if !isBeyond(waiting, turn) {
		if err := sleep.For(waiting, turn); err == nil || ctx.Err() != nil {
			return err
		}
	}
	v.Allowed, v.Turn, v.Decision.RetryAfter = false, turn, turn
	return call.Refused(c.refusal(ctx, v))
}

// refusal is that of a call which limits deny. One that limits would have made wait is late if its context does not
// last.
func (c *Client) refusal(ctx context.Context, v *enforce.Verdict) *Refusal {
	r := &Refusal{Verdict: v, RetryAfter: cmp.Or(v.Turn, v.Decision.RetryAfter)}
	waits := v.Turn > 0 || c.Rules == nil && !c.Refuse ||
		v.Rule != nil && v.Rule.OnExceed == rules.Wait && v.Outcome == rules.Limited
	r.Late = waits && r.RetryAfter != stint.Never && isBeyond(ctx, r.RetryAfter)
	return r
}
