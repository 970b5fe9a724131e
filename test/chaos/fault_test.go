package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// A fault is a row of the table of docs/reference/failures.md: what happens to the servers, and
// what is promised then.
type fault struct {
	name string
	// start starts the servers.
	start func(t testing.TB) *site
	// strike makes the fault, and heal undoes it; nil if it passes by itself.
	strike, heal func(s *site)
	// lasts is how long it is left alone.
	lasts time.Duration
	// degrades says whether the mode decides meanwhile.
	degrades  degrades
	overloads bool // whether calls may be told that the process is overloaded
	// causes are what the change of state names as its cause, one of them in part; none
	// for any.
	causes []string
	// returns is how soon after the end of the fault the store decides for every client
	// again.
	returns time.Duration
	// callers is how many ask at once; 0 for fewCallers.
	callers int
	// losses is how often what a client has used may be lost: each time it may be
	// admitted its capacity again. nil is never.
	losses func(s *site) int
}

// degrades says whether the mode decides in place of the store.
type degrades uint8

const (
	never     degrades = iota
	perhaps            // for a moment
	meanwhile          // as long as the fault lasts
)

// site is what a fault strikes.
type site struct {
	testing.TB
	url     string
	options redisstore.Options
	timeout time.Duration // of the store's calls; 0 for deadline
	*servers
	proxy *proxy
	undo  []func()

	struck, healed time.Duration
}

// until waits for a condition.
var until = testprogram.Until

// changes are the changes of state that a store told.
type changes struct {
	mu  sync.Mutex
	all []failover.Change
}

func (c *changes) note(change failover.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, change)
}

func (c *changes) causes() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var causes []string
	for _, change := range c.all {
		if !change.Up {
			causes = append(causes, fmt.Sprint(change.Cause))
		}
	}
	return strings.Join(causes, "\n")
}

// run makes the fault under load, in a mode, and checks what is promised.
func (f *fault) run(t *testing.T, mode failover.Mode) report {
	s := f.start(t)
	s.TB = t
	if f.degrades == never && !*strict { // beside other tests a server may have no processor for longer than deadline
		s.timeout = time.Minute
	}
	before := goleak.IgnoreCurrent()
	told, limiter, closeAll := s.open(mode)
	l := startLoad(t, limiter, cmp.Or(f.callers, fewCallers))
	rest := func(d time.Duration) { <-time.After(d) } // a length of the experiment
	until(t, "the store decides", func() bool { return l.exactSince(0) })
	rest(200 * time.Millisecond)
	s.struck = l.now()
	f.strike(s)
	rest(f.lasts)
	if f.degrades == meanwhile { // which is soon, but for callers who hardly run
		until(t, "the store is unreachable, and the mode decides most calls", func() bool {
			return told.causes() != "" && l.mostByMode(s.struck)
		})
	}
	if f.heal != nil {
		f.heal(s)
	}
	s.healed = l.now()
	until(t, "the store decides for every client again", func() bool { return l.allExactSince(s.healed) })
	rest(200 * time.Millisecond)
	end := l.now()
	answers := l.all()
	closeAll()
	for _, undo := range s.undo {
		undo()
	}
	leaks.None(t, append(ofServers(), before)...)
	r := newReport(f, mode, s, l, answers, end)
	r.causes = told.causes()
	r.check(t)
	return r
}

// open opens the store as the service does.
func (s *site) open(mode failover.Mode) (*changes, *stint.Limiter, func()) {
	s.Helper()
	told := &changes{}
	store, closeAll := s.store(mode, told.note)
	limiter := must.Get(stint.New(store, "test", stint.TokenBucket(capacity, stint.PerSecond(perSec))))(s)
	return told, limiter, closeAll
}

// store opens the store for any limits.
func (s *site) store(mode failover.Mode, changed func(failover.Change)) (*failover.Store, func()) {
	s.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: s.url}))(s)
	inner := must.Get(redisstore.New(conn, s.options))(s)
	store := must.Get(failover.New(inner, failover.Config{
		Timeout: cmp.Or(s.timeout, deadline), Mode: mode, Local: memstore.New(memstore.Config{}), Instances: inner.Instances,
		StateChanged: changed,
	}))(s)
	return store, func() {
		store.Close()
		inner.Close()
	}
}

// A report is what a fault came to.
type report struct {
	fault    *fault
	mode     failover.Mode
	site     *site
	answers  []answer
	during   []answer
	noticed  time.Duration // from the strike to the first answer of the mode; -1 for none
	returned time.Duration // from the end of the fault until every client was decided for
	excess   float64       // permits admitted beyond the limit
	allowed  float64       // how many may be
	p999     time.Duration
	worst    time.Duration
	late999  time.Duration // of the scheduler
	late     time.Duration
	median   time.Duration // of the mode's answers, without those that had to notice
	causes   string
}

func newReport(f *fault, mode failover.Mode, s *site, l *load, answers []answer, end time.Duration) report {
	r := report{
		fault: f, mode: mode, site: s, answers: answers, during: between(answers, s.struck, s.healed),
		noticed: -1, excess: excess(answers) - capacity, allowed: 1,
		p999: quantile(took(answers), 0.999), worst: quantile(took(answers), 1), late999: quantile(l.late, 0.999), late: quantile(l.late, 1),
	}
	if f.losses != nil {
		r.allowed += float64(f.losses(s) * capacity)
	}
	since := between(answers, s.struck, end)
	if i := slices.IndexFunc(since, func(a answer) bool { return !a.exact() }); i >= 0 {
		r.noticed = since[i].start + since[i].took - s.struck
	}
	if r.noticed >= 0 {
		later := between(answers, s.struck+r.noticed, s.healed)
		r.median = quantile(took(slices.DeleteFunc(slices.Clone(later), func(a answer) bool { return a.exact() })), 0.5)
	}
	first := map[int]time.Duration{}
	for _, a := range between(answers, s.healed, end) {
		if _, known := first[a.client]; a.served() && !known {
			first[a.client] = a.start + a.took - s.healed
		}
	}
	for _, at := range first {
		r.returned = max(r.returned, at)
	}
	return r
}

// check holds the report to what is promised.
func (r *report) check(t testing.TB) {
	t.Helper()
	f := r.fault
	n := count(r.answers)
	// A busy machine overloads whomever it likes.
	if n.overloaded > 0 && !f.overloads && *strict {
		t.Errorf("%d calls were told that the process is overloaded", n.overloaded)
	}
	if n.other > 0 {
		t.Errorf("%d calls failed otherwise than told: %v", n.other, n.err)
	}
	byMode := n.degraded
	if r.mode == failover.Closed {
		byMode, n.refused, n.degraded = n.refused, n.degraded, n.refused
	}
	if n.refused > 0 {
		t.Errorf("%d answers were not %s's", n.refused, r.mode)
	}
	if f.degrades == never && byMode > few(len(r.answers)) {
		t.Errorf("the mode answered %d calls, want none: %s", byMode, r.causes)
	}
	causes := f.causes
	if !*strict && causes != nil { // a busy machine may be late to tell of a connection that was cut, or to make another
		causes = append(slices.Clone(causes), append(silence, "no connection for")...)
	}
	named := func(cause string) bool { return strings.Contains(r.causes, cause) }
	if r.causes != "" && causes != nil && !slices.ContainsFunc(causes, named) {
		t.Errorf("the cause was %q, want one of %q in it", r.causes, causes)
	}
	if *strict {
		r.checkTimes(t)
	}
	if r.excess > r.allowed {
		t.Errorf("the store admitted %.1f permits beyond the limit, want %.0f", r.excess, r.allowed)
	}
	if r.mode == failover.Local {
		r.checkLocal(t)
	}
}

// checkTimes compares times with docs/reference/failures.md, less the delay of the scheduler.
func (r *report) checkTimes(t testing.TB) {
	t.Helper()
	if most := deadline + scheduling + r.late999; r.p999 > most {
		t.Errorf("99.9 %% of calls took up to %v, want %v (the scheduler was late by %v)", r.p999, most, r.late999)
	}
	if most := 2*(deadline+scheduling) + r.late; r.worst > most {
		t.Errorf("the longest call took %v, want %v (the scheduler was late by %v)", r.worst, most, r.late)
	}
	if most := r.fault.returns + r.late; r.returned > most {
		t.Errorf("the store decided for all %v after the fault, want %v", r.returned, most)
	}
}

// few is how many of so many answers may be the mode's where none should be: none, but on a machine that
// is busy with other tests a server may be silent for so long that its connection is given up.
func few(answers int) int {
	if *strict {
		return 0
	}
	return answers / 20
}

// checkLocal holds what was admitted in the process to the share, which is all of it.
func (r *report) checkLocal(t testing.TB) {
	var local []answer
	for _, a := range r.answers {
		if a.decision.Degraded {
			a.decision.Degraded = false
			local = append(local, a)
		}
	}
	if over := excess(local) - capacity; over > 1 {
		t.Errorf("the process admitted %.1f permits beyond its share", over)
	}
}

// allExactSince reports whether for every client a call that began after a time was
// decided by the store.
func (l *load) allExactSince(at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var seen [clients]bool
	left := clients
	for _, answers := range l.answers {
		for i := len(answers) - 1; i >= 0 && answers[i].start >= at; i-- {
			if a := &answers[i]; a.served() && !seen[a.client] {
				seen[a.client] = true
				left--
			}
		}
	}
	return left == 0
}

// ofServers are goroutines of servers and proxies that were started again, and others
// that are not the store's.
func ofServers() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/stint-go/stint/internal/testredis.startProcess.func1"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*Proxy).server"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2.(*Proxy).freeBlocker"),
		// The proxy now and then forgets one when a connection ends as a toxic is removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"),
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/stream.(*ChanWriter).Write"),
		// rueidis closes connections that it has replaced, and asks for the slots, after a sleep.
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		// A look-up that nobody waits for any more goes on until its own timeout.
		goleak.IgnoreAnyFunction("net.(*Resolver).goLookupIPCNAMEOrder"),
		goleak.IgnoreAnyFunction("net.(*Resolver).tryOneName"),
		goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr"),
		goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func2"),
	}
}

// do sends a command to a server whose outcome matters to the fault.
func (s *site) do(args ...any) any {
	s.Helper()
	return must.Get(s.single.Do(args...))(s)
}

// background runs something until the fault is over, and then undoes it.
func (s *site) background(work func(ctx context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { work(ctx) })
	return func() {
		cancel()
		group.Wait()
	}
}
