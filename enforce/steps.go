package enforce

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/steps"
	"github.com/stint-go/stint/internal/waitqueue"
	"github.com/stint-go/stint/rules"
)

// defaultWaiters is how many requests of a client wait at once unless its rule says otherwise.
const defaultWaiters = 100

// How long a request that waits pauses before it tries again, after the store could not decide: the first time, and at
// most. Half of it, or more, by chance.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// Steps are the steps of the limiter's decisions, for stint's own simulation, which decides in its own time.
func (l *Limiter) Steps() steps.Of[Verdict] { return stepper{l} }

// A stepper takes the steps of a limiter's decisions.
type stepper struct{ *Limiter }

// Prepare implements [steps.Of].
//
// A rule with a concurrency limit holds only for a Reserve: nobody would give back what Decide took of it. A reset
// clears its state, too. For the end of a hold a client that is banned by now has the limits that it had. The order of
// what decides without the store: the first rule that bans or lacks something; then a fault of the request, of which
// the error tells and the verdict has the Rule, if it is one; then DenyByDefault.
func (l stepper) Prepare(r *rules.Request, v *Verdict, verb stint.Verb) error {
	v.reset()
	v.matches.Now = l.wall
	match := (*rules.Set).Match
	if l.rejectAmbiguous {
		match = (*rules.Set).MatchUnambiguous
	}
	if err := match(l.set.Load(), r, &v.matches); err != nil {
		return err
	}
	var fault error
	var faulty *rules.Rule
	v.byDefault = l.denyByDefault
	var matched rules.Matched
	for i := range v.matches.Len() {
		err := v.matches.At(i, verb, &matched)
		if isLeftOut(&matched, verb) {
			continue
		}
		inShadow := matched.Rule.OnExceed == rules.Shadow
		if err == nil && verb == stint.VerbReserve && inShadow && matched.NeedsReserve() {
			continue // it holds nothing
		}
		v.Matched = append(v.Matched, matched.Rule.ID)
		v.byDefault = v.byDefault && inShadow
		if err != nil {
			if !inShadow && fault == nil {
				fault, faulty = prefix.Errorf("rule %q: %w", matched.Rule.ID, err), matched.Rule
			}
			continue
		}
		switch matched.Outcome {
		case rules.Limited:
			if inShadow {
				v.addShadow(&matched)
				break
			}
			first := len(v.claims)
			v.claims = appendClaims(v.claims, &matched)
			if matched.Rule.OnExceed == rules.Mark && verb != stint.VerbSettle && verb != stint.VerbReset {
				for i := first; i < len(v.claims); i++ {
					v.claims[i].way = 0 // or none, see built.op
				}
			}
			v.marks = v.marks || isMarking(verb) && (matched.Rule.OnExceed == rules.Mark || matched.Rule.MarkAt > 0)
		case rules.Banned, rules.Lacking:
			if inShadow {
				v.shadow(&stint.Event{
					Rule: matched.Rule.ID, Set: matched.Rule.Set, Decision: stint.Decision{RetryAfter: stint.Never},
					Reason: reasonWithoutLimit(matched.Outcome),
				})
			} else if v.Rule == nil {
				v.Rule, v.Outcome, v.Allowed = matched.Rule, matched.Outcome, false
				v.Decision = stint.Decision{RetryAfter: stint.Never}
			}
		case rules.Skipped, rules.Unlimited, rules.Included:
		}
	}
	if verb == stint.VerbReserve {
		v.sortClaims()
		v.markAsked()
	} else {
		v.order()
	}
	if v.byDefault {
		v.Allowed, v.Decision = false, stint.Decision{RetryAfter: stint.Never}
	}
	if !v.Allowed {
		return nil
	}
	if fault != nil {
		v.Rule = faulty
	}
	return fault
}

// isLeftOut reports whether a rule that matches has nothing to do with a verb.
func isLeftOut(matched *rules.Matched, verb stint.Verb) bool {
	clears := verb == stint.VerbReset && matched.Claim.Policy != nil
	return matched.Outcome == rules.Skipped || verb < stint.VerbReserve && !clears && matched.NeedsReserve()
}

// Claims are what the rules that decide ask of the store, or were to ask when there is an error: each rule's one after
// another, in the order in which an operation has them. They are the verdict's, until it is used again, and must not
// be changed.
func (v *Verdict) Claims() []Claimed { return v.claims }

// waits reports whether a rule that decides may have the request wait.
func (v *Verdict) waits() bool {
	for i := range v.claims {
		if v.claims[i].Rule.OnExceed == rules.Wait {
			return true
		}
	}
	return false
}

// Ask implements [steps.Of].
func (l stepper) Ask(ctx context.Context, v *Verdict, do waitqueue.Action) error {
	switch do {
	case waitqueue.Try:
		return l.decide(ctx, v, stint.VerbTry, false)
	case waitqueue.Peek:
		return l.decide(ctx, v, stint.VerbPeek, false)
	case waitqueue.Take:
		return l.decide(ctx, v, stint.VerbTake, true)
	case waitqueue.Shadow:
		for i := range v.shadows {
			d, err := l.store.Decide(ctx, v.shadows[i].op(stint.VerbTake))
			v.noteShadow(i, d, err)
		}
	case waitqueue.Done, waitqueue.Follow, waitqueue.Pause:
	}
	return nil
}

// A waiter is a [steps.Waiter]: [Limiter.Decide] takes its steps by timers, and a simulation by the events of its own
// time.
//
// Each attempt is the same: wait for those ahead, look whether a turn of a leaky bucket would be in time, try. A Try
// counts no denial, so that limits which count denied requests see only the last one.
type waiter struct {
	limiter  *Limiter
	verdict  *Verdict
	queued   waitqueue.Waiter[client]
	rules    []ruled // of its positions
	deadline int64
	// has a place when it becomes the first where it is behind
	turn chan struct{}

	stage stage
	gone  bool // whether it has given up
	ahead int  // the position in whose queue others were ahead when it did
	// waits says that it has waited, and has a place that it is to lose for no outage. The first try of another one fails
	// at once: a service whose store is away is not to hold all requests.
	waits  bool
	paused time.Duration // the last time, since the store could not decide
}

// A stage is what a waiter goes on with at the next step.
type stage uint8

const (
	arrives  stage = iota // looks whether it is behind others
	looked                // was told whether its turn comes in time
	tried                 // was told whether it is admitted
	denied                // waits in the queues of the rules that deny it
	previews              // was told whether it would be admitted, though others are ahead
	took                  // was told the last answer
	ended                 // has been decided
)

// Waiter implements [steps.Of].
func (l stepper) Waiter(v *Verdict, now int64, longest time.Duration, turn func(now int64)) steps.Waiter {
	return l.waiter(v, now, longest, turn)
}

func (l *Limiter) waiter(v *Verdict, now int64, longest time.Duration, turn func(now int64)) *waiter {
	w := &waiter{limiter: l, verdict: v, deadline: now + int64(min(longest, v.patience()))}
	if w.queued.Turn = turn; turn == nil {
		w.queued.Turn = w.wake
	}
	for r := range v.byRule() {
		if c := &r.claims[0]; c.Rule.OnExceed == rules.Wait {
			w.rules = append(w.rules, r)
			w.queued.Positions = append(w.queued.Positions, waitqueue.Position[client]{
				Key: client{c.Rule.ID, c.Client, c.Class}, Room: cmp.Or(c.Rule.MaxWaiters, defaultWaiters),
			})
		}
	}
	return w
}

// wake tells a waiter by the clock that its turn has come.
func (w *waiter) wake(int64) {
	select {
	case w.turn <- struct{}{}:
	default: // told already
	}
}

// Step implements [steps.Waiter].
func (w *waiter) Step(now int64, err error) (waitqueue.Step, error) {
	v := w.verdict
	switch w.stage {
	case arrives, denied:
		if w.stage == denied && now < w.queued.Until {
			// It may ask again only when no rule that denied it would still deny it, each by its own time.
			w.waits = true
			return waitqueue.Step{Do: waitqueue.Pause, Until: w.release(now)}, nil
		}
		w.stage = arrives
		switch behind, room := w.follow(now); {
		case behind && !room:
			return w.giveUp(), nil
		case behind:
			w.waits = true
			return waitqueue.Step{Do: waitqueue.Follow, Until: w.deadline}, nil
		}
		return w.attempt(), nil
	case looked:
		// A turn that has come is in time, however late the store was to say so. While the store is
		// unreachable there is no look, and the failure policy decides.
		if late := v.lateness(w.left(now)); err == nil && late > 0 {
			v.denyLate(late)
			return w.end(now), nil
		}
		return w.ask(), nil
	case tried:
		if err != nil {
			return w.again(now, err)
		}
		if v.Allowed {
			return w.end(now), nil
		}
		if retry := v.Decision.RetryAfter; !v.mayWait() || retry <= 0 || retry > w.left(now) || !w.deny(now) {
			return w.giveUp(), nil
		}
		w.stage = denied
		return w.Step(now, nil)
	case previews:
		if err == nil && v.Allowed {
			ahead := w.rules[w.ahead]
			v.deny(int16(ahead.first), ahead.claims[0].Rule.MaxWait) // #nosec G115 -- MaxOpLimits
			return w.end(now), nil
		}
		return w.attempt(), nil
	case took, ended:
	}
	w.leave(now)
	return waitqueue.Step{}, err
}

// left is how long the request may still wait.
func (w *waiter) left(now int64) time.Duration { return time.Duration(w.deadline - now) }

// attempt looks first whether its turn comes in time where limits give out turns: a turn, once taken, is kept.
func (w *waiter) attempt() waitqueue.Step {
	if w.verdict.hasTurns() {
		w.stage = looked
		return waitqueue.Step{Do: waitqueue.Peek}
	}
	return w.ask()
}

// ask tries, or takes for the last time. A Take at the end records the denial where limits count denied requests, and
// may still admit: then the request goes on.
func (w *waiter) ask() waitqueue.Step {
	if w.gone {
		w.stage = took
		return waitqueue.Step{Do: waitqueue.Take}
	}
	w.stage = tried
	return waitqueue.Step{Do: waitqueue.Try}
}

// giveUp decides a last time without waiting. A request that is behind others is not admitted before them: if its
// limits would admit it, it is denied by the rule that those wait for, for as long as that may hold them.
func (w *waiter) giveUp() waitqueue.Step {
	w.gone = true
	w.limiter.waiting.mu.Lock()
	w.ahead = w.limiter.waiting.queues.Ahead(&w.queued)
	w.limiter.waiting.mu.Unlock()
	if w.ahead >= 0 {
		w.stage = previews
		return waitqueue.Step{Do: waitqueue.Peek}
	}
	return w.attempt()
}

// end ends the wait of a request that was not decided together with the rules in shadow.
func (w *waiter) end(now int64) waitqueue.Step {
	w.stage = ended
	w.leave(now)
	if len(w.verdict.shadows) == 0 {
		return waitqueue.Step{}
	}
	return waitqueue.Step{Do: waitqueue.Shadow}
}

// again pauses after the store could not decide.
func (w *waiter) again(now int64, cause error) (waitqueue.Step, error) {
	w.paused = min(max(2*w.paused, firstPause), lastPause)
	d := w.paused/2 + rand.N(w.paused/2) //nolint:gosec // it spreads requests
	if !w.waits || d > w.left(now) {
		w.stage = ended
		return waitqueue.Step{}, cause
	}
	w.stage = arrives
	return waitqueue.Step{Do: waitqueue.Pause, Until: now + int64(d)}, nil
}

// follow queues behind older requests, if there are any and there is room for it before its time is over.
func (w *waiter) follow(now int64) (behind, room bool) {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	q := &w.limiter.waiting.queues
	ahead := q.Ahead(&w.queued)
	if ahead < 0 || now >= w.deadline {
		return ahead >= 0, false
	}
	w.keep()
	if w.turn == nil {
		w.turn = make(chan struct{}, 1)
	}
	return true, q.Follow(&w.queued, ahead, now)
}

// keep makes the memory of the keys its own, as queues may outlast the request.
func (w *waiter) keep() {
	if w.queued.Queued() {
		return
	}
	for i := range w.queued.Positions {
		p := &w.queued.Positions[i]
		p.Key.key, p.Key.class = strings.Clone(p.Key.key), strings.Clone(p.Key.class)
	}
}

// deny queues where rules deny, as the verdict says, and leaves all other queues. It reports whether there was room in
// all.
func (w *waiter) deny(now int64) bool {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	v := w.verdict
	for i, r := range w.rules {
		retry := time.Duration(0)
		if d := v.decisionOf(r); !d.Allowed {
			retry = d.RetryAfter
		}
		if r.claims[0].Rule == v.Rule { // whatever the outcomes are, of a failure policy for example
			retry = max(retry, v.Decision.RetryAfter)
		}
		w.queued.Positions[i].Until = 0
		if retry > 0 {
			w.queued.Positions[i].Until = now + int64(retry)
		}
	}
	w.keep()
	return w.limiter.waiting.queues.Deny(&w.queued, now)
}

// release leaves the queues of rules that admit by now, and returns when the next one will.
func (w *waiter) release(now int64) (next int64) {
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	return w.limiter.waiting.queues.Release(&w.queued, now)
}

// leave leaves all queues. Without a queue nothing is to be done, and the mutex is left alone; most
// requests never wait.
func (w *waiter) leave(now int64) {
	if !w.queued.Queued() {
		return
	}
	w.limiter.waiting.mu.Lock()
	defer w.limiter.waiting.mu.Unlock()
	w.limiter.waiting.queues.Leave(&w.queued, now)
}
