package rls_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/storetest"
)

// A modelled limit is one of the test's configuration.
type modelled struct {
	key           string
	shadow, quota bool
	policy        *stint.Policy // nil for a ban
}

// A model decides as docs/envoy.md says of the atomic accounting, by the exact oracle alone.
type model struct {
	oracle *oracle.Oracle
	limits []modelled
}

// An asked is a descriptor of a request, with its model.
type asked struct {
	limit *modelled
	value string
	hits  int64
}

func (a *asked) op(verb stint.Verb) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: a.value, Policy: a.limit.policy, Permits: max(a.hits, 1)}}
}

// decide says what a request is told: whether it is denied, and of each descriptor whether it exceeds.
func (m *model) decide(list []asked, now stint.Instant) (denied bool, exceeds []bool) {
	exceeds = make([]bool, len(list))
	fits := func(o *oracle.Oracle, i int) bool { // it takes if it fits, and says what is left
		a := &list[i]
		if a.limit.policy == nil {
			return false
		}
		verb := stint.VerbTake
		if a.hits == 0 {
			verb = stint.VerbPeek
		}
		return o.Decide(a.op(verb), now).Decision.Allowed
	}
	// All of one state are taken together, as one cost.
	merged := map[string]int64{}
	for i := range list {
		if a := &list[i]; a.hits > 0 && !a.limit.shadow {
			merged[a.limit.key+"="+a.value] += a.hits
		}
	}
	admits := func(o *oracle.Oracle, i int) bool {
		a := list[i]
		if n := merged[a.limit.key+"="+a.value]; a.hits > 0 && !a.limit.shadow {
			a.hits = n
		}
		if a.limit.policy == nil {
			return false
		}
		return o.Decide(a.op(stint.VerbPeek), now).Decision.Allowed
	}
	quotas, left := 0, 0
	for i := range list {
		if list[i].limit.shadow {
			continue
		}
		exceeds[i] = !admits(m.oracle, i)
		switch {
		case !list[i].limit.quota:
			denied = denied || exceeds[i]
		default:
			quotas++
			if !exceeds[i] {
				left++
			}
		}
	}
	denied = denied || quotas > 0 && left == 0
	for i := range list {
		switch {
		case list[i].limit.shadow:
			exceeds[i] = !fits(m.oracle, i)
		case !denied && !exceeds[i] && list[i].hits > 0:
			fits(m.oracle, i)
		}
	}
	return denied, exceeds
}

// remaining is what is left of a limit for a value now.
func (m *model) remaining(a *asked, now stint.Instant) int64 {
	if a.limit.policy == nil {
		return 0
	}
	d := m.oracle.Decide(stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: a.value, Policy: a.limit.policy, Permits: 1}}, now).Decision
	return d.Remaining
}

// Random requests in the atomic accounting are admitted and charged as the exact oracle says: nothing of a denied one,
// all of an admitted one, and limits in shadow mode each by itself.
func TestAtomicAgainstTheOracle(t *testing.T) {
	requests := 200_000
	if testing.Short() {
		requests = 20_000
	}
	random := rand.New(rand.NewPCG(3, 5))
	clock := storetest.NewClock(1_790_000_050_500_000)
	m := &model{oracle: oracle.New(0)}
	domain := &domains.Domain{Name: "d"}
	for i, r := range []domains.RateLimit{
		{RequestsPerUnit: 5, Unit: domains.Second},
		{RequestsPerUnit: 20, Unit: domains.Minute},
		{RequestsPerUnit: 7, Unit: domains.Second, Algorithm: stint.AlgorithmTokenBucket},
		{RequestsPerUnit: 6, Unit: domains.Second, Algorithm: stint.AlgorithmSlidingWindowLog},
		{RequestsPerUnit: 9, Unit: domains.Second, Algorithm: stint.AlgorithmSlidingWindowCounter},
		{RequestsPerUnit: 0, Unit: domains.Hour},
		{RequestsPerUnit: 30, Unit: domains.Hour, Calendar: true},
		{RequestsPerUnit: 4, Unit: domains.Second},
		{RequestsPerUnit: 8, Unit: domains.Second},
	} {
		l := modelled{key: fmt.Sprint("k", i), shadow: i == 3, quota: i >= 7}
		if r.RequestsPerUnit > 0 {
			limit := must.Get(r.Limit(1))(t)
			l.policy = must.Get(stint.NewPolicy(l.key, limit))(t)
		}
		m.limits = append(m.limits, l)
		domain.Descriptors = append(domain.Descriptors, domains.Descriptor{Key: l.key, RateLimit: &r, ShadowMode: l.shadow, QuotaMode: l.quota})
	}
	s, err := rls.New(rls.Config{Store: memstore.New(memstore.Config{Now: clock.Now})})
	if err == nil {
		err = s.Swap([]*domains.Domain{domain})
	}
	if err != nil {
		t.Fatal(err)
	}
	codes := map[bool]int{}
	for n := range requests {
		clock.Advance(time.Duration(random.IntN(100_000)) * time.Microsecond)
		r := &pb.RateLimitRequest{Domain: "d"}
		var list []asked
		for range 1 + random.IntN(4) {
			at := random.IntN(len(m.limits))
			if at == 5 && random.IntN(10) > 0 {
				at = 0 // a ban denies all that is with it
			}
			a := asked{&m.limits[at], fmt.Sprint(random.IntN(3)), int64(random.IntN(6))}
			list = append(list, a)
			r.Descriptors = append(r.Descriptors, costing(a.limit.key+"="+a.value, a.hits))
		}
		got := must.Get(s.ShouldRateLimit(t.Context(), r))(t)
		denied, exceeds := m.decide(list, clock.Instant())
		codes[denied]++
		if (got.OverallCode == over) != denied {
			t.Fatalf("request %d, %v: %v, want denied %v", n, r.Descriptors, got, denied)
		}
		for i := range list {
			a := &list[i]
			status := got.Statuses[i]
			if shown := exceeds[i] && !a.limit.shadow && !a.limit.quota; (status.Code == over) != shown {
				t.Fatalf("request %d, %v, descriptor %d: %v, want exceeded %v", n, r.Descriptors, i, status, shown)
			}
			if last(list, i) && !mixed(list, a) && int64(status.LimitRemaining) != m.remaining(a, clock.Instant()) {
				t.Fatalf("request %d, %v, descriptor %d: %v, want %d left", n, r.Descriptors, i, status, m.remaining(a, clock.Instant()))
			}
		}
	}
	if codes[true] < requests/10 || codes[false] < requests/10 {
		t.Errorf("of %d requests %d are denied", requests, codes[true])
	}
}

// last reports whether no later descriptor is about the same state.
func last(list []asked, i int) bool {
	for _, later := range list[i+1:] {
		if later.limit == list[i].limit && later.value == list[i].value {
			return false
		}
	}
	return true
}

// mixed reports whether a state is looked at and taken from in one request: then the look is before the taking.
func mixed(list []asked, a *asked) bool {
	looks, takes := false, false
	for i := range list {
		if o := &list[i]; o.limit == a.limit && o.value == a.value {
			looks, takes = looks || o.hits == 0, takes || o.hits > 0
		}
	}
	return looks && takes
}
