package clienttest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

// TestWhatCannotBeAsked: each refusal says what is not supported, and nothing is
// sent.
func TestWhatCannotBeAsked(t *testing.T) {
	pair := []stint.Limit{stint.FixedWindow(5, time.Minute), stint.FixedWindow(2, time.Second).Named("x")}
	log := stint.SlidingWindowLog(5, time.Minute)
	named := func(limits ...stint.Limit) *stint.Policy { return policyOf(t, "p", limits...) }
	plain := bucket(t)
	and := operation(stint.VerbTake, "k", plain, 1)
	and.And = []stint.Claim{{Key: "l", Policy: plain, Permits: 1}}
	each := func(verb stint.Verb, p *stint.Policy) stint.Op {
		op := operation(verb, "k", p, 1)
		op.Each = make([]stint.Outcome, 2)
		return op
	}
	url := serve(t, storetest.NewClock(start), nil) + "/nowhere" // where everything is a 404
	c := open(t, url, client.Options{})
	for name, row := range map[string]struct {
		op   stint.Op
		want string
	}{
		"two keys":              {and, "claims is 2; allowed: 1: "},
		"try, counting denied":  {operation(stint.VerbTry, "k", named(log.CountingDenied()), 1), "verb is try; allowed: take, "},
		"each of 2 limits":      {each(stint.VerbTake, named(pair...)), "each is "},
		"each of a reset":       {each(stint.VerbReset, plain), "each is "},
		"not the default":       {operation(stint.VerbTake, "k", policyOf(t, "", stint.TokenBucket(7, stint.PerSecond(1))), 1), `policy is "a TOKEN_BUCKET of 7 without a name`},
		"2 limits without name": {operation(stint.VerbTake, "k", policyOf(t, "", pair...), 1), `policy is "one of 2 limits without a name"`},
		"key not UTF-8":         {operation(stint.VerbTake, "k\xff", plain, 1), "key is "},
		"key with a control":    {operation(stint.VerbTake, "k\u0085", plain, 1), "key is "},
		"no key":                {operation(stint.VerbTake, "", plain, 1), "key is "},
		"no policy":             {operation(stint.VerbTake, "k", nil, 1), "policy is "},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Decide(t.Context(), row.op)
			if !errors.Is(err, stint.ErrInvalid) || !strings.HasPrefix(err.Error(), "stint: "+row.want) {
				t.Errorf("Decide: %v, want ErrInvalid beginning with %q", err, row.want)
			}
			results := make([]stint.Result, 1)
			c.DecideAll(t.Context(), []stint.Op{row.op}, results)
			if !errors.Is(results[0].Err, stint.ErrInvalid) {
				t.Errorf("DecideAll: %+v, want ErrInvalid", results[0])
			}
		})
	}
}

// TestTheServicesLimitsDecide: what the program's policy says is only its name.
func TestTheServicesLimitsDecide(t *testing.T) {
	theirs := policyOf(t, "push", stint.SlidingWindowLog(3, time.Minute), stint.TokenBucket(2, stint.PerHour(1)))
	c := openPolicies(t, theirs)
	ours := policyOf(t, "push", stint.FixedWindow(9, time.Minute), stint.TokenBucket(50, stint.PerSecond(50)), stint.TokenBucket(2, stint.PerHour(9)).Named("x"))
	d, err := c.Decide(t.Context(), operation(stint.VerbTake, "k", ours, 2))
	if err != nil || !d.Allowed || d.Limit != 2 || d.Remaining != 0 || d.Index != 2 {
		t.Errorf("a take: %+v, %v, want limit 2, nothing left, index 2 by algorithm and capacity", d, err)
	}
	ours = policyOf(t, "push", stint.FixedWindow(9, time.Minute), stint.TokenBucket(50, stint.PerSecond(50)))
	if d, err = c.Decide(t.Context(), operation(stint.VerbTake, "k", ours, 1)); err != nil || d.Allowed || d.Limit != 2 || d.Index != 1 || d.RetryAfter != time.Hour {
		t.Errorf("another: %+v, %v, want a denial for an hour, index 1 by algorithm", d, err)
	}
	ours = policyOf(t, "push", stint.FixedWindow(9, time.Minute), stint.LeakyBucket(50, stint.PerSecond(50)))
	if d, err = c.Decide(t.Context(), operation(stint.VerbTake, "k", ours, 1)); err != nil || d.Allowed || d.Index != 0 {
		t.Errorf("another: %+v, %v, want a denial, index 0 as no limit is like it", d, err)
	}
}

// TestBatches: takes travel a thousand at a time; what is at fault in
// between is found, and its neighbours are decided.
func TestBatches(t *testing.T) {
	policy, other := policyOf(t, "p", stint.FixedWindow(1500, time.Hour)), policyOf(t, "unknown", stint.FixedWindow(5, time.Hour))
	c := openPolicies(t, policy)
	ops := make([]stint.Op, 2500)
	for i := range ops {
		ops[i] = operation(stint.VerbTake, "k", policy, 1)
	}
	faulty := map[int]bool{0: true, 700: true, 1234: true, 1235: true, 2499: true}
	for i := range faulty {
		ops[i].Permits = 1501 // which the service refuses
	}
	ops[1].Policy, faulty[1] = other, true
	ops[2].Key, faulty[2] = "\x00", true
	ops[2000] = operation(stint.VerbPeek, "k", policy, 1)
	results := make([]stint.Result, len(ops))
	c.DecideAll(t.Context(), ops, results)
	left := int64(1500)
	for i, r := range results {
		if faulty[i] {
			if !errors.Is(r.Err, stint.ErrInvalid) {
				t.Fatalf("operation %d: %+v, want ErrInvalid", i, r)
			}
			continue
		}
		allowed := left > 0
		if allowed && i != 2000 {
			left--
		}
		if r.Err != nil || r.Decision.Allowed != allowed || r.Decision.Remaining != left {
			t.Fatalf("operation %d: %+v, want allowed %t, %d left", i, r, allowed, left)
		}
	}
	c.DecideAll(t.Context(), nil, nil)
}

// TestLongestBatch: a batch of the longest keys fits what the service reads, and its
// answer what the client reads.
func TestLongestBatch(t *testing.T) {
	name := strings.Repeat(`"`, bounds.MaxNameBytes-len("policy/"))
	policy := policyOf(t, name, stint.FixedWindow(5, time.Hour))
	c := open(t, serve(t, storetest.NewClock(start), withPolicies(policy)), client.Options{Timeout: time.Minute})
	requests := make([]api.Request, bounds.MaxBatch)
	for _, char := range []string{`"`, "<", "\u2028"} {
		key := strings.Repeat(char, bounds.MaxKeyBytes/len(char))
		for i := range requests {
			requests[i] = api.Request{Key: key, Policy: name}
		}
		answers, err := c.CheckAll(t.Context(), requests)
		if err != nil {
			t.Errorf("keys of %q: %v", char, err)
		}
		for i, a := range answers {
			if a.Key != key || a.Allowed != (i < 5) {
				t.Fatalf("keys of %q: request %d: %+v", char, i, a)
			}
		}
	}
}

// TestWaitLooksFirst: a turn of a leaky bucket that would come too late is not taken.
func TestWaitLooksFirst(t *testing.T) {
	policy := policyOf(t, "leak", stint.LeakyBucket(3, stint.PerHour(1)))
	c := openPolicies(t, policy)
	limiter := must.Get(stint.NewLimiter(stint.Config{Store: c, Policy: policy}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if d, err := limiter.Wait(ctx, "k"); err != nil || d.Remaining != 2 {
		t.Fatalf("the first turn: %+v, %v", d, err)
	}
	if d, err := limiter.Wait(ctx, "k"); !errors.Is(err, stint.ErrDeadline) || d.Delay != time.Hour || d.Remaining != 2 {
		t.Errorf("the second, in an hour: %+v, %v, want ErrDeadline", d, err)
	}
	if d, err := limiter.Peek(t.Context(), "k"); err != nil || d.Remaining != 2 {
		t.Errorf("after the wait that was too long: %+v, %v, want one turn taken", d, err)
	}
}

// TestConcurrentCallers: exactly the limit is admitted.
func TestConcurrentCallers(t *testing.T) {
	const callers, each, quota = 16, 30, 250
	policy := policyOf(t, "p", stint.FixedWindow(quota, time.Hour))
	c := openPolicies(t, policy)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				if d, err := c.Decide(t.Context(), operation(stint.VerbTake, "k", policy, 1)); err != nil {
					t.Error(err)
				} else if d.Allowed {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != quota {
		t.Errorf("%d of %d were admitted, want %d", n, callers*each, quota)
	}
}

// TestSources: what a failure policy decided says so.
func TestSources(t *testing.T) {
	degraded := `{"allowed":true,"degraded":true,"key":"k","algorithm":"TOKEN_BUCKET","limit":100,"remaining":100,"source":"failure-policy"}`
	never := `{"allowed":false,"key":"k","algorithm":"TOKEN_BUCKET","limit":100,"retryAfterSeconds":-1,"retryAfterMicros":-1,"source":"denial-cache"}`
	policy := bucket(t)
	for text, want := range map[string]stint.Decision{
		degraded: {Allowed: true, Degraded: true, Source: stint.SourceFailurePolicy, Limit: 100, Remaining: 100},
		never:    {Source: stint.SourceDenialCache, Limit: 100, RetryAfter: stint.Never},
	} {
		c := open(t, handle(t, answer(map[bool]int{true: 200, false: 429}[want.Allowed], "application/json", text)).URL, client.Options{})
		if d, err := c.Decide(t.Context(), operation(stint.VerbTake, "k", policy, 1)); err != nil || d != want {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
	if fmt.Sprint(stint.SourceFailurePolicy+1) != "unknown" {
		t.Error("there is a source that the client does not look for")
	}
}
