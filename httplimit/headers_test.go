package httplimit_test

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

func policy(t testing.TB, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy("", limits...))(t)
}

func write(t testing.TB, fields httplimit.Fields, d stint.Decision, each []stint.Outcome, limits ...stint.Limit) http.Header {
	t.Helper()
	header := http.Header{}
	httplimit.HeadersOf(policy(t, limits...), fields).Write(header, d, each)
	return header
}

func expect(t *testing.T, header http.Header, want map[string]string) {
	t.Helper()
	for _, name := range []string{
		"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After",
	} {
		if got := header.Get(name); got != want[name] {
			t.Errorf("%s: %q, want %q", name, got, want[name])
		}
	}
}

const at = stint.Instant(1_790_000_000_123_456)

func TestAdmission(t *testing.T) {
	header := write(t, httplimit.AllFields,
		stint.Decision{Allowed: true, Limit: 100, Remaining: 95, ResetAfter: 500 * time.Millisecond, At: at},
		[]stint.Outcome{{Allowed: true, Limit: 100, Remaining: 95, GrowsAfter: 100 * time.Millisecond}},
		stint.TokenBucket(100, stint.PerSecond(10)))
	expect(t, header, map[string]string{
		"X-RateLimit-Limit":     "100",
		"X-RateLimit-Remaining": "95",
		"X-RateLimit-Reset":     "1790000001",
		"RateLimit-Policy":      `"default";q=100;w=10`,
		"RateLimit":             `"default";r=95;t=1`,
	})
}

func TestDenial(t *testing.T) {
	header := write(t, httplimit.AllFields,
		stint.Decision{Index: 1, Limit: 2, RetryAfter: 2000001 * time.Microsecond, ResetAfter: 3 * time.Second, At: 1_000_000},
		[]stint.Outcome{
			{Allowed: true, Limit: 10, Remaining: 8, GrowsAfter: 57 * time.Second},
			{Limit: 2, RetryAfter: 2000001 * time.Microsecond, GrowsAfter: time.Second},
		},
		stint.SlidingWindowLog(10, time.Minute), stint.SlidingWindowLog(2, 3*time.Second).Named("burst"))
	expect(t, header, map[string]string{
		"X-RateLimit-Limit":     "2",
		"X-RateLimit-Remaining": "0",
		"X-RateLimit-Reset":     "4",
		"RateLimit-Policy":      `"default";q=10;w=60, "burst";q=2;w=3`,
		"RateLimit":             `"default";r=8;t=57, "burst";r=0;t=3`,
		"Retry-After":           "3",
	})
}

func TestShortDenialWaitsASecond(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Microsecond, time.Second} {
		header := write(t, httplimit.AllFields, stint.Decision{Limit: 1, RetryAfter: wait},
			[]stint.Outcome{{Limit: 1, RetryAfter: wait}}, stint.FixedWindow(1, time.Second))
		if got := header.Get("Retry-After"); got != "1" {
			t.Errorf("after %v: Retry-After %q, want 1", wait, got)
		}
		if got := header.Get("RateLimit"); got != `"default";r=0;t=1` {
			t.Errorf("after %v: RateLimit %q; t is not Retry-After", wait, got)
		}
	}
}

func TestNever(t *testing.T) {
	header := write(t, httplimit.AllFields, stint.Decision{Limit: 5, Remaining: 5, RetryAfter: stint.Never},
		[]stint.Outcome{{Limit: 5, Remaining: 5, RetryAfter: stint.Never}}, stint.FixedWindow(5, time.Minute))
	expect(t, header, map[string]string{
		"X-RateLimit-Limit": "5", "X-RateLimit-Remaining": "5", "X-RateLimit-Reset": "0",
		"RateLimit-Policy": `"default";q=5;w=60`, "RateLimit": `"default";r=5`,
	})
}

func TestFullLimitHasNoTime(t *testing.T) {
	header := write(t, httplimit.IETF, stint.Decision{Allowed: true}, []stint.Outcome{{Allowed: true, Remaining: 5}},
		stint.FixedWindow(5, time.Minute))
	expect(t, header, map[string]string{"RateLimit-Policy": `"default";q=5;w=60`, "RateLimit": `"default";r=5`})
}

// The proposal 166 has other names in RateLimit, and nothing else.
func TestProposed(t *testing.T) {
	draft, proposed := http.Header{}, http.Header{}
	p := policy(t, stint.FixedWindow(50, time.Minute), stint.TokenBucket(9, stint.PerSecond(1)).Named("r=0;t=1"))
	d := stint.Decision{Limit: 50, Remaining: 0, RetryAfter: 7 * time.Second, At: at}
	each := []stint.Outcome{{RetryAfter: 7 * time.Second}, {Allowed: true, Remaining: 9}}
	httplimit.HeadersOf(p, httplimit.AllFields).Write(draft, d, each)
	httplimit.HeadersOf(p, httplimit.XRateLimit|httplimit.IETF166|httplimit.RetryAfter).Write(proposed, d, each)
	if got := draft.Get("RateLimit"); got != `"default";r=0;t=7, "r=0;t=1";r=9` {
		t.Errorf("by the draft: %s", got)
	}
	if got := proposed.Get("RateLimit"); got != `"default";a=0;w=7, "r=0;t=1";a=9` {
		t.Errorf("by the proposal: %s", got)
	}
	delete(draft, "Ratelimit")
	delete(proposed, "Ratelimit")
	if !maps.EqualFunc(draft, proposed, slices.Equal) {
		t.Errorf("other fields differ: %v, %v", draft, proposed)
	}
}

func TestFieldSwitches(t *testing.T) {
	d := stint.Decision{Limit: 1, RetryAfter: time.Second}
	limit := stint.FixedWindow(1, time.Minute)
	each := []stint.Outcome{{Limit: 1, RetryAfter: time.Second}}
	for fields, want := range map[httplimit.Fields]int{
		0: 0, httplimit.XRateLimit: 3, httplimit.IETF: 2, httplimit.RetryAfter: 1, httplimit.AllFields: 6, httplimit.IETF166: 2, httplimit.NoFields: 0,
	} {
		if header := write(t, fields, d, each, limit); len(header) != want {
			t.Errorf("fields %d: %v, want %d of them", fields, header, want)
		}
	}
	if header := write(t, httplimit.XRateLimit|httplimit.RetryAfter, d, nil, limit); len(header) != 4 {
		t.Errorf("without IETF the outcomes are not needed; got %v", header)
	}
	d.Degraded = true
	if header := write(t, httplimit.AllFields, d, each, limit); len(header) != 0 {
		t.Errorf("a degraded decision writes %v", header)
	}
}

func TestPolicyField(t *testing.T) {
	for _, test := range []struct {
		limits []stint.Limit
		want   string
	}{
		{[]stint.Limit{stint.FixedWindow(5, 999*time.Millisecond)}, `"default";q=5`},
		{[]stint.Limit{stint.FixedWindow(5, 1001*time.Millisecond)}, `"default";q=5;w=2`},
		{[]stint.Limit{stint.TokenBucket(5, stint.PerSecond(10))}, `"default";q=5`},
		{[]stint.Limit{stint.LeakyBucket(7, stint.Per(3, time.Second))}, `"default";q=7;w=3`},
		{[]stint.Limit{stint.TokenBucket(1e9, stint.Per(1e9, 366*24*time.Hour))}, `"default";q=1000000000;w=31622400`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarMinute, "")}, `"default";q=5;w=60`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarHour, "")}, `"default";q=5;w=3600`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarDay, "Europe/Berlin")}, `"default";q=5;w=86400`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarWeek, "")}, `"default";q=5;w=604800`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarMonth, "")}, `"default";q=5;w=2592000`},
		{[]stint.Limit{stint.CalendarWindow(5, stint.CalendarYear, "")}, `"default";q=5;w=31536000`},
		{[]stint.Limit{stint.FixedWindow(5, time.Minute).Named(`a "b" \c`)}, `"a \"b\" \\c";q=5;w=60`},
		{
			[]stint.Limit{stint.FixedWindow(5, time.Minute), stint.SlidingWindowLog(6, time.Minute)},
			`"default-fixed_window";q=5;w=60, "default-sliding_window_log";q=6;w=60`,
		},
		{
			[]stint.Limit{
				stint.FixedWindow(1, time.Minute), stint.FixedWindow(2, time.Minute).Named("default"),
				stint.FixedWindow(3, time.Minute).Named("default-fixed_window"),
			},
			`"default-fixed_window-2";q=1;w=60, "default-fixed_window-3";q=2;w=60, "default-fixed_window";q=3;w=60`,
		},
	} {
		d := stint.Decision{Allowed: true}
		header := write(t, httplimit.IETF, d, make([]stint.Outcome, len(test.limits)), test.limits...)
		if got := header.Get("RateLimit-Policy"); got != test.want {
			t.Errorf("RateLimit-Policy: %s, want %s", got, test.want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, 90 * time.Minute: 5400, stint.Never: -1,
	} {
		if got := adapt.Seconds(d); got != want {
			t.Errorf("Seconds(%v) = %d, want %d", d, got, want)
		}
	}
}

// The values of one response must survive the writing of the next.
func TestValuesAreNotShared(t *testing.T) {
	h := httplimit.HeadersOf(policy(t, stint.FixedWindow(50, time.Minute)), httplimit.AllFields)
	first, second := http.Header{}, http.Header{}
	h.Write(first, stint.Decision{Allowed: true, Remaining: 11}, []stint.Outcome{{Allowed: true, Remaining: 11}})
	h.Write(second, stint.Decision{Allowed: true, Remaining: 22}, []stint.Outcome{{Allowed: true, Remaining: 22}})
	if got := first.Get("X-RateLimit-Remaining") + first.Get("RateLimit"); got != `11"default";r=11` {
		t.Errorf("the first response now reads %s", got)
	}
	first.Add("X-RateLimit-Limit", "7")
	if got := second.Values("X-RateLimit-Limit"); len(got) != 1 || got[0] != "50" {
		t.Errorf("adding to one response's field changed another's: %v", got)
	}
}

func TestWriteAllocates(t *testing.T) {
	h := httplimit.HeadersOf(policy(t, stint.FixedWindow(50, time.Minute)), httplimit.AllFields)
	header := http.Header{}
	each := []stint.Outcome{{Remaining: 11}}
	if n := testing.AllocsPerRun(100, func() { h.Write(header, stint.Decision{At: at}, each) }); n > 2 {
		t.Errorf("Write allocates %v times, want a string and an array of values", n)
	}
}

func BenchmarkWrite(b *testing.B) {
	h := httplimit.HeadersOf(policy(b, stint.TokenBucket(100, stint.PerSecond(10))), httplimit.AllFields)
	header := http.Header{}
	d := stint.Decision{Allowed: true, Limit: 100, Remaining: 95, ResetAfter: 500 * time.Millisecond, At: at}
	each := []stint.Outcome{{Allowed: true, Limit: 100, Remaining: 95, GrowsAfter: 100 * time.Millisecond}}
	b.ReportAllocs()
	for b.Loop() {
		h.Write(header, d, each)
	}
}

// WriteHeaders writes what a middleware does.
func TestWriteHeaders(t *testing.T) {
	for name, limits := range map[string][]stint.Limit{
		"one limit": {stint.TokenBucket(2, stint.PerMinute(2))},
		"several":   {stint.TokenBucket(2, stint.PerMinute(2)), stint.FixedWindow(1, time.Hour).Named("hour")},
	} {
		l, direct := limiter(t, limits...), limiter(t, limits...)
		handler := wrap(t, httplimit.Config{Limiter: l}, hello)
		for range 3 {
			want := get(t.Context(), handler, "/").Header()
			each := make([]stint.Outcome, len(limits))
			d, err := direct.Ask(t.Context(), "192.0.2.1", stint.Query{Each: each})
			got, short := http.Header{}, http.Header{}
			httplimit.WriteHeaders(got, direct.Policy(), d, each...)
			httplimit.WriteHeaders(short, direct.Policy(), d)
			for field := range got {
				if err != nil || !slices.Equal(got[field], want[field]) {
					t.Errorf("%s: %s is %q, %v; the middleware writes %q", name, field, got[field], err, want[field])
				}
			}
			if fields := len(got); fields < 5 || len(short) != map[bool]int{true: fields, false: fields - 2}[len(limits) == 1] {
				t.Errorf("%s: %v, and without outcomes %v", name, got, short)
			}
		}
	}
}

// A field of a proxy that nobody trusts is told of once.
func TestIgnoredForwarded(t *testing.T) {
	var log bytes.Buffer
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	handler := wrap(t, httplimit.Config{Limiter: limiter(t, stint.FixedWindow(100, time.Minute))}, hello)
	for i, want := range []int{0, 1, 1} {
		r := request(t, http.MethodGet, "/")
		if i > 0 {
			r.Header.Set("X-Forwarded-For", "198.51.100.7")
		}
		send(handler, r)
		if n := strings.Count(log.String(), "a forwarded header is ignored"); n != want {
			t.Errorf("request %d: %d lines, want %d: %s", i, n, want, log.String())
		}
	}
}

// A limit on denials beside others is told of while it denies, and says what it counts.
func TestHeadersOfDenials(t *testing.T) {
	policy := must.Get(stint.NewPolicy("", stint.FixedWindow(2, 10*time.Minute).FromFirst().OfDenials().Named("block"),
		stint.FixedWindow(1, time.Hour).Named("hour")))(t)
	store := memstore.New(memstore.Config{Now: func() time.Time { return time.Unix(3600, 0) }})
	for i, want := range []string{
		`"hour";r=0;t=3600`, `"hour";r=0;t=3600`, `"block";r=0;t=600, "hour";r=0;t=3600`, `"block";r=0;t=600, "hour";r=0;t=3600`,
	} {
		each := make([]stint.Outcome, 2)
		d, err := store.Decide(t.Context(), stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}, Each: each})
		if err != nil {
			t.Fatal(err)
		}
		header := http.Header{}
		httplimit.WriteHeaders(header, policy, d, each...)
		if got := header.Get("RateLimit"); got != want {
			t.Errorf("request %d: RateLimit: %s, want %s", i, got, want)
		}
		if got, want := header.Get("RateLimit-Policy"), `"block";q=2;w=600;qu="denials", "hour";q=1;w=3600`; got != want {
			t.Errorf("RateLimit-Policy: %s, want %s", got, want)
		}
		if i == 0 && header.Get("X-RateLimit-Limit") != "1" {
			t.Errorf("an admission is described by %s permits", header.Get("X-RateLimit-Limit"))
		}
	}
}
