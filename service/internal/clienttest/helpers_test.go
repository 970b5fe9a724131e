package clienttest

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// patience is how long a test waits for what should come at once.
const patience = 5 * time.Minute

// start is the time at which the services' clocks stand.
const start = stint.Instant(1_790_000_050_500_000)

// serve runs a real service on a memory store with the clock, until the test ends,
// and returns its URL.
func serve(t testing.TB, clock *storetest.Clock, change func(*server.Config)) string {
	t.Helper()
	c := server.DefaultConfig()
	c.Listen, c.Store = "127.0.0.1:0", memstore.New(memstore.Config{Now: clock.Now})
	c.Logger = slog.New(slog.DiscardHandler)
	if change != nil {
		change(&c)
	}
	s := must.Get(server.New(c))(t)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the service ended with %v", err)
		}
	})
	select {
	case <-s.Listening():
	case <-time.After(patience):
		t.Fatal("the service does not listen")
	}
	return "http://" + s.Addr().String()
}

// open makes a client that is closed before the service.
func open(t testing.TB, url string, options client.Options) *client.Client {
	t.Helper()
	c := must.Get(client.Open(url, options))(t)
	t.Cleanup(c.Close)
	return c
}

// openRules makes a client of a service with rules.
func openRules(t testing.TB, clock *storetest.Clock, list ...rules.Rule) *client.Client {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	return open(t, serve(t, clock, func(c *server.Config) { c.Rules = set }), client.Options{})
}

// openPolicies makes a client of a service with policies.
func openPolicies(t testing.TB, policies ...*stint.Policy) *client.Client {
	t.Helper()
	return open(t, serve(t, storetest.NewClock(start), withPolicies(policies...)), client.Options{})
}

// bucket is a policy of the service's default token bucket.
func bucket(t testing.TB) *stint.Policy {
	t.Helper()
	return policyOf(t, "", config.DefaultLimits()[stint.AlgorithmTokenBucket])
}

// policyOf makes a policy that is known to be valid.
func policyOf(t testing.TB, name string, limits ...stint.Limit) *stint.Policy {
	t.Helper()
	return must.Get(stint.NewPolicy(name, limits...))(t)
}

// withPolicies configures policies.
func withPolicies(policies ...*stint.Policy) func(*server.Config) {
	return func(c *server.Config) {
		c.Policies = map[string][]stint.Limit{}
		for _, p := range policies {
			c.Policies[p.Name()] = p.Limits()
		}
	}
}

func operation(verb stint.Verb, key string, policy *stint.Policy, permits int64) stint.Op {
	return stint.Op{Verb: verb, Claim: stint.Claim{Key: key, Policy: policy, Permits: permits}}
}

// handle serves what a test answers itself.
func handle(t testing.TB, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return s
}
