package migrate_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/didip/tollbooth/v8"
	"github.com/didip/tollbooth/v8/limiter"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
)

func tenByTollbooth() http.Handler {
	mux := hello()
	lmt := tollbooth.NewLimiter(10, nil)
	lmt.SetIPLookup(limiter.IPLookup{Name: "RemoteAddr"})
	handler := tollbooth.LimitHandler(lmt, mux)
	return handler
}

func ten(t *testing.T) http.Handler {
	t.Helper()
	mux := hello()
	limiter := must.Get(stint.New(newStore(), "api", stint.TokenBucket(10, stint.PerSecond(10))))(t)
	handler := httplimit.PerAddress(limiter).Wrap(mux)
	return handler
}

// Of a client that asks once more than its bucket holds, the last request is denied.
func TestTen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, handler := range map[string]http.Handler{"tollbooth": tenByTollbooth(), "stint": ten(t)} {
			for i := range 11 {
				if got := from(t, handler, "192.0.2.1:1").Code; (got == http.StatusOK) != (i < 10) {
					t.Errorf("%s, request %d: %d", name, i, got)
				}
			}
			if got := from(t, handler, "192.0.2.2:1").Code; got != http.StatusOK {
				t.Errorf("%s, another client: %d", name, got)
			}
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(100 * time.Millisecond)
			if got := from(t, handler, "192.0.2.1:1").Code; got != http.StatusOK {
				t.Errorf("%s, a tenth of a second later: %d", name, got)
			}
		}
	})
}

func postsByTollbooth() http.Handler {
	mux := hello()
	lmt := tollbooth.NewLimiter(1, nil)
	lmt.SetIPLookup(limiter.IPLookup{Name: "X-Forwarded-For", IndexFromRight: 0})
	lmt.SetIgnoreURL(true)
	lmt.SetMethods([]string{http.MethodPost})
	lmt.SetMessage("Slow down.")
	//nolint:gosec // the path is quoted
	lmt.SetOnLimitReached(func(_ http.ResponseWriter, r *http.Request) { log.Printf("denied: %q", r.URL.Path) })
	handler := tollbooth.LimitHandler(lmt, mux)
	return handler
}

func posts(t *testing.T) http.Handler {
	t.Helper()
	mux := hello()
	limiter := must.Get(stint.New(newStore(), "posts", stint.TokenBucket(1, stint.PerSecond(1))))(t)
	clients, err := clientip.New(clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	limit := must.Get(httplimit.New(httplimit.Config{
		Limiter: limiter,
		Clients: clients,
		Cost: func(r *http.Request) (int64, error) {
			if r.Method != http.MethodPost {
				return 0, nil // admitted, and not counted
			}
			return 1, nil
		},
		Denied: func(w http.ResponseWriter, r *http.Request, _ *enforce.Verdict) {
			//nolint:gosec // the path is quoted
			log.Printf("denied: %q", r.URL.Path)
			http.Error(w, "Slow down.", http.StatusTooManyRequests)
		},
	}))(t)
	handler := limit.Wrap(mux)
	return handler
}

// Behind a proxy, clients may POST once a second, whatever the path.
func TestPosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := log.Writer()
		log.SetOutput(io.Discard)
		defer log.SetOutput(logged)
		for name, handler := range map[string]http.Handler{"tollbooth": postsByTollbooth(), "stint": posts(t)} {
			const proxy, ann, ben = "10.1.2.3", "192.0.2.1", "192.0.2.2"
			for i, c := range []struct {
				method, path, client string
				want                 int
			}{
				{"POST", "/a", ann, 200},
				{"POST", "/b", ann, 429},
				{"GET", "/a", ann, 200},
				{"POST", "/a", ben, 200},
			} {
				w := ask(t, handler, proxy, c.method, c.path, c.client)
				if w.Code != c.want || w.Code == 429 && strings.TrimSpace(w.Body.String()) != "Slow down." {
					t.Errorf("%s, request %d: %d %s", name, i, w.Code, w.Body)
				}
			}
		}
	})
}

// A peer that is no proxy may write what it likes into X-Forwarded-For. tollbooth believes it, and stint does not.
func TestForged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logged := log.Writer()
		log.SetOutput(io.Discard)
		defer log.SetOutput(logged)
		for name, c := range map[string]struct {
			handler http.Handler
			want    int
		}{"tollbooth": {postsByTollbooth(), http.StatusOK}, "stint": {posts(t), http.StatusTooManyRequests}} {
			for i := range 10 {
				want := map[bool]int{true: http.StatusOK, false: c.want}[i == 0]
				if got := ask(t, c.handler, "192.0.2.9", "POST", "/", "192.0.2."+strconv.Itoa(i)).Code; got != want {
					t.Errorf("%s, request %d: %d; want %d", name, i, got, want)
				}
			}
		}
	})
}

// Without SetIPLookup, LimitHandler limits nobody; HTTPMiddleware takes the peer's address then.
func TestNoLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			handler http.Handler
			second  int
		}{
			"LimitHandler":   {tollbooth.LimitHandler(tollbooth.NewLimiter(1, nil), hello()), http.StatusOK},
			"HTTPMiddleware": {tollbooth.HTTPMiddleware(tollbooth.NewLimiter(1, nil))(hello()), http.StatusTooManyRequests},
		} {
			from(t, c.handler, "192.0.2.1:1")
			if got := from(t, c.handler, "192.0.2.1:1").Code; got != c.second {
				t.Errorf("%s: %d; want %d", name, got, c.second)
			}
		}
	})
}

// A bucket of tollbooth is a client's at one path, unless SetIgnoreURL is set.
func TestPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			handler  http.Handler
			admitted int
		}{"tollbooth": {tenByTollbooth(), 100}, "stint": {ten(t), 10}} {
			admitted := 0
			for i := range 100 {
				if ask(t, c.handler, "192.0.2.1", "GET", "/"+strconv.Itoa(i), "").Code == http.StatusOK {
					admitted++
				}
			}
			if admitted != c.admitted {
				t.Errorf("%s admits %d of 100 requests for other paths; want %d", name, admitted, c.admitted)
			}
		}
	})
}

// The header fields of a denial.
func TestFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			handler http.Handler
			fields  []string
		}{
			"tollbooth": {tenByTollbooth(), []string{
				"Ratelimit-Limit: 10", "Ratelimit-Remaining: 0", "Ratelimit-Reset: 1", "X-Rate-Limit-Duration: 1",
				"X-Rate-Limit-Limit: 10.00", "X-Rate-Limit-Request-Remote-Addr: 192.0.2.1:1",
			}},
			"stint": {ten(t), []string{
				`Ratelimit-Policy: "default";q=10;w=1`, `Ratelimit: "default";r=0;t=1`, "Retry-After: 1",
				"X-Ratelimit-Limit: 10", "X-Ratelimit-Remaining: 0", "X-Ratelimit-Reset: 946684801",
			}},
		} {
			var w *httptest.ResponseRecorder
			for range 11 {
				w = from(t, c.handler, "192.0.2.1:1")
			}
			var fields []string
			for field, values := range w.Header() {
				if strings.Contains(strings.ToLower(field), "rate") || field == "Retry-After" {
					fields = append(fields, field+": "+strings.Join(values, ","))
				}
			}
			slices.Sort(fields)
			if !slices.Equal(fields, c.fields) {
				t.Errorf("%s: %q; want %q", name, fields, c.fields)
			}
		}
	})
}

func TestExport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		user := "ann"
		limiter := must.Get(stint.New(newStore(), "export", stint.TokenBucket(1, stint.Every(5*time.Second))))(t)
		export := func(w http.ResponseWriter, r *http.Request) {
			decision, err := limiter.Allow(r.Context(), user)
			if err != nil {
				http.Error(w, "try again later", http.StatusServiceUnavailable)
				return
			}
			httplimit.WriteHeaders(w.Header(), limiter.Policy(), decision)
			if !decision.Allowed {
				http.Error(w, "too many requests", http.StatusTooManyRequests)
				return
			}
			_, _ = io.WriteString(w, "a,b,c")
		}
		lmt := tollbooth.NewLimiter(0.2, nil) // one in 5 seconds, and a burst of 1
		for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
			if got := from(t, http.HandlerFunc(export), "192.0.2.1:1").Code; got != want {
				t.Errorf("stint: %d; want %d", got, want)
			}
			if denied := tollbooth.LimitByKeys(lmt, []string{"export", user}); (denied != nil) != (i == 1) {
				t.Errorf("tollbooth, export %d: %v", i, denied)
			}
		}
	})
}
