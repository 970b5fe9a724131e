package enforce

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// What the adapters of HTTP and of gRPC have in common.

// An Evaluation is what deciding one request needs for a moment.
type Evaluation struct {
	Request rules.Request
	Verdict Verdict
	// Header is empty room for a header that an adapter makes for the request. It may be nil.
	Header http.Header
}

// Evaluations keep evaluations to be used again, which saves their allocations. The zero value is ready
// to use, and safe for concurrent use.
type Evaluations struct{ pool sync.Pool }

// Get returns an evaluation with an empty request. Its verdict is that of another request until it is decided.
func (p *Evaluations) Get() *Evaluation {
	if e, ok := p.pool.Get().(*Evaluation); ok {
		return e
	}
	return new(Evaluation)
}

// Put forgets the request. The evaluation must not be used afterwards.
func (p *Evaluations) Put(e *Evaluation) {
	const few = 256 // rules and fields whose room is kept
	if len(e.Header)+len(e.Verdict.Matched) > few {
		return
	}
	e.Request = rules.Request{}
	if e.Header != nil {
		clear(e.Header)
	}
	p.pool.Put(e)
}

// DecidePlain decides a client's request by plain limits in the place of rules: the verdict has no Rule,
// and Each only if it is asked for. At a cost of 0 the request is admitted and no limit is asked. A turn of a
// leaky bucket that comes after end, if that is not the zero time, is denied. Errors are [stint.Limiter.AllowN]'s.
func (v *Verdict) DecidePlain(ctx context.Context, limiter *stint.Limiter, key string, cost int64, each bool, end time.Time) error {
	if !v.claimPlain(limiter, key, cost, each) {
		return nil
	}
	return v.notePlain(limiter.AllowBefore(ctx, end, key, cost, v.Each))
}

// WaitPlain is DecidePlain for a caller that waits for permits and turns, at most to the context's deadline: what
// comes later is denied. Errors are [stint.Limiter.WaitN]'s.
func (v *Verdict) WaitPlain(ctx context.Context, limiter *stint.Limiter, key string, cost int64) error {
	if !v.claimPlain(limiter, key, cost, false) {
		return nil
	}
	d, err := limiter.WaitN(ctx, key, cost)
	switch {
	case errors.Is(err, stint.ErrNever):
		err = nil
	case errors.Is(err, stint.ErrDeadline):
		d.Delay = max(d.Delay, d.RetryAfter)
	default:
		d.Delay = 0 // it was waited for
	}
	return v.notePlain(d, err)
}

// claimPlain begins a verdict by plain limits, and reports whether they have to be asked.
func (v *Verdict) claimPlain(limiter *stint.Limiter, key string, cost int64, each bool) bool {
	v.reset()
	if cost == 0 {
		return false
	}
	v.Claim = stint.Claim{Key: key, Policy: limiter.Policy(), Permits: cost}
	if each {
		v.Each = v.room(v.Claim.Policy.Len())
	}
	return true
}

// notePlain makes a limiter's answer the verdict.
func (v *Verdict) notePlain(d stint.Decision, err error) error {
	if errors.Is(err, stint.ErrDeadline) {
		v.Turn, d.Allowed, d.RetryAfter, err = d.Delay, false, d.Delay, nil
	}
	v.Decision, v.Allowed = d, d.Allowed
	return err
}

// Pauses remember until when servers asked not to be called, by key. The zero value remembers nothing. Set
// the fields before the first use. It is safe for concurrent use.
type Pauses struct {
	// Most is how many keys are remembered; of more, those whose pause ends first are forgotten.
	Most int
	// Longest is the longest pause that is granted.
	Longest time.Duration

	mu    sync.Mutex
	until map[string]time.Time
}

// Left is how long the key's pause still lasts, 0 when there is none.
func (p *Pauses) Left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, pausing := p.until[key]
	left := max(time.Until(until), 0)
	if pausing && left == 0 {
		delete(p.until, key)
	}
	return left
}

// Await waits until the key's pause is over. It returns at once, with what is left of it and an error that
// wraps stint.ErrDeadline, when the context's deadline comes before; and the context's error when it ends.
func (p *Pauses) Await(ctx context.Context, key string) (left time.Duration, err error) {
	for {
		if left = p.Left(key); left == 0 {
			return 0, nil
		}
		if deadline, bounded := ctx.Deadline(); bounded && left > time.Until(deadline) {
			return left, stint.ErrDeadline
		}
		if err := sleep.For(ctx, left); err != nil {
			return left, err
		}
	}
}

// Add makes the key pause so long from now on. A pause that lasts longer stays: answers come in any order.
func (p *Pauses) Add(key string, pause time.Duration) {
	now := time.Now()
	until := now.Add(min(pause, p.Longest))
	p.mu.Lock()
	defer p.mu.Unlock()
	earlier, pausing := p.until[key]
	if pause <= 0 || earlier.After(until) {
		return
	}
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	if !pausing && len(p.until) >= p.Most {
		p.makeRoom(now)
	}
	p.until[key] = until
}

// makeRoom forgets what is over, or else the key whose pause ends first.
func (p *Pauses) makeRoom(now time.Time) {
	var first string
	var soonest time.Time
	for key, until := range p.until {
		if !until.After(now) {
			delete(p.until, key)
		} else if soonest.IsZero() || until.Before(soonest) {
			first, soonest = key, until
		}
	}
	if len(p.until) >= p.Most {
		delete(p.until, first)
	}
}
