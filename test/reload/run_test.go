package reload_test

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/rules"
)

// A size is how much there is of everything.
type size struct {
	rules, clients, callers int
	shared                  int64 // what each shared rule admits in all
	decisions, reloads      int64 // in all, unless it goes on for a time
}

// A run is the experiment.
type run struct {
	site     *site
	plan     *plan
	store    stint.Store
	limiter  *enforce.Limiter
	swap     func(set *rules.Set, list []rules.Rule) // puts a set in force
	callers  []*caller
	tallies  []*tally
	versions sync.Map // by number
	version  *version // the newest
	set      *rules.Set
	inForce  atomic.Int64

	decided atomic.Int64
	faults  faults
	reloads []reloaded
	begun   time.Time
	lasted  time.Duration
}

// reloaded is one reload.
type reloaded struct {
	changes rulediff.Changes
	took    time.Duration // to compile the set and put it in force
}

// faults keeps the first ones and counts all.
type faults struct {
	mu    sync.Mutex
	first []error
	count int
}

func (f *faults) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count++; len(f.first) < 5 {
		f.first = append(f.first, err)
	}
}

// err is what was found, nil if nothing was.
func (f *faults) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.count == 0 {
		return nil
	}
	return fmt.Errorf("%d mismatches, the first:\n%w", f.count, errors.Join(f.first...))
}

// newRun prepares a run on a store; between, if not nil, is a store in between that does something wrong.
func newRun(t testing.TB, of size, seed uint64, store stint.Store, between func(stint.Store, *run) stint.Store) *run {
	t.Helper()
	s := &site{callers: of.callers, clients: of.clients, sections: max(of.rules/8, 1), shared: max(of.rules/25, 5), capacity: of.shared}
	r := &run{site: s, plan: newPlan(s, seed, of.rules), store: store}
	asked := store
	if between != nil {
		asked = between(store, r)
	}
	r.limiter = must.Get(enforce.New(enforce.Config{Store: witness{asked}}))(t)
	r.swap = func(set *rules.Set, _ []rules.Rule) { r.limiter.Swap(set) }
	for range s.shared {
		r.tallies = append(r.tallies, newTally(of.shared))
	}
	for i := range of.callers {
		r.callers = append(r.callers, must.Get(newCaller(r, seed, i))(t))
	}
	must.Do(t, r.reload())
	r.reloads = nil // the first is none
	return r
}

// reload puts the next set in force.
func (r *run) reload() error {
	list, want := r.plan.next()
	v, err := newVersion(r.plan.number, list, r.version)
	if err != nil {
		return err
	}
	old := r.set
	start := time.Now()
	set, err := rules.Compile(list, rules.Options{Previous: old})
	if err != nil {
		return err
	}
	compiled := time.Since(start)
	r.set, r.version = set, v
	r.versions.Store(v.number, v)
	start = time.Now()
	r.swap(set, list)
	took := compiled + time.Since(start)
	r.inForce.Store(int64(v.number))
	if changes := rulediff.Between(old, set); !reflect.DeepEqual(changes, want) {
		r.faults.add(fmt.Errorf("set %d: the changes are %+v, want %+v", v.number, changes, want))
	}
	r.reloads = append(r.reloads, reloaded{want, took})
	return nil
}

// byNumber makes so many decisions, and the reloads at even distances among them. The caller of the decision after which
// a reload is due waits until it begins.
func (r *run) byNumber(decisions, reloads int64) error {
	step := max(decisions/(reloads+1), 1)
	due, enough := make(chan struct{}), make(chan struct{})
	var work sync.WaitGroup
	r.begun = time.Now()
	for i, c := range r.callers {
		n := decisions / int64(len(r.callers))
		if i == 0 {
			n += decisions % int64(len(r.callers))
		}
		work.Go(func() {
			for range n {
				c.once()
				if r.decided.Add(1)%step != 0 {
					continue
				}
				select {
				case due <- struct{}{}:
				case <-enough:
				}
			}
		})
	}
	var failed error
	for range reloads {
		<-due
		failed = errors.Join(failed, r.reload())
	}
	close(enough)
	work.Wait()
	r.lasted = time.Since(r.begun)
	return failed
}

// byTime makes decisions for so long, with a reload at every tick.
func (r *run) byTime(length, tick time.Duration) error {
	var work sync.WaitGroup
	var done atomic.Bool
	r.begun = time.Now()
	for _, c := range r.callers {
		work.Go(func() {
			for !done.Load() {
				c.once()
				r.decided.Add(1)
			}
		})
	}
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var failed error
	for time.Since(r.begun) < length && failed == nil {
		<-ticker.C
		failed = r.reload()
	}
	done.Store(true)
	work.Wait()
	r.lasted = time.Since(r.begun)
	return failed
}

// once asks once.
func (c *caller) once() {
	if err := c.ask(); err != nil {
		c.run.faults.add(err)
	}
}

// settle looks at what is left of the shared rules when nobody asks any more, and returns what they admitted.
func (r *run) settle(t testing.TB) (admitted, spent int64) {
	t.Helper()
	for i, tally := range r.tallies {
		k := r.version.byID[sharedPrefix+strconv.Itoa(i)]
		d := must.Get(r.store.Decide(t.Context(), stint.Op{Verb: stint.VerbPeek, Claim: stint.Claim{Key: "*", Policy: k.policy, Permits: 1}}))(t)
		n, err := tally.check(d.Remaining)
		if err != nil {
			r.faults.add(fmt.Errorf("%s: %w", k.rule.ID, err))
		}
		if admitted += n; d.Remaining == 0 {
			spent++
		}
	}
	return admitted, spent
}

// figures are those of all callers.
func (r *run) figures() (n figures) {
	for _, c := range r.callers {
		n.decided += c.n.decided
		n.admitted += c.n.admitted
		n.denied += c.n.denied
		n.unasked += c.n.unasked
		n.shared += c.n.shared
		n.shadowed += c.n.shadowed
		n.states += c.n.states
	}
	return n
}

// describe is what it came to.
func (r *run) describe(shared, spent int64) string {
	var text strings.Builder
	say := func(format string, a ...any) { _, _ = fmt.Fprintf(&text, format+"\n", a...) }
	n, m := r.figures(), r.plan.made
	say("%d decisions in %v by %d callers for %d clients: %d admitted, %d denied by limits, %d without asking the store",
		n.decided, r.lasted.Round(time.Millisecond), len(r.callers), r.site.clients, n.admitted, n.denied, n.unasked)
	say("%d limits of callers' own were checked, %d denials in shadow; %d claims of shared rules, %d admitted, %d of %d rules spent",
		n.states, n.shadowed, n.shared, shared, spent, len(r.tallies))
	var came, went, altered int
	var took []time.Duration
	for _, l := range r.reloads {
		came, went, altered = came+len(l.changes.Added), went+len(l.changes.Removed), altered+len(l.changes.Changed)
		took = append(took, l.took)
	}
	say("%d reloads of %d rules: %d came, %d went, %d changed (%d limits, %d others, %d disabled or enabled, %d of those that came were back); %v",
		len(r.reloads), r.limiter.Set().Len(), came, went, altered, m.limits, m.others, m.toggled, m.returned, quantiles(took))
	var decide, match []time.Duration
	for _, c := range r.callers {
		decide, match = append(decide, c.decide...), append(match, c.match...)
	}
	say("decide: %s", quantiles(decide))
	say("match: %s", quantiles(match))
	say("%d mismatches", r.faults.count)
	return text.String()
}

// quantiles of times, in words.
func quantiles(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	slices.Sort(took)
	at := func(share float64) time.Duration { return took[int(share*float64(len(took)-1))] }
	return fmt.Sprintf("p50 %v, p90 %v, p99 %v, p99.9 %v, longest %v", at(0.5), at(0.9), at(0.99), at(0.999), at(1))
}

// heap is what is held after a collection.
func heap() int64 {
	runtime.GC() // the first leaves what pools hold
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}
