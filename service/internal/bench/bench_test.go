package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/memstore"
)

func policyOf(t testing.TB, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy("bench", limits...))(t)
}

// untimed hides when decisions were made.
func untimed(ask Target) Target {
	return func(ctx context.Context, key string) (Answer, error) {
		a, err := ask(ctx, key)
		a.At = 0
		return a, err
	}
}

// after lets time pass before and after each decision: that of a bubble, in which no machine is slow.
func after(ask Target) Target {
	return func(ctx context.Context, key string) (Answer, error) {
		<-time.After(rand.N(100 * time.Microsecond))
		a, err := ask(ctx, key)
		<-time.After(rand.N(100 * time.Microsecond))
		return a, err
	}
}

// nap lets the time of a bubble pass, which a thread that sleeps doesn't.
func nap(d time.Duration) { <-time.After(d) }

// reported is what a report says of a run.
func reported(run *Run, limits []stint.Limit, n int64) *TargetReport {
	var r Report
	r.Add("target", run, limits, n)
	return r.Targets[0]
}

var distributions = []string{"hot", "uniform", "zipf"}

var bucket = stint.TokenBucket(20, stint.PerSecond(1000))

// limitSets are of each algorithm, and policies.
var limitSets = map[string][]stint.Limit{
	"token bucket":   {bucket},
	"leaky bucket":   {stint.LeakyBucket(20, stint.PerSecond(1000))},
	"fixed window":   {stint.FixedWindow(20, 10*time.Millisecond)},
	"calendar":       {stint.CalendarWindow(20, stint.CalendarMinute, "")},
	"log":            {stint.SlidingWindowLog(20, 10*time.Millisecond)},
	"counter":        {stint.SlidingWindowCounter(20, 10*time.Millisecond)},
	"min interval":   {stint.SlidingWindowLog(20, 10*time.Millisecond).WithMinInterval(time.Millisecond)},
	"counted denied": {stint.SlidingWindowLog(20, 10*time.Millisecond).CountingDenied(), bucket},
	"policy":         {bucket, stint.FixedWindow(300, time.Second), stint.SlidingWindowCounter(30, 20*time.Millisecond)},
	"own cost":       {stint.FixedWindow(30, 10*time.Millisecond).WithCost(3)},
}

// A correct store differs nowhere, be its times known or not.
func TestCorrect(t *testing.T) {
	for name, limits := range limitSets {
		for _, distribution := range distributions {
			synctest.Test(t, func(t *testing.T) {
				policy := policyOf(t, limits...)
				load := Load{Callers: 16, Length: time.Hour, Requests: 1500, Keys: 5, Distribution: distribution, Prefix: "k"}
				ask := OfStore(memstore.New(memstore.Config{}), policy, 2)
				run := load.Run(t.Context(), after(ask))
				exact := reported(run, limits, 2)
				if !exact.Findings.Exact || exact.Findings.Differ() > 0 || exact.Admitted == 0 || exact.Denied == 0 || exact.Decisions != 1500 {
					t.Errorf("%s, %s: %+v", name, distribution, exact)
				}
				for i := range run.records {
					run.records[i].At = 0
				}
				if f := run.Verify(limits, 2); f.Exact || f.Differ() > 0 {
					t.Errorf("%s, %s, by bounds: %+v", name, distribution, f)
				}
			})
		}
	}
}

// history makes the records of a target that decides as the oracle does, at random times between sending and receiving.
func history(t *rapid.T, policy *stint.Policy, n int64) *Run {
	model := oracle.New(0)
	r := &Run{names: []string{"k-0", "k-1"}, start: time.UnixMicro(1_790_000_000_000_000)}
	var now time.Duration
	gap := rapid.SampledFrom([]time.Duration{20 * time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond}).Draw(t, "gap")
	for range rapid.IntRange(1, 150).Draw(t, "requests") {
		now += time.Duration(rapid.Int64Range(0, int64(gap/time.Microsecond)).Draw(t, "after")) * time.Microsecond
		d := record{key: rapid.Int32Range(0, 1).Draw(t, "key")}
		d.At = stint.Instant(r.start.UnixMicro()) + stint.Instant(now.Microseconds())
		d.sent = max(0, now-time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "before")))
		d.received = now + time.Duration(rapid.Int64Range(0, 5e6).Draw(t, "behind"))
		decided := model.Decide(stint.Op{
			Verb: stint.VerbTake, Claim: stint.Claim{Key: r.names[d.key], Policy: policy, Permits: n},
		}, d.At).Decision
		if d.Allowed = decided.Allowed; rapid.IntRange(0, 30).Draw(t, "failed") == 0 {
			d.Answer, d.err = Answer{}, errors.New("lost")
		}
		r.records = append(r.records, d)
	}
	return r
}

// What the exact oracle decides differs nowhere, whatever the order of answers; a decision that is turned does, if its
// time is known, and no request of its key failed before.
func TestVerifyAgainstOracle(t *testing.T) {
	for name, limits := range limitSets {
		if name == "own cost" {
			continue // which the oracle doesn't know
		}
		t.Run(name, func(t *testing.T) {
			policy := policyOf(t, limits...)
			rapid.Check(t, func(t *rapid.T) {
				n := rapid.Int64Range(1, 3).Draw(t, "permits")
				r := history(t, policy, n)
				r.records = rapid.Permutation(r.records).Draw(t, "order")
				failed := slices.ContainsFunc(r.records, func(d record) bool { return d.err != nil })
				if f := r.Verify(limits, n); f.Exact == failed || f.Differ() > 0 {
					t.Fatalf("%+v", f)
				}
				i := rapid.IntRange(0, len(r.records)-1).Draw(t, "turned")
				of := slices.DeleteFunc(slices.Clone(r.records), func(d record) bool { return d.key != r.records[i].key })
				if at := r.records[i].At; at != 0 && at < knownBefore(of) {
					r.records[i].Allowed = !r.records[i].Allowed
					if f := r.Verify(limits, n); f.Differ() == 0 {
						t.Fatalf("request %d is turned, and nothing differs", i)
					}
					r.records[i].Allowed = !r.records[i].Allowed
				}
				for i := range r.records {
					r.records[i].At = 0
				}
				if f := r.Verify(limits, n); f.Differ() > 0 {
					t.Fatalf("by bounds: %+v", f)
				}
			})
		})
	}
}

// Bounds find what no order explains: each of these requests is answered before the next is sent.
func TestBoundsFind(t *testing.T) {
	for name, limits := range limitSets {
		if name == "min interval" || name == "counted denied" {
			continue // whose denials are not judged
		}
		run := &Run{names: []string{"k-0", "k-1"}, start: time.Now()}
		add := func(allowed bool) {
			at := time.Duration(len(run.records)) * time.Microsecond
			run.records = append(run.records, record{Answer: Answer{Allowed: allowed}, sent: at, received: at + 100})
		}
		add(false)
		for range 50 {
			add(true)
		}
		beyond := int64(30)
		switch name {
		case "fixed window", "counter", "calendar":
			beyond = 10 // of two windows
		case "own cost":
			beyond = 30 // which are 3 each, of 60
		}
		if f := run.Verify(limits, 1); f.TooLittle != 1 || f.Beyond != beyond || f.First[0].Allowed || f.First[0].Key != "k-0" {
			t.Errorf("%s: %+v; want %d beyond", name, f, beyond)
		}
	}
}

// repeating sends one request of so many twice, as a proxy may, and counts those that took permits.
func repeating(ask Target, every int64) (_ Target, taken *atomic.Int64) {
	var asked atomic.Int64
	taken = new(atomic.Int64)
	return func(ctx context.Context, key string) (Answer, error) {
		a, err := ask(ctx, key)
		if asked.Add(1)%every == 0 {
			if again, _ := ask(ctx, key); again.Allowed {
				taken.Add(1)
			}
		}
		return a, err
	}, taken
}

// Windows in the place of a bucket: they admit at once what the bucket admits by and by, and then nothing.
func TestAnotherAlgorithm(t *testing.T) {
	run, window := &Run{names: []string{"k-0"}}, newModel([]stint.Limit{stint.FixedWindow(20, 20*time.Millisecond)})
	for at := stint.Instant(1_790_000_000_000_000); len(run.records) < 1000; at += 100 {
		run.records = append(run.records, record{Answer: Answer{At: at, Allowed: window.take(at, 1)}})
	}
	if f := run.Verify([]stint.Limit{bucket}, 1); f.TooLittle == 0 || f.Beyond == 0 {
		t.Errorf("%+v", f)
	}
}

// Each permit that a repeated request takes is missing once. Without times, some of them are found.
func TestRepeatedRequests(t *testing.T) {
	limits := []stint.Limit{stint.TokenBucket(8000, stint.Per(1, time.Minute))}
	load := Load{Callers: 4, Length: time.Hour, Requests: 10_000, Keys: 1, Distribution: "hot"}
	ask, taken := repeating(OfStore(memstore.New(memstore.Config{}), policyOf(t, limits...), 1), 1000)
	run := load.Run(t.Context(), ask)
	r := reported(run, limits, 1)
	if f := r.Findings; taken.Load() == 0 || f.TooLittle != taken.Load() || f.Beyond > 0 || int64(len(f.First)) != min(10, taken.Load()) {
		t.Errorf("%d repeated requests took permits: %+v", taken.Load(), f)
	}
	if want := fmt.Sprintf(" beyond the limit, %d denied too much)", taken.Load()); !strings.Contains(r.Verdict(), want) {
		t.Errorf("%q lacks %q", r.Verdict(), want)
	}
	for i := range run.records {
		run.records[i].At = 0
	}
	if f := run.Verify(limits, 1); f.TooLittle == 0 || f.TooLittle > taken.Load() || f.Beyond > 0 {
		t.Errorf("by bounds, of %d: %+v", taken.Load(), f)
	}
}

// Requests that failed may be carried out after their answers, if they wait before a busy Redis: here, after 3.9 seconds.
func TestFailedRequestTakesLate(t *testing.T) {
	denied := func(at time.Duration) record { return record{sent: at, received: at + time.Millisecond} }
	run := &Run{names: []string{"k"}, start: time.Now(), records: []record{
		{err: errors.New("lost"), received: time.Millisecond},
		{err: errors.New("lost"), received: time.Millisecond},
		denied(5 * time.Second), denied(2 * time.Minute),
	}}
	if f := run.Verify([]stint.Limit{stint.TokenBucket(2, stint.Per(1, 4*time.Second))}, 1); f.TooLittle != 1 {
		t.Errorf("%+v; want the denial after two minutes alone", f)
	}
}

// Two callers read the same state before either writes it.
func TestWithoutAtomicity(t *testing.T) {
	limits := []stint.Limit{stint.TokenBucket(1, stint.Per(1, 24*time.Hour))}
	var left atomic.Int64
	left.Store(1)
	var calls atomic.Int64
	var read sync.WaitGroup
	read.Add(2)
	ask := func(context.Context, string) (Answer, error) {
		a := Answer{At: stint.Instant(time.Now().UnixMicro()), Allowed: left.Load() > 0}
		if calls.Add(1) <= 2 {
			read.Done()
			read.Wait()
		}
		left.Store(0)
		return a, nil
	}
	load := Load{Callers: 2, Length: time.Hour, Requests: 10, Keys: 1, Distribution: "hot"}
	for name, ask := range map[string]Target{"exactly": ask, "by bounds": untimed(ask)} {
		left.Store(1)
		calls.Store(0)
		read = sync.WaitGroup{}
		read.Add(2)
		r := reported(load.Run(t.Context(), ask), limits, 1)
		if r.Findings.Beyond != 1 || r.Findings.TooLittle != 0 || r.Admitted != 2 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// A request that failed may have taken its permits.
func TestFailedRequests(t *testing.T) {
	limits := []stint.Limit{stint.TokenBucket(10, stint.Per(1, 24*time.Hour))}
	store := OfStore(memstore.New(memstore.Config{}), policyOf(t, limits...), 1)
	asked := 0
	ask := func(ctx context.Context, key string) (Answer, error) {
		a, err := store(ctx, key)
		if asked++; asked%3 == 0 {
			err = errors.New("lost")
		}
		return a, err
	}
	load := Load{Callers: 1, Length: time.Hour, Requests: 100, Keys: 1, Distribution: "hot"}
	for _, ask := range []Target{ask, untimed(ask)} {
		r := reported(load.Run(t.Context(), ask), limits, 1)
		if r.Findings.Differ() != 0 || r.Failed == 0 || r.Error != "lost" {
			t.Errorf("%+v", r)
		}
		store = OfStore(memstore.New(memstore.Config{}), policyOf(t, limits...), 1)
	}
}

// A target whose clock is an hour off, and which admits one of a thousand beyond the limit.
func TestRareFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits, asked := []stint.Limit{stint.TokenBucket(100, stint.Per(1, time.Hour))}, 0
		store := OfStore(memstore.New(memstore.Config{}), policyOf(t, limits...), 1)
		ask := func(ctx context.Context, key string) (Answer, error) {
			a, err := store(ctx, key)
			asked++
			return Answer{a.At.Add(-time.Hour), a.Allowed || asked%1000 == 0, false}, err
		}
		load := Load{Callers: 1, Length: time.Hour, Requests: 10_000, Keys: 1, Distribution: "hot"}
		for _, ask := range []Target{ask, untimed(ask)} {
			asked = 0
			if f := reported(load.Run(t.Context(), ask), limits, 1).Findings; f.Beyond < 10 || f.TooLittle > 0 && f.Exact {
				t.Errorf("%+v; want 10 beyond", f)
			}
			store = OfStore(memstore.New(memstore.Config{}), policyOf(t, limits...), 1)
		}
	})
}

// What was answered before the first failure was sent is verified exactly: bounds don't judge denials by min_interval.
func TestExactUntilTheFirstFailure(t *testing.T) {
	limits := limitSets["min interval"]
	run := &Run{names: []string{"k"}, start: time.UnixMicro(1_790_000_000_000_000)}
	for i := range 10 {
		sent, at := time.Duration(i)*time.Millisecond, stint.Instant(1_000_000+1000*i) // the store's clock is far off
		run.records = append(run.records, record{Answer: Answer{at, i != 2 && i != 8, false}, sent: sent, received: sent + 100})
	}
	run.records[5].Answer, run.records[5].err = Answer{}, errors.New("lost")
	if f := run.Verify(limits, 1); f.Exact || f.TooLittle != 1 || f.Beyond > 0 || f.First[0].At != 1_002_000 {
		t.Errorf("%+v; want the denial before the failure alone", f)
	}
}

// The only caller is kept for a second by the first of ten requests, which are due each 100 ms.
func TestOpenLoopCountsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		ask := func(context.Context, string) (Answer, error) {
			if calls++; calls == 1 {
				<-time.After(time.Second) // of the bubble's clock
			}
			return Answer{At: 1, Allowed: true}, nil
		}
		load := Load{sleep: nap, Rate: stint.PerSecond(10), Callers: 1, Length: time.Second, Requests: MaxRequests, Keys: 1, Distribution: "hot"}
		r := reported(load.Run(t.Context(), ask), []stint.Limit{stint.FixedWindow(10, time.Hour)}, 1)
		if want := map[string]float64{"p50": 500_000, "p90": 900_000, "p99": 1e6, "p99.9": 1e6, "p100": 1e6}; !maps.Equal(r.Latency, want) || r.Decisions != 10 {
			t.Errorf("%+v; want latencies %v", r, want)
		}
		load.Rate, load.Length, calls = stint.Rate{}, time.Nanosecond, 0
		if r := reported(load.Run(t.Context(), ask), []stint.Limit{stint.FixedWindow(10, time.Hour)}, 1); r.Latency["p50"] != 1e6 {
			t.Errorf("closed: %+v", r)
		}
	})
}

// A load that is interrupted is reported, and its requests in flight don't fail.
func TestInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, interrupt)
		ask := func(ctx context.Context, _ string) (Answer, error) {
			<-time.After(70 * time.Millisecond)
			return Answer{At: 1, Allowed: true}, ctx.Err()
		}
		for _, rate := range []stint.Rate{{}, stint.PerSecond(1000)} {
			load := Load{sleep: nap, Rate: rate, Callers: 3, Length: time.Hour, Requests: MaxRequests, Keys: 1, Distribution: "hot"}
			r := &Report{}
			r.Add("x", load.Run(ctx, ask), []stint.Limit{stint.FixedWindow(1000, time.Hour)}, 1)
			if x := r.Targets[0]; x.Failed > 0 || x.EndedBy != "interrupted" || rate.Permits == 0 && r.Lines()[0] != "note: x: the load was interrupted after 1.05s" {
				t.Errorf("%+v %q", x, r.Lines())
			}
		}
	})
}

// A run says if it verifies nothing, or little.
func TestVerifiesLittle(t *testing.T) {
	at := stint.Instant(1_790_000_000_000_000)
	for _, test := range []struct {
		answers       []Answer
		verdict, note string
	}{
		{[]Answer{{at, true, true}, {at, true, true}}, "nothing is verified: the store decided nothing, the failure policy made all 2 decisions", "the failure policy made 2"},
		{[]Answer{{at, true, false}, {at, true, true}}, "0 decisions differ of 2, each at its own time", "no request was denied: "},
		{[]Answer{{at, true, false}}, "0 decisions differ of 1, each at its own time", "no request was denied: that verifies little; use fewer keys or a higher rate"},
		{[]Answer{{at, false, false}}, "1 decisions differ of 1 (0 admitted beyond the limit, 1 denied too much), each at its own time", "no request was admitted: "},
		{nil, "nothing is verified: nothing was decided", ""},
	} {
		run := &Run{names: []string{"k"}, elapsed: time.Millisecond}
		for _, a := range test.answers {
			run.records = append(run.records, record{Answer: a, received: time.Millisecond})
		}
		var r Report
		r.Add("x", run, []stint.Limit{stint.FixedWindow(10, time.Hour)}, 1)
		if said := r.Targets[0].Verdict(); said != test.verdict {
			t.Errorf("%q; want %q", said, test.verdict)
		}
		lines := strings.Join(r.Lines(), "\n")
		if !strings.Contains(lines, test.note) || (test.note == "") != (lines == "") {
			t.Errorf("%+v: %q", test.answers, lines)
		}
	}
}

func TestDistributions(t *testing.T) {
	for distribution, fits := range map[string]func(of []int) bool{
		"hot":     func(of []int) bool { return of[0] == 10_000 },
		"uniform": func(of []int) bool { return slices.Min(of) > 900 && slices.Max(of) < 1100 },
		"zipf": func(of []int) bool {
			return of[0] > 3000 && of[0] > of[1] && of[1] > of[3] && of[3] > of[9] && of[9] > 100
		},
	} {
		load := Load{Keys: 10, Distribution: distribution}
		pick, of := load.picker(1), make([]int, 10)
		for range 10_000 {
			of[pick()]++
		}
		if !fits(of) {
			t.Errorf("%s: %v", distribution, of)
		}
	}
}

func TestShort(t *testing.T) {
	for n, want := range map[float64]string{0: "0", 9999.4: "9,999", 9999.6: "10k", 59_388: "59k", 999_499: "999k", 999_500: "1.0M", 3_103_338: "3.1M"} {
		if got := short(n); got != want {
			t.Errorf("%v is %q, want %q", n, got, want)
		}
	}
}

func TestCanVerify(t *testing.T) {
	for _, l := range []stint.Limit{stint.Concurrency(1), bucket.WithLease(1), {}} {
		if CanVerify(l) {
			t.Errorf("%+v can be verified", l)
		}
	}
	if !CanVerify(bucket) {
		t.Error("a bucket can't be verified")
	}
}

// The page needs nothing else, and says what the text does.
func TestReports(t *testing.T) {
	limits := []stint.Limit{bucket}
	load := Load{Callers: 1, Length: time.Hour, Requests: 50, Keys: 1, Distribution: "hot", Prefix: "<k>"}
	r, asked := &Report{Load: "a <limit>"}, 0
	r.Add("first", load.Run(t.Context(), func(context.Context, string) (Answer, error) {
		asked++
		return Answer{At: stint.Instant(time.Now().UnixMicro()), Allowed: true, Degraded: asked > 1}, nil
	}), limits, 1)
	r.Add("second", load.Run(t.Context(), func(context.Context, string) (Answer, error) { return Answer{}, errors.New("gone") }), limits, 1)
	text := strings.Join(r.Lines(), "\n")
	page := r.HTML()
	for _, want := range []string{"the failure policy made", "first: the load ended early, after 50 requests", "second: ", "One of them: gone", "admitted, the limit denies it", "first: no request was denied"} {
		if !strings.Contains(text, want) || !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if !strings.Contains(page, r.Targets[0].Verdict()) || strings.Contains(page, "<script") || strings.Contains(page, "<k>") || strings.Contains(page, "a <limit>") ||
		strings.Count(page, "<svg") != 4 || !strings.Contains(page, "default-src 'none'") {
		t.Error("the page needs something else, or is not escaped")
	}
	if _, rows := r.Figures(); rows[0][3] != "1.00" || rows[1][3] != "0.00" || rows[1][len(rows[1])-1] != "-" || r.Targets[0].Ratio != 1 {
		t.Errorf("%q", rows)
	}
}
