package reload_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/rules"
)

// A caller has requests decided, one after another, and knows what the decisions must be.
type caller struct {
	*visitor
	run     *run
	oracle  *oracle.Oracle
	refusal stint.Claim // of which nothing is ever admitted
	verdict enforce.Verdict
	matches rules.Matches
	seen    seen

	n      figures
	decide []time.Duration // samples
	match  []time.Duration
}

// figures are what callers count.
type figures struct{ decided, admitted, denied, unasked, shared, shadowed, states int64 }

// sampling is of how many requests one is timed.
const sampling = 16

func newCaller(r *run, seed uint64, number int) (*caller, error) {
	policy, err := stint.NewPolicy("", stint.FixedWindow(1, time.Second))
	if err != nil {
		return nil, err
	}
	return &caller{
		visitor: r.site.visitor(seed, number), run: r, oracle: oracle.New(0),
		refusal: stint.Claim{Key: "nobody", Policy: policy, Permits: 2},
	}, nil
}

// ask has one request decided and checks what came of it.
func (c *caller) ask() error {
	r := c.request()
	c.seen = seen{c.seen.ops[:0], c.seen.results[:0]}
	ctx := seeing(context.Background(), &c.seen)
	least := c.run.inForce.Load()
	start := time.Now()
	if err := c.run.limiter.Decide(ctx, &r.Request, &c.verdict); err != nil {
		return err
	}
	if c.n.decided++; c.n.decided%sampling == 0 {
		c.decide = append(c.decide, time.Since(start))
		start = time.Now()
		if err := c.run.limiter.Set().Match(&r.Request, &c.matches); err != nil {
			return err
		}
		c.match = append(c.match, time.Since(start))
	}
	number, err := numberOf(c.verdict.Matched)
	if err != nil {
		return err
	}
	if int64(number) < least {
		return fmt.Errorf("decided by set %d, and set %d had been put in force before", number, least)
	}
	v, known := c.run.versions.Load(number)
	if !known {
		return fmt.Errorf("decided by set %d, which was not put in force yet", number)
	}
	e := v.(*version).expect(r)
	if err := c.judge(e); err != nil {
		return fmt.Errorf("%s %s%s by set %d: %w", r.Method, r.Host, r.Path, number, err)
	}
	return nil
}

// judge compares the verdict with what is expected.
func (c *caller) judge(e *expectation) error {
	v := &c.verdict
	if !slices.Equal(v.Matched, e.matched) {
		return fmt.Errorf("matched are %v, want %v", v.Matched, e.matched)
	}
	if e.decider != "" {
		c.n.unasked++
		if v.Allowed || v.Rule == nil || v.Rule.ID != e.decider || v.Outcome != e.standing || len(c.seen.ops) > 0 || !slices.Equal(v.Shadowed, e.shadowed) {
			return fmt.Errorf("%v by %v, %v, shadowed %v, after %d operations; want a denial by %s, %v, shadowed %v",
				v.Allowed, v.Rule, v.Outcome, v.Shadowed, len(c.seen.ops), e.decider, e.standing, e.shadowed)
		}
		return nil
	}
	ops, results := c.seen.ops, c.seen.results
	if len(e.claims) > 0 {
		if len(ops) == 0 {
			return fmt.Errorf("the store was not asked for %d claims", len(e.claims))
		}
		if err := c.together(e.claims, &ops[0], results[0]); err != nil {
			return err
		}
		ops, results = ops[1:], results[1:]
	} else if v.Rule != nil || v.Claim.Policy != nil {
		return fmt.Errorf("decided by %s, which claims nothing", v.Rule.ID)
	}
	if len(ops) != len(e.shadows) {
		return fmt.Errorf("%d operations for %d rules in shadow", len(ops), len(e.shadows))
	}
	shadowed := e.shadowed
	for i, due := range e.shadows {
		if err := c.alone(due, &ops[i], results[i]); err != nil {
			return err
		}
		if !results[i].Decision.Allowed {
			c.n.shadowed++
			shadowed = append(shadowed, due.rule.ID)
		}
	}
	if !slices.Equal(v.Shadowed, shadowed) {
		return fmt.Errorf("shadowed are %v, want %v", v.Shadowed, shadowed)
	}
	if v.Allowed {
		c.n.admitted++
	} else {
		c.n.denied++
	}
	return nil
}

// alone checks what a rule in shadow was told.
func (c *caller) alone(due due, op *stint.Op, result stint.Result) error {
	if result.Err != nil {
		return result.Err
	}
	if len(op.And) > 0 || !alike(op.Claim, due.claim) {
		return fmt.Errorf("rule %s in shadow claimed %+v", due.rule.ID, op.Claim)
	}
	_, err := c.oracle.Check(stint.Op{Verb: op.Verb, Claim: due.claim}, result.Decision.At, oracle.Answer{Decision: result.Decision})
	return err
}

// together checks what the rules were told that decide together, and what of it the verdict says.
func (c *caller) together(dues []due, op *stint.Op, result stint.Result) error {
	if result.Err != nil {
		return result.Err
	}
	if len(op.And)+1 != len(dues) || op.Verb != stint.VerbTake {
		return fmt.Errorf("the store was asked for a %v of %d claims, want %d", op.Verb, len(op.And)+1, len(dues))
	}
	d := result.Decision
	own, outcomes := make([]stint.Claim, 0, len(dues)), make([]stint.Outcome, 0, len(op.Each))
	refused, first := false, 0
	for i := range dues {
		claim := op.Claim
		if i > 0 {
			claim = op.And[i-1]
		}
		if !alike(claim, dues[i].claim) {
			return fmt.Errorf("rule %s claimed %+v", dues[i].rule.ID, claim)
		}
		n := claim.Policy.Len()
		each := op.Each[first : first+n]
		if shared := dues[i].shared; shared >= 0 {
			if err := c.run.tallies[shared].note(each[0], d.Allowed); err != nil {
				return err
			}
			refused = refused || !each[0].Allowed
			c.n.shared++
		} else {
			own, outcomes = append(own, dues[i].claim), append(outcomes, each...)
			c.n.states += int64(n)
		}
		if at := int(d.Index) - first; at >= 0 && at < n {
			if err := c.named(&dues[i], claim, each, d, at); err != nil {
				return err
			}
		}
		first += n
	}
	if len(own) == len(dues) {
		_, err := c.oracle.Check(stint.Op{Verb: op.Verb, Claim: own[0], And: own[1:]}, d.At, oracle.Answer{Decision: d, Each: outcomes})
		return err
	}
	return c.apart(own, outcomes, refused, d)
}

// apart checks what the caller's own rules were told beside a shared one. To the model, a denial by that is one
// by a claim that nothing admits.
func (c *caller) apart(own []stint.Claim, outcomes []stint.Outcome, refused bool, d stint.Decision) error {
	if refused {
		own = append(own, c.refusal)
		outcomes = append(outcomes, stint.Outcome{Limit: 1, Remaining: 1, RetryAfter: stint.Never})
	}
	if len(own) == 0 {
		return nil
	}
	combined := decide.Combine(outcomes, nil, d.At)
	if combined.Allowed != d.Allowed {
		return fmt.Errorf("%+v of limits that say %+v", d, outcomes)
	}
	_, err := c.oracle.Check(stint.Op{Verb: stint.VerbTake, Claim: own[0], And: own[1:]}, d.At, oracle.Answer{Decision: combined, Each: outcomes})
	return err
}

// named checks that the verdict names the rule that decided.
func (c *caller) named(due *due, claim stint.Claim, each []stint.Outcome, d stint.Decision, at int) error {
	v := &c.verdict
	d.Index = int16(at)
	if v.Allowed != d.Allowed || v.Rule == nil || v.Rule.ID != due.rule.ID || v.Claim != claim || v.Decision != d || !slices.Equal(v.Each, each) {
		return fmt.Errorf("the verdict is %+v of %+v by %v, want %+v of %+v by rule %s", v.Decision, v.Claim, v.Rule, d, claim, due.rule.ID)
	}
	return nil
}

// alike reports whether the claims are the same, for limits of one name.
func alike(a, b stint.Claim) bool {
	same := a.Key == b.Key && a.Permits == b.Permits && a.Policy.Name() == b.Policy.Name() && a.Policy.Len() == b.Policy.Len()
	for i := 0; same && i < a.Policy.Len(); i++ {
		same = a.Policy.Limit(i) == b.Policy.Limit(i)
	}
	return same
}
