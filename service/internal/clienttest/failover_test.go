package clienttest

import (
	"context"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/storetest"
)

// A service that was unreachable decides again for callers that use package failover, although it does not
// know the policy that failover probes a store with.
func TestFailoverOfAService(t *testing.T) {
	policy := policyOf(t, "api", stint.FixedWindow(1000, time.Hour))
	target := must.Get(url.Parse(serve(t, storetest.NewClock(start), withPolicies(policy))))(t)
	proxy := httputil.NewSingleHostReverseProxy(target)
	var away atomic.Bool
	front := handle(t, func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		proxy.ServeHTTP(w, r)
	})
	guard := failover.Config{Mode: failover.Open, Timeout: patience}
	store := must.Get(failover.New(open(t, front.URL, client.Options{}), guard))(t)
	t.Cleanup(store.Close)
	degraded := func(want bool) {
		t.Helper()
		late, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			if d := must.Get(store.Decide(late, operation(stint.VerbTake, "k", policy, 1)))(t); d.Degraded == want {
				return
			}
		}
	}
	degraded(false)
	away.Store(true)
	degraded(true)
	for store.Down() == nil { // so many failures in a row take it away
		degraded(true)
	}
	away.Store(false)
	degraded(false)
}
