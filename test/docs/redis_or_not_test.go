package docs_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// What processes admit that share nothing: the table of docs/redis-or-not.md.
func TestDivided(t *testing.T) {
	page := pages(t)["docs/redis-or-not.md"]
	random := rand.New(rand.NewPCG(1, 2))
	turns := func(request, processes int) int { return request % processes }
	one := func(int, int) int { return 0 }
	chance := func(_, processes int) int { return random.IntN(processes) }
	for _, c := range []struct {
		what      string
		processes int
		limit     int64 // of each process
		requests  int
		process   func(request, processes int) int
		intended  int
	}{
		{"in turn", 4, 25, 100, turns, 100},
		{"at random", 4, 25, 100, chance, 100},
		{"on one connection that stays open", 4, 25, 100, one, 100},
		{"at random, 8 processes in place of 4, each still with 25", 8, 25, 1000, chance, 100},
		{"in turn, each process with the whole limit", 4, 100, 1000, turns, 100},
		{"in turn, 10 permits over 8 processes, 2 each", 8, 2, 100, turns, 10},
		{"in turn, 10 permits over 8 processes, 1 each", 8, 1, 100, turns, 10},
	} {
		limiters := make([]*stint.Limiter, c.processes)
		for i := range limiters {
			var err error
			if limiters[i], err = stint.New(stillStore(), "api", stint.SlidingWindowLog(c.limit, time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		admitted := 0
		for request := range c.requests {
			d := must.Get(limiters[c.process(request, c.processes)].Allow(t.Context(), "ann"))(t)
			if d.Allowed {
				admitted++
			}
		}
		if row := fmt.Sprintf("| %s | %d | %d | %d |", c.what, c.requests, c.intended, admitted); !strings.Contains(page, row) {
			t.Errorf("the page has no row %s", row)
		}
	}
}

func Example_regions() {
	ctx := context.Background()
	regions := map[string]*stint.Limiter{}
	for _, region := range []string{"eu", "us"} {
		var err error
		if regions[region], err = stint.New(stillStore(), "api", stint.TokenBucket(100, stint.PerSecond(10))); err != nil {
			fmt.Println(err)
			return
		}
	}
	homeOf := func(user string) string { return map[string]string{"ann": "eu", "bob": "us"}[user] }
	for _, user := range []string{"ann", "bob", "ann"} {
		limiter := regions[homeOf(user)] // "eu" or "us": the same in every region
		decision := must.Get(limiter.Allow(ctx, user))(example{})
		fmt.Println(user, decision.Remaining)
	}
	// Output:
	// ann 99
	// bob 99
	// ann 98
}
