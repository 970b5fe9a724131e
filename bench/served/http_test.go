package served

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

var (
	rate  = flag.Int("rate", 4000, "requests per `second` that BenchmarkOpenLoop offers to all processes together")
	limit = "token_bucket:1000000000:1000000000/1s" // that nobody reaches
)

// checkPath is what is asked of a service, and of what stands in for one.
const checkPath = "/api/v1/rate-limit/check?algorithm=TOKEN_BUCKET&key="

// get asks a handler for one key, again and again.
func get(url, limit string) func(testing.TB) figures {
	return func(tb testing.TB) figures {
		return load(tb, "--target", "http", "--url", url, "--limit", limit, "--keys", "1")
	}
}

// BenchmarkService compares the service on memory with a handler that decides nothing and writes the bytes that the service
// wrote once: with every request admitted, and with every request but the first denied.
func BenchmarkService(b *testing.B) {
	for _, path := range []struct{ name, bucket, limit string }{
		{"admitted", "{capacity: 1000000000, refill: 1000000000/1s}", limit},
		{"denied", "{capacity: 1, refill: 1/24h}", "token_bucket:1:1/24h"},
	} {
		b.Run("path="+path.name, func(b *testing.B) {
			addr := testport.Address(b)
			pid := serve(b, "defaults:\n  token_bucket: "+path.bucket+"\n", "--listen", addr, nil)
			fetch(b, "http://"+addr+checkPath+"copied") // spends the single permit
			bare := httptest.NewServer(repeat(fetch(b, "http://"+addr+checkPath+"copied")))
			defer bare.Close()
			race(
				b,
				entrant{"bare", os.Getpid(), true, get(bare.URL+checkPath+"copied", path.limit)},
				entrant{"stint", pid, false, get("http://"+addr+checkPath+"{key}", path.limit)},
			)
		})
	}
}

// An answer is what a server wrote.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func fetch(tb testing.TB, url string) (a answer) {
	tb.Helper()
	request := must.Get(http.NewRequestWithContext(tb.Context(), http.MethodGet, url, nil))(tb)
	response := must.Get(http.DefaultClient.Do(request))(tb)
	defer func() { _ = response.Body.Close() }()
	a.body = must.Get(io.ReadAll(response.Body))(tb)
	a.status, a.header = response.StatusCode, response.Header
	return a
}

// repeat is a handler that writes one answer for every request. What net/http adds by itself is left to it.
func repeat(a answer) http.HandlerFunc {
	delete(a.header, "Date")
	delete(a.header, "Content-Length")
	return func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), a.header)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // the client is gone; nobody to tell
	}
}

// handlers are what is limited: one that does nothing but answer, and one that does about what a
// small API does, a page of 20 items as JSON.
var handlers = map[string]http.HandlerFunc{
	"small": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "Hello, World!") },
	"page": func(w http.ResponseWriter, _ *http.Request) {
		items := make([]item, 20)
		for i := range items {
			items[i] = item{i, fmt.Sprintf("item number %d", i), []string{"new", "used"}, 9.99, time.Unix(1_790_000_000, 0)}
		}
		w.Header()["Content-Type"] = []string{"application/json"}
		_ = json.NewEncoder(w).Encode(items)
	},
}

type item struct {
	ID      int       `json:"id"`
	Name    string    `json:"name"`
	Tags    []string  `json:"tags"`
	Price   float64   `json:"price"`
	Updated time.Time `json:"updated"`
}

// gates are what stands before a handler: nothing; nothing but the five header fields that a rule
// sends, always the same; and one rule, which admits everything, without and with those fields.
var gates = []struct {
	name string
	wrap func(testing.TB, http.Handler) http.Handler
}{
	{"bare", func(_ testing.TB, h http.Handler) http.Handler { return h }},
	{"fields", func(_ testing.TB, h http.Handler) http.Handler { return constant(h) }},
	{"rule-silent", func(tb testing.TB, h http.Handler) http.Handler { return ruled(tb, h, httplimit.NoFields) }},
	{"rule", func(tb testing.TB, h http.Handler) http.Handler { return ruled(tb, h, httplimit.AllFields) }},
}

func constant(h http.Handler) http.Handler {
	fields := http.Header{
		"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"1790000001"},
		"Ratelimit": {`"default";r=999999999;t=1`}, "Ratelimit-Policy": {`"default";q=1000000000`},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), fields)
		h.ServeHTTP(w, r)
	})
}

func ruled(tb testing.TB, h http.Handler, fields httplimit.Fields) http.Handler {
	tb.Helper()
	set := must.Get(rules.Compile([]rules.Rule{{
		ID: "items", Match: rules.Match{Methods: []string{http.MethodGet}, Paths: []string{"/items/{id}"}}, Scope: []string{rules.PerIP},
		Limits: []stint.Limit{stint.TokenBucket(1_000_000_000, stint.PerSecond(1_000_000_000))},
	}}, rules.Options{}))(tb)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set}))(tb)
	limited := must.Get(httplimit.New(httplimit.Config{Rules: limiter, Fields: fields}))(tb)
	return limited.Wrap(h)
}

// BenchmarkMiddleware compares handlers behind every gate, all in this process, one after another.
func BenchmarkMiddleware(b *testing.B) {
	for name, handler := range handlers {
		b.Run("handler="+name, func(b *testing.B) {
			var entrants []entrant
			for _, gate := range gates {
				server := httptest.NewServer(gate.wrap(b, handler))
				defer server.Close()
				entrants = append(entrants, entrant{gate.name, os.Getpid(), false, get(server.URL+"/items/42", limit)})
			}
			race(b, entrants...)
		})
	}
}

// BenchmarkTraces compares the service on memory with 1 % of its traces recorded, and sent by OTLP to a receiver that
// throws them away, with the same without traces. The processor time counts, since the receiver shares the machine.
func BenchmarkTraces(b *testing.B) {
	receiver := httptest.NewServer(handlers["small"])
	defer receiver.Close()
	var entrants []entrant
	for name, exporter := range map[string]string{"off": "none", "on": "otlp"} {
		addr := testport.Address(b)
		pid := serve(b, "defaults:\n  token_bucket: {capacity: 1000000000, refill: 1000000000/1s}\n", "--listen", addr, []string{
			"OTEL_TRACES_EXPORTER=" + exporter, "OTEL_METRICS_EXPORTER=none", "OTEL_EXPORTER_OTLP_ENDPOINT=" + receiver.URL,
			"OTEL_TRACES_SAMPLER=parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.01",
		})
		entrants = append(entrants, entrant{name, pid, false, get("http://"+addr+checkPath+"{key}", limit)})
	}
	race(b, entrants...)
}

// BenchmarkOpenLoop offers checks at a rate to one, then to four processes on one Redis, by a `stint bench` for each. Each
// client is asked once in 2.5 s, so that some are denied. A store that fails must not look like an admission.
func BenchmarkOpenLoop(b *testing.B) {
	const policy, clients, callers = "on_store_failure: closed\npolicies: {api: [{algorithm: token_bucket, capacity: 2, refill: 1/4s}]}\n", 10_000, 200
	for _, n := range []int{1, 4} {
		b.Run(fmt.Sprintf("processes=%d", n), func(b *testing.B) {
			redis := testredis.Start(b)
			addrs := make([]string, n)
			for i := range addrs {
				addrs[i] = testport.Address(b)
				serve(b, policy, "--listen", addrs[i], nil, "--store", redis.URL())
			}
			for b.Loop() {
				found := make([]figures, n)
				var all sync.WaitGroup
				for i, addr := range addrs {
					all.Go(func() {
						found[i] = load(b, strings.Fields(fmt.Sprintf(
							"--target rest --server http://%s --policy api --limit token_bucket:2:1/4s --rate %d/%ds --callers %d --keys %d",
							addr, *rate, n, callers/n, clients/n,
						))...)
					})
				}
				all.Wait()
				var sum figures
				for _, f := range found {
					sum.add(f)
				}
				report(b, sum)
			}
		})
	}
}
