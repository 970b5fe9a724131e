package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
)

// The mixed load: callers that ask for all there is to ask for, of every algorithm, for
// far more than the limits admit, through two failover stores over one server, as two
// processes would.
const (
	mixedCallers = 16
	mixedKeys    = 4 // of each policy
	mixedCost    = 5 // permits at most
)

// mixedPolicies are each algorithm by itself, and several together.
func mixedPolicies(t testing.TB) (policies []*stint.Policy) {
	const window = 500 * time.Millisecond
	bucket, turns := stint.TokenBucket(20, stint.PerSecond(100)), stint.LeakyBucket(20, stint.PerSecond(100))
	fixed, log := stint.FixedWindow(50, window), stint.SlidingWindowLog(50, window)
	counter := stint.SlidingWindowCounter(50, window)
	for i, limits := range [][]stint.Limit{{bucket}, {turns}, {fixed}, {log}, {counter}, {bucket, log, fixed}} {
		policies = append(policies, must.Get(stint.NewPolicy("soak"+strconv.Itoa(i), limits...))(t))
	}
	return policies
}

// longestWait is the longest RetryAfter of a denial by one of the mixed limits, given
// that a client may be in debt by a capacity.
const longestWait = time.Second

// A member is a client of one of the stores.
type member struct{ store, policy, key int }

// mixed is the mixed load at work, and running tallies of what became of it.
type mixed struct {
	stores   []*failover.Store
	policies []*stint.Policy
	limiters [][]*stint.Limiter // by store and policy
	began    time.Time
	stop     context.CancelFunc
	work     sync.WaitGroup

	gate sync.RWMutex // held by calls; whoever locks it has the load rest

	mu         sync.Mutex
	ledgers    [][]*ledger // by policy and key
	exact      map[member]time.Duration
	lastByMode time.Duration
	over       bool            // whether the load has ended
	late       []time.Duration // of the scheduler, since the last rest
	slow       []overrun       // calls since the last rest that took longer than meant to
	faults     []string        // wrong answers, the first ones
	wrong      int
	n          struct{ calls, byStore, byMode, refused, ended, dawdled int }
	longest    time.Duration
}

// An overrun is a call that took longer than its deadline and scheduling.
type overrun struct{ took, bound time.Duration }

func startMixed(t testing.TB, seed uint64, stores ...*failover.Store) *mixed {
	ctx, cancel := context.WithCancel(t.Context())
	m := &mixed{stores: stores, policies: mixedPolicies(t), began: time.Now(), stop: cancel, exact: map[member]time.Duration{}}
	for _, store := range stores {
		var limiters []*stint.Limiter
		for _, policy := range m.policies {
			limiters = append(limiters, must.Get(stint.NewLimiter(stint.Config{Store: store, Policy: policy}))(t))
		}
		m.limiters = append(m.limiters, limiters)
	}
	for _, policy := range m.policies {
		var ledgers []*ledger
		for range mixedKeys {
			ledgers = append(ledgers, newLedger(policy))
		}
		m.ledgers = append(m.ledgers, ledgers)
	}
	for i := range mixedCallers {
		m.work.Go(func() {
			c := &caller{mixed: m, Rand: rand.New(rand.NewPCG(seed, uint64(i)))}
			for c.pause(ctx) {
				c.call()
			}
		})
	}
	m.work.Go(func() { watchScheduler(ctx, &m.mu, &m.late) })
	return m
}

func (m *mixed) end() {
	m.stop()
	m.work.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.over = true
}

func (m *mixed) now() time.Duration { return time.Since(m.began) }

// lateness waits until it is noted by how much the scheduler has been late until now, since who notes it may be late
// as well.
func (m *mixed) lateness(t testing.TB) {
	t.Helper()
	noted := func() (n int, over bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.late), m.over
	}
	before, _ := noted()
	until(t, "the scheduler's delay is noted", func() bool {
		n, over := noted()
		return over || n > before
	})
}

// allExactSince reports whether each store had a call that began after a time decided
// for every client by the server.
func (m *mixed) allExactSince(at time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	fresh := 0
	for _, last := range m.exact {
		if last >= at {
			fresh++
		}
	}
	return fresh == len(m.stores)*len(m.policies)*mixedKeys
}

// settle checks what has come since the last time, while no call is under way, and
// forgets it.
func (m *mixed) settle(t testing.TB) {
	t.Helper()
	m.lateness(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ledgers := range m.ledgers {
		for key, ledger := range ledgers {
			if err := ledger.check(); err != nil {
				t.Errorf("client %d was admitted too much: %v", key, err)
			}
		}
	}
	worst, most := quantile(m.late, 1), quantile(m.late, 0.999)
	for _, o := range m.slow {
		if o.took > o.bound+most {
			m.n.dawdled++
		}
		if timed() && o.took > 2*o.bound+worst {
			t.Errorf("a call took %v, want %v (the scheduler was late by %v)", o.took, 2*o.bound+worst, worst)
		}
	}
	for _, fault := range m.faults {
		t.Error(fault)
	}
	if m.wrong > len(m.faults) {
		t.Errorf("and %d wrong answers more", m.wrong-len(m.faults))
	}
	m.late, m.slow, m.faults, m.wrong = nil, nil, nil, 0
}

// untouched reports whether every client could take all of its first limit, the least,
// of the server.
func (m *mixed) untouched(ctx context.Context) bool {
	for _, policy := range m.policies {
		for key := range mixedKeys {
			claim := stint.Claim{Key: keyName(key), Policy: policy, Permits: policy.Limit(0).Capacity}
			d, err := m.stores[0].Decide(ctx, stint.Op{Verb: stint.VerbPeek, Claim: claim})
			if err != nil || !d.Allowed {
				return false
			}
		}
	}
	return true
}

func keyName(key int) string { return "user:" + strconv.Itoa(key) }

// A caller makes calls drawn by its generator.
type caller struct {
	*rand.Rand
	mixed *mixed
}

// pause waits for a moment. It returns false when the load ends.
func (c *caller) pause(ctx context.Context) bool {
	timer := time.NewTimer(pace/2 + c.upTo(2*pace))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.Int64N(int64(d))) }

// call makes one call, of one operation or several.
func (c *caller) call() {
	m := c.mixed
	store := c.IntN(len(m.stores))
	ctx, patience, cancel := c.impatience()
	m.gate.RLock()
	defer m.gate.RUnlock()
	defer cancel()
	ops := []stint.Op{c.op()}
	results := make([]stint.Result, 1, 8)
	start := time.Now()
	asked := m.now()
	switch kind := c.IntN(10); {
	case kind < 5:
		ops[0] = stint.Op{Claim: c.claim(c.IntN(len(m.policies)))}
		policy, _ := m.place(&ops[0].Claim)
		results[0].Decision, results[0].Err = m.limiters[store][policy].AllowN(ctx, ops[0].Key, ops[0].Permits)
	case kind < 7:
		results[0].Decision, results[0].Err = m.stores[store].Decide(ctx, ops[0])
	default:
		for range 1 + c.IntN(7) {
			ops = append(ops, c.op())
		}
		results = results[:len(ops)]
		m.stores[store].DecideAll(ctx, ops, results)
	}
	took := time.Since(start)
	left := gone(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n.calls++
	m.longest = max(m.longest, took)
	if bound := allowed(min(patience, deadline) + scheduling); took > bound {
		m.slow = append(m.slow, overrun{took, bound})
	}
	for i := range ops {
		m.note(store, asked, left, &ops[i], &results[i])
	}
}

// impatience is a caller's own deadline or cancellation, which most have not.
func (c *caller) impatience() (context.Context, time.Duration, context.CancelFunc) {
	patience := time.Millisecond + c.upTo(50*time.Millisecond)
	switch c.IntN(20) {
	case 0:
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		return ctx, patience, cancel
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(patience, cancel)
		return ctx, patience, func() {
			timer.Stop()
			cancel()
		}
	default:
		return context.Background(), deadline, func() {}
	}
}

// gone reports whether a caller's context has ended. Its deadline may have passed a
// moment before its own timer knows.
func gone(ctx context.Context) bool {
	at, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && time.Until(at) <= 0
}

// op is any operation. Those that give permits back are on keys of their own.
func (c *caller) op() stint.Op {
	m := c.mixed
	first := c.IntN(len(m.policies))
	op := stint.Op{Claim: c.claim(first)}
	switch c.IntN(20) {
	case 0, 1:
		op.Verb = stint.VerbPeek
	case 2, 3:
		op.Verb = stint.VerbTry
	case 4:
		op.Verb, op.Key = stint.VerbReset, "forgotten:"+op.Key
	case 5:
		op.Verb, op.Key = stint.VerbSettle, "settled:"+op.Key
		if op.Policy.Limit(0).Algorithm != stint.AlgorithmLeakyBucket && c.IntN(2) == 0 {
			op.Permits = -op.Permits
		}
	case 6:
		op.Key = "forgotten:" + op.Key
	case 7:
		op.Key = "settled:" + op.Key
	case 8, 9, 10:
		for i := range 1 + c.IntN(len(m.policies)-1) {
			op.And = append(op.And, c.claim((first+i+1)%len(m.policies)))
		}
	}
	return op
}

func (c *caller) claim(policy int) stint.Claim {
	return stint.Claim{Key: keyName(c.IntN(mixedKeys)), Policy: c.mixed.policies[policy], Permits: 1 + c.Int64N(mixedCost)}
}

// place is the ledger's of a claim; the key is -1 for those that have none.
func (m *mixed) place(claim *stint.Claim) (policy, key int) {
	policy = slices.Index(m.policies, claim.Policy)
	for key := range mixedKeys {
		if claim.Key == keyName(key) {
			return policy, key
		}
	}
	return policy, -1
}

// note takes an answer into the tallies. The mutex is held.
func (m *mixed) note(store int, asked time.Duration, left bool, op *stint.Op, r *stint.Result) {
	if fault := wrong(op, r, left); fault != "" {
		if m.wrong++; len(m.faults) < 10 {
			m.faults = append(m.faults, fmt.Sprintf("%v of %q by store %d: %s: %+v, %v", op.Verb, op.Key, store, fault, r.Decision, r.Err))
		}
	}
	switch {
	case errors.Is(r.Err, stint.ErrUnavailable):
		m.n.refused++
		m.lastByMode = max(m.lastByMode, asked)
		return
	case r.Err != nil:
		m.n.ended++
		return
	case r.Decision.Degraded:
		m.n.byMode++
		m.lastByMode = max(m.lastByMode, asked)
		return
	}
	m.n.byStore++
	takes := op.Verb == stint.VerbTake || op.Verb == stint.VerbTry
	claims := append([]stint.Claim{op.Claim}, op.And...)
	for i := range claims {
		policy, key := m.place(&claims[i])
		if key < 0 {
			continue
		}
		if who := (member{store, policy, key}); r.Decision.Source == stint.SourceStore {
			m.exact[who] = max(m.exact[who], asked)
		}
		if takes && r.Decision.Allowed {
			m.ledgers[policy][key].admit(admission{r.Decision.At, claims[i].Permits})
		}
	}
}

// wrong says what is wrong with an answer by itself, "" if nothing is. left says
// that the caller had gone by then.
func wrong(op *stint.Op, r *stint.Result, left bool) string {
	d, decides := r.Decision, op.Verb == stint.VerbTake || op.Verb == stint.VerbTry
	switch {
	case left && (errors.Is(r.Err, context.DeadlineExceeded) || errors.Is(r.Err, context.Canceled)):
		return ""
	case errors.Is(r.Err, stint.ErrUnavailable):
		if decides && !left {
			return "the mode did not answer"
		}
	case errors.Is(r.Err, stint.ErrOverloaded):
		return "" // the machine is busy
	case r.Err != nil:
		return "an error that is not told of"
	case d.Degraded != (d.Source == stint.SourceFailurePolicy), d.Degraded && !decides:
		return "who decided is not told"
	case d.Degraded:
	case d.Remaining < 0 || d.Remaining > d.Limit || d.Limit != capacityAt(op, int(d.Index)):
		return "what remains can't be"
	case d.At <= 0 || d.ResetAfter < 0 || d.Allowed && d.RetryAfter != 0:
		return "the times can't be"
	case !d.Allowed && (d.RetryAfter <= 0 || d.RetryAfter > longestWait):
		return "the wait can't be"
	case !d.Allowed && (op.Verb == stint.VerbReset || op.Verb == stint.VerbSettle):
		return "a denial of what is not asked"
	}
	return ""
}

// capacityAt is the capacity of limit i of an operation.
func capacityAt(op *stint.Op, i int) int64 {
	limit, _ := op.LimitAt(i)
	return limit.Capacity
}
