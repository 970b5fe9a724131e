package migrate_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
)

// byUlule admits two requests in ten seconds.
func byUlule() http.Handler {
	store := memory.NewStoreWithOptions(limiter.StoreOptions{Prefix: "test"}) // without a goroutine that cleans
	limit := limiter.New(store, limiter.Rate{Limit: 2, Period: 10 * time.Second})
	return stdlib.NewMiddleware(limit).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// byStint does so, too.
func byStint(t *testing.T, config clientip.Config) http.Handler {
	t.Helper()
	clients, err := clientip.New(config)
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := stint.New(memstore.New(memstore.Config{}), "api", stint.FixedWindow(2, 10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	limit, err := httplimit.New(httplimit.Config{Limiter: limiter, Clients: clients})
	if err != nil {
		t.Fatal(err)
	}
	return limit.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

// from asks a handler from an address.
func from(t *testing.T, handler http.Handler, address string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = address
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

// ulule's window begins with a client's first request, and stint's at a multiple of its length.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at midnight
		ulule, ours := byUlule(), byStint(t, clientip.Config{})
		began := time.Now()
		for _, step := range []struct {
			at          time.Duration
			ulule, ours int
		}{
			{7 * time.Second, 200, 200},
			{8 * time.Second, 200, 200},
			{9 * time.Second, 429, 429},
			{10 * time.Second, 429, 200},
			{16 * time.Second, 429, 200},
			{18 * time.Second, 200, 429},
			{20 * time.Second, 200, 200},
		} {
			//nolint:forbidigo // in a synctest bubble
			time.Sleep(step.at - time.Since(began))
			if code := from(t, ulule, "192.0.2.1:1").Code; code != step.ulule {
				t.Errorf("ulule after %s: %d; want %d", step.at, code, step.ulule)
			}
			if code := from(t, ours, "192.0.2.1:1").Code; code != step.ours {
				t.Errorf("stint after %s: %d; want %d", step.at, code, step.ours)
			}
		}
	})
}

// What a denied client gets.
func TestDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ulule, ours := byUlule(), byStint(t, clientip.Config{})
		var denials []*httptest.ResponseRecorder
		for _, handler := range []http.Handler{ulule, ours} {
			from(t, handler, "192.0.2.1:1")
			from(t, handler, "192.0.2.1:1")
			denials = append(denials, from(t, handler, "192.0.2.1:1"))
		}
		fields := func(w *httptest.ResponseRecorder) (names []string) {
			for name := range w.Header() {
				if strings.Contains(name, "Ratelimit") || name == "Retry-After" {
					names = append(names, strings.ToLower(name))
				}
			}
			slices.Sort(names)
			return names
		}
		theirs, mine := denials[0], denials[1]
		common := []string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}
		if got := fields(theirs); !slices.Equal(got, common) || theirs.Body.String() != "Limit exceeded\n" {
			t.Errorf("ulule: %q, %q", got, theirs.Body)
		}
		var problem map[string]any
		err := json.Unmarshal(mine.Body.Bytes(), &problem)
		if got := fields(mine); !slices.Equal(got, append([]string{"ratelimit", "ratelimit-policy", "retry-after"}, common...)) || err != nil {
			t.Errorf("stint: %q, %q, %v", got, mine.Body, err)
		}
	})
}

// ulule counts an IPv6 client by its address, and stint by its network.
func TestNetworks(t *testing.T) {
	for name, c := range map[string]struct {
		handler http.Handler
		third   int
	}{
		"ulule":          {byUlule(), http.StatusOK},
		"stint":          {byStint(t, clientip.Config{}), http.StatusTooManyRequests},
		"stint, all 128": {byStint(t, clientip.Config{IPv6Prefix: 128}), http.StatusOK},
	} {
		codes := []int{}
		for _, address := range []string{"[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1"} {
			codes = append(codes, from(t, c.handler, address).Code)
		}
		if !slices.Equal(codes, []int{http.StatusOK, http.StatusOK, c.third}) {
			t.Errorf("%s: three addresses of one network get %d", name, codes)
		}
	}
}
