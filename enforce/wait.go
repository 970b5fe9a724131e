package enforce

import (
	"context"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise.
const defaultWaiters = 100

// wait decides a request that a rule may hold.
func (l *Limiter) wait(ctx context.Context, v *Verdict) error {
	first, longest := v.patience()
	if l.maxWait > 0 {
		longest = min(longest, l.maxWait)
	}
	deadline := time.Now().Add(longest)
	line := l.lines.of(v.claims[first].claim)
	defer line.leave()
	most := v.claims[first].rule.MaxWaiters
	if most == 0 {
		most = defaultWaiters
	}
	waits := line.busy()
	for {
		if waits {
			begin := time.Now()
			in, err := line.await(ctx, most, deadline)
			v.Held += time.Since(begin)
			if err != nil {
				return err
			}
			if !in {
				return l.giveUp(ctx, v)
			}
		}
		hold, err := l.try(ctx, v, deadline)
		if err != nil || !hold && !v.Allowed {
			return err
		}
		if v.Allowed {
			line.leave()
			return l.admit(ctx, v)
		}
		retry := v.Decision.RetryAfter
		if !v.mayWait() || retry > time.Until(deadline) {
			return l.giveUp(ctx, v)
		}
		if waits = !line.first(most); waits {
			continue
		}
		if err := v.pause(ctx, retry); err != nil {
			return err
		}
	}
}

// patience is the first of the rules that wait, and how long the least patient of them does.
func (v *Verdict) patience() (first int, longest time.Duration) {
	first = -1
	for i := range v.claims {
		rule := v.claims[i].rule
		if rule.OnExceed != rules.Wait {
			continue
		}
		if first < 0 {
			first, longest = i, rule.MaxWait
		}
		longest = min(longest, rule.MaxWait)
	}
	return first, longest
}

// try decides once. It reports whether a request that was denied may be held.
func (l *Limiter) try(ctx context.Context, v *Verdict, deadline time.Time) (hold bool, err error) {
	if v.queues() {
		// A turn, once taken, is kept; so look first whether it comes in time.
		if err := l.decide(ctx, v, stint.Peek, false); err != nil {
			return false, err
		}
		if late := v.Decision.Delay - time.Until(deadline); v.Allowed && late > 0 {
			v.Allowed, v.Decision.Allowed = false, false
			v.Decision.RetryAfter, v.Decision.Delay = late, 0
			return false, nil
		}
	}
	return true, l.decide(ctx, v, stint.Try, false)
}

// admit holds an admitted request until its turn.
func (l *Limiter) admit(ctx context.Context, v *Verdict) error {
	err := v.pause(ctx, v.Decision.Delay)
	v.Decision.Delay = 0
	if err == nil {
		l.shadow(ctx, v)
	}
	return err
}

// shadow decides the rules in shadow of a request that waited. Their failure is nobody's.
func (l *Limiter) shadow(ctx context.Context, v *Verdict) {
	for i := range v.shadows {
		d, err := l.store.Decide(ctx, stint.Op{Claim: v.shadows[i].claim})
		if err == nil && !d.Allowed {
			v.Shadowed = append(v.Shadowed, v.shadows[i].rule.ID)
		}
	}
}

// giveUp decides a last time without waiting, which limits that count denied requests record.
func (l *Limiter) giveUp(ctx context.Context, v *Verdict) error {
	return l.decide(ctx, v, stint.Take, true)
}

// mayWait reports whether all that deny are rules that wait.
func (v *Verdict) mayWait() bool {
	if v.Decision.RetryAfter == stint.Never {
		return false
	}
	at := 0
	for i := range v.claims {
		n := v.claims[i].claim.Policy.Len()
		for _, outcome := range v.each[at : at+n] {
			if !outcome.Allowed && v.claims[i].rule.OnExceed != rules.Wait {
				return false
			}
		}
		at += n
	}
	return true
}

// queues reports whether a limit gives out turns.
func (v *Verdict) queues() bool {
	for i := range v.claims {
		policy := v.claims[i].claim.Policy
		for j := range policy.Len() {
			if policy.Limit(j).Algorithm == stint.AlgorithmLeakyBucket {
				return true
			}
		}
	}
	return false
}

// pause holds the request.
func (v *Verdict) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	begin := time.Now()
	defer func() { v.Held += time.Since(begin) }()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
