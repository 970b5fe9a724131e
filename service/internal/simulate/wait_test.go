package simulate_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

// TestWaitsAsEnforceDoes has a rule hold random crowds by package enforce, in the time of a synctest bubble, and by the
// simulation. Both admit the same requests after the same waits.
func TestWaitsAsEnforceDoes(t *testing.T) {
	held, denied := 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
		wait := rules.Rule{ID: "wait", OnExceed: rules.Wait, MaxWait: ms(5+rng.IntN(400)) + 500*time.Microsecond, MaxWaiters: 1 + rng.IntN(9)}
		wait.Scope = []string{[]string{rules.PerIP, rules.Global}[rng.IntN(2)]}
		switch rng.IntN(3) {
		case 0:
			wait.Limits = []stint.Limit{stint.TokenBucket(1+rng.Int64N(3), stint.Every(ms(1+rng.IntN(60))))}
		case 1:
			wait.Limits = []stint.Limit{stint.SlidingWindowLog(1+rng.Int64N(4), ms(20+rng.IntN(100))).CountingDenied()}
		default:
			wait.Limits = []stint.Limit{stint.LeakyBucket(1+rng.Int64N(9), stint.Every(ms(1+rng.IntN(60))))}
		}
		reject := rules.Rule{ID: "reject", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(10, 10*time.Second)}}
		list := []rules.Rule{wait, reject}[:1+rng.IntN(2)]
		arrivals := make([]time.Duration, 60)
		clients := make([]string, len(arrivals))
		for i := range arrivals { // each at a microsecond of its own
			arrivals[i] = ms(rng.IntN(500)) + time.Duration(i)*3*time.Microsecond
			clients[i] = fmt.Sprint(rng.IntN(3))
		}
		want := enforced(t, list, arrivals, clients)
		got := make([]answer, len(arrivals))
		s := simulation(t, func(v *simulate.Verdict) {
			got[v.Line] = answer{v.Allowed, v.Waited + v.Decision.Delay}
		}, list...)
		order := make([]int, len(arrivals))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(arrivals[a], arrivals[b]) })
		for _, i := range order {
			ev := event(year2000+stint.Instant(arrivals[i].Microseconds()), clients[i])
			ev.Line = int64(i)
			must.Do(t, s.Add(ev))
		}
		finish(t, s)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("seed %d, request %d of client %s at %s: the simulation says %+v, enforce %+v; rules %+v", seed, i, clients[i], arrivals[i], got[i], want[i], list)
			}
			if got[i].waited > 0 {
				held++
			}
			if !got[i].allowed {
				denied++
			}
		}
	}
	if held < 1000 || denied < 1000 {
		t.Errorf("%d held and %d denied: the crowds show little", held, denied)
	}
}

// year2000 is when a bubble's time begins.
const year2000 = stint.Instant(946_684_800_000_000)

type answer struct {
	allowed bool
	waited  time.Duration
}

func enforced(t *testing.T, list []rules.Rule, arrivals []time.Duration, clients []string) []answer {
	t.Helper()
	answers := make([]answer, len(arrivals))
	synctest.Test(t, func(t *testing.T) {
		limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: candidate(t, "", list...).Set})
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range arrivals {
			all.Go(func() {
				<-time.After(arrivals[i])
				var v enforce.Verdict
				if err := limiter.Decide(t.Context(), &rules.Request{Path: "/", Address: clients[i]}, &v); err != nil {
					t.Error(err)
				}
				answers[i] = answer{v.Allowed, v.Held}
			})
		}
		all.Wait()
	})
	return answers
}

// An override ends by the time of the log.
func TestOverrideEndsInTheLog(t *testing.T) {
	rule := rules.Rule{
		ID: "a", Scope: []string{rules.PerUser}, Missing: rules.MissingDeny, Limits: []stint.Limit{stint.FixedWindow(1, 24*time.Hour)},
		Overrides: []rules.Override{{Key: "ann", Unlimited: true, Until: (year2000 + 2_000_000).Time()}},
	}
	var got []bool
	s := simulation(t, func(v *simulate.Verdict) { got = append(got, v.Allowed) }, rule)
	for i := range stint.Instant(6) {
		ev := event(year2000+i*500_000, "x")
		ev.Request.User = "ann"
		must.Do(t, s.Add(ev))
	}
	finish(t, s)
	if want := []bool{true, true, true, true, true, false}; !slices.Equal(got, want) {
		t.Errorf("admitted %v, want %v", got, want)
	}
}
