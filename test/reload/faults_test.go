package reload_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// What may be wrong with a reload is found, each by itself.
func TestFaultsAreFound(t *testing.T) {
	for _, fault := range []struct {
		name    string
		between func(stint.Store, *run) stint.Store
		swap    func(r *run) func(*rules.Set, []rules.Rule)
		want    string // in what is found
	}{
		{name: "state begins anew with each set", between: forgetting, want: ", expected "},
		{name: "limits are decided one by one", between: oneByOne, want: ", expected "},
		{name: "an admission is lost", between: losing, want: ", expected "},
		{name: "rules are added one after another", swap: halves, want: "not one whole set"},
		{name: "a set comes too late", swap: late, want: "had been put in force before"},
	} {
		t.Run(fault.name, func(t *testing.T) {
			r := newRun(t, small, seedOf(t), memstore.New(memstore.Config{}), fault.between)
			if fault.swap != nil {
				r.swap = fault.swap(r)
			}
			must.Do(t, r.byNumber(small.decisions, small.reloads))
			r.settle(t)
			if err := r.faults.err(); err == nil || !strings.Contains(err.Error(), fault.want) {
				t.Errorf("found: %v; want %q", err, fault.want)
			}
		})
	}
}

// A tampered store does something wrong with operations.
type tampered struct {
	stint.Store
	decide func(ctx context.Context, op stint.Op) (stint.Decision, error)
}

func (s tampered) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	return s.decide(ctx, op)
}

func (s tampered) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return s.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (s tampered) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for i, op := range ops {
		results[i].Decision, results[i].Err = s.decide(ctx, op)
	}
}

// forgetting gives state to a rule of a set, not to the rule.
func forgetting(store stint.Store, r *run) stint.Store {
	var policies sync.Map // by the rule's and the set's number
	type of struct {
		policy *stint.Policy
		number int64
	}
	renamed := func(claim stint.Claim) (stint.Claim, error) {
		key := of{claim.Policy, r.inForce.Load()}
		policy, known := policies.Load(key)
		if !known {
			fresh, err := stint.NewPolicy(fmt.Sprintf("%s.%d", claim.Policy.Name(), key.number), claim.Policy.Limits()...)
			if err != nil {
				return claim, err
			}
			policy, _ = policies.LoadOrStore(key, fresh)
		}
		claim.Policy = policy.(*stint.Policy)
		return claim, nil
	}
	return tampered{store, func(ctx context.Context, op stint.Op) (stint.Decision, error) {
		var err error
		if op.Claim, err = renamed(op.Claim); err != nil {
			return stint.Decision{}, err
		}
		and := make([]stint.Claim, len(op.And))
		for i := range and {
			if and[i], err = renamed(op.And[i]); err != nil {
				return stint.Decision{}, err
			}
		}
		op.And = and
		return store.Decide(ctx, op)
	}}
}

// oneByOne decides each claim by itself.
func oneByOne(store stint.Store, _ *run) stint.Store {
	return tampered{store, func(ctx context.Context, op stint.Op) (stint.Decision, error) {
		var last stint.Decision
		each, first := op.Each, 0
		if each == nil {
			each = make([]stint.Outcome, op.Limits())
		}
		for i := range 1 + len(op.And) {
			one := stint.Op{Verb: op.Verb, Claim: op.Claim}
			if i > 0 {
				one.Claim = op.And[i-1]
			}
			n := one.Policy.Len()
			one.Each = each[first : first+n]
			d, err := store.Decide(ctx, one)
			if err != nil {
				return d, err
			}
			first, last = first+n, d
		}
		return decide.Combine(each[:first], nil, last.At), nil
	}}
}

// losing answers every so many takes without taking.
func losing(store stint.Store, _ *run) stint.Store {
	var asked atomic.Int64
	return tampered{store, func(ctx context.Context, op stint.Op) (stint.Decision, error) {
		const one = 50
		if asked.Add(1)%one == 0 {
			op.Verb = stint.VerbPeek
		}
		return store.Decide(ctx, op)
	}}
}

// halves leaves the second half of the IDs as it was in every other set.
func halves(r *run) func(*rules.Set, []rules.Rule) {
	return func(set *rules.Set, list []rules.Rule) {
		const half = "k"
		if r.plan.number%2 == 0 {
			list = slices.DeleteFunc(list, func(rule rules.Rule) bool { return rule.ID > half })
			for _, rule := range r.limiter.Set().Rules() {
				if rule.ID > half {
					list = append(list, rule)
				}
			}
			set, _ = rules.Compile(list, rules.Options{})
		}
		r.limiter.Swap(set)
	}
}

// late puts every other set in force with the next one only.
func late(r *run) func(*rules.Set, []rules.Rule) {
	return func(set *rules.Set, _ []rules.Rule) {
		if r.plan.number%2 == 0 {
			r.limiter.Swap(set)
		}
	}
}
