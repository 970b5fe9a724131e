package enforce_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/rules"
)

// A visit is one request of a crowd. Times count from the crowd's start.
type visit struct {
	request rules.Request
	at      time.Duration
	leaves  time.Duration // how long after it came it is cancelled; 0: never
	clients []string      // whom the rules count, one for each rule that matches
	bound   time.Duration // the least max_wait of these; 0: it is not to be held

	came    bool
	ended   bool
	end     time.Duration
	allowed bool
	err     error
}

// A crowd is requests for which random rules wait. All cost one permit. Limits admit at whole
// milliseconds after some request came or after the epoch; requests come at other microseconds, each at its own,
// and end by themselves at others yet.
type crowd struct {
	t       *testing.T
	limiter *enforce.Limiter
	rules   []rules.Rule
	visits  []*visit
	start   time.Time
	mu      sync.Mutex
}

// newCrowd makes a crowd by chance.
func newCrowd(t *testing.T, chance *rand.Rand) *crowd {
	c := &crowd{t: t}
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for i := range 2 + chance.IntN(3) {
		limit := stint.TokenBucket(1+chance.Int64N(3), stint.Every(ms(1+chance.IntN(60))))
		if chance.IntN(4) == 0 {
			limit = stint.FixedWindow(1+chance.Int64N(4), ms(20+chance.IntN(100)))
		}
		r := waiting(fmt.Sprint("r", i), ms(5+chance.IntN(400))+500*time.Microsecond, 1+chance.IntN(12), limit)
		if chance.IntN(2) == 0 {
			r.Scope = []string{rules.Global}
		}
		if chance.IntN(3) == 0 {
			r.Match.Paths = []string{"/x"}
		}
		c.rules = append(c.rules, r)
	}
	addresses := 1 + chance.IntN(4)
	for i := range 60 {
		v := &visit{at: ms(chance.IntN(500)) + time.Duration(i+1)*time.Microsecond, bound: bounds.MaxWaitLimit}
		v.request = rules.Request{Path: []string{"/x", "/y"}[chance.IntN(2)], Address: fmt.Sprint(chance.IntN(addresses))}
		if chance.IntN(5) == 0 {
			v.leaves = ms(chance.IntN(100)) + 300*time.Microsecond
		}
		for i, r := range c.rules {
			if len(r.Match.Paths) > 0 && r.Match.Paths[0] != v.request.Path {
				continue
			}
			client := fmt.Sprint(i)
			if r.Scope[0] == rules.PerIP {
				client += " of " + v.request.Address
			}
			v.clients, v.bound = append(v.clients, client), min(v.bound, r.MaxWait)
		}
		if chance.IntN(6) == 0 {
			v.bound = 0
		}
		c.visits = append(c.visits, v)
	}
	slices.SortFunc(c.visits, func(a, b *visit) int { return cmp.Compare(a.at, b.at) })
	c.limiter, _ = newLimiter(t, c.rules...)
	c.start = time.Now()
	return c
}

func (c *crowd) now() time.Duration { return time.Since(c.start) }

// come lets a visit's request be decided.
func (c *crowd) come(v *visit) {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	if v.leaves > 0 {
		defer time.AfterFunc(v.leaves, cancel).Stop()
	}
	var verdict enforce.Verdict
	decide := c.limiter.Decide
	if v.bound == 0 {
		decide = c.limiter.DecideNow
	}
	err := decide(ctx, &v.request, &verdict)
	c.mu.Lock()
	v.ended, v.end, v.allowed, v.err = true, c.now(), verdict.Allowed, err
	c.mu.Unlock()
	if err != nil || v.allowed {
		return
	}
	<-time.After(100 * time.Nanosecond) // a request whose turn was at that moment has taken it, and the limits are the same
	if !c.denies(v, verdict.Rule.ID) {
		c.t.Errorf("at %s %v was denied by rule %s, which admits", v.end, v.clients, verdict.Rule.ID)
	}
}

// denies reports whether a rule denies a request now, or with "", whether any does.
func (c *crowd) denies(v *visit, id string) bool {
	x, err := c.limiter.Explain(context.Background(), &v.request)
	if err != nil {
		c.t.Error(err)
		return false
	}
	return slices.ContainsFunc(x.Rules, func(r enforce.Explained) bool {
		return (id == "" || r.Rule.ID == id) && r.Claim.Policy != nil && !r.Decision.Allowed
	})
}

// check checks, while nothing moves, that every request that is held is held by limits that deny it.
func (c *crowd) check() {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.visits {
		if v.came && !v.ended && !c.denies(v, "") {
			c.t.Errorf("at %s %v, who came at %s, is held by rules that all admit", c.now(), v.clients, v.at)
		}
	}
}

// run lets all come, and looks all the time.
func (c *crowd) run() {
	var all sync.WaitGroup
	for _, v := range c.visits {
		for c.now() < v.at {
			<-time.After(min(v.at-c.now(), 1700*time.Microsecond))
			c.check()
		}
		v.came = true
		all.Go(func() { c.come(v) })
		c.check()
	}
	for c.now() < time.Second {
		if c.limiter.Queues() == 0 {
			break
		}
		<-time.After(1700 * time.Microsecond)
		c.check()
	}
	all.Wait()
	if n := c.limiter.Queues(); n > 0 {
		c.t.Errorf("%d lines are left when all are gone", n)
	}
}

// checkEnds checks that everybody's wait ended in time, and why.
func (c *crowd) checkEnds() {
	for _, v := range c.visits {
		took := v.end - v.at
		gone := v.leaves > 0 && took == v.leaves
		if took > v.bound || gone != errors.Is(v.err, context.Canceled) || !gone && v.err != nil {
			c.t.Errorf("%v, who might wait %s and left after %s, ended after %s: %v", v.clients, v.bound, v.leaves, took, v.err)
		}
	}
}

// checkOrder checks that nobody was admitted before an earlier one who waited for no other rules.
func (c *crowd) checkOrder() {
	for i, late := range c.visits {
		for _, early := range c.visits[:i] {
			if !late.allowed || early.end <= late.end {
				continue
			}
			if !slices.ContainsFunc(early.clients, func(s string) bool { return !slices.Contains(late.clients, s) }) {
				c.t.Errorf("%v, who came at %s, was admitted at %s, before %v, who came at %s and waited until %s",
					late.clients, late.at, late.end, early.clients, early.at, early.end)
			}
		}
	}
}

// checkTotals checks that no limit admitted more than it may.
func (c *crowd) checkTotals() {
	admitted := map[string][]time.Duration{}
	for _, v := range c.visits {
		for _, client := range v.clients {
			if v.allowed {
				admitted[client] = append(admitted[client], v.end)
			}
		}
	}
	for client, at := range admitted {
		slices.Sort(at)
		limit := c.rules[client[0]-'0'].Limits[0]
		for i, from := range at {
			for j, to := range at[i:] {
				more := int64(0) // what comes back in between
				if limit.Algorithm == stint.AlgorithmFixedWindow {
					window := limit.Window.Nanoseconds()
					more = (c.start.Add(to).UnixNano()/window - c.start.Add(from).UnixNano()/window) * limit.Capacity
				} else {
					more = int64((to - from) / limit.Rate.Period)
				}
				most := limit.Capacity + more
				if int64(j+1) > most {
					c.t.Errorf("%d of %s were admitted from %s to %s, at most %d may", j+1, client, from, to, most)
				}
			}
		}
	}
}

// TestCrowds lets crowds come to random rules that wait: nobody is held or denied by rules that all
// admit, all wait in the order in which they came and end in time, and no limit is exceeded.
func TestCrowds(t *testing.T) {
	held, denied, left := 0, 0, 0
	for seed := range uint64(80) {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, rand.New(rand.NewPCG(seed, 1)))
				c.run()
				c.checkEnds()
				c.checkOrder()
				c.checkTotals()
				for _, v := range c.visits {
					switch {
					case v.err != nil:
						left++
					case !v.allowed:
						denied++
					case v.end > v.at:
						held++
					}
				}
			})
		})
		if !ok {
			return
		}
	}
	if held < 1000 || denied < 1000 || left < 100 {
		t.Errorf("%d were held, %d denied, %d left: too few to tell", held, denied, left)
	}
}
