package rulesapi

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// An operator knows the address of a customer, not the network by which it is counted, nor that a rule counted it by
// address for want of an API key.
func TestClientKeysOfAddresses(t *testing.T) {
	limits := []stint.Limit{stint.FixedWindow(1, 1e9)}
	set := must.Get(rules.Compile([]rules.Rule{
		{ID: "login", Scope: []string{rules.PerIP}, Limits: limits},
		{ID: "api", Scope: []string{rules.PerAPIKey}, Missing: rules.MissingIP, Limits: limits},
	}, rules.Options{IPv6Prefix: 56}))(t)
	limiter := must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set}))(t)
	a := must.Get(New(Config{Limiter: limiter, IPv6Prefix: 56, Registerer: prometheus.NewRegistry()}))(t)
	for client, want := range map[string]string{
		"192.0.2.1":              "192.0.2.1",
		"2001:db8:0:4711::1":     "2001:db8:0:4700::/56",
		"2001:DB8:0:4711:0::0:1": "2001:db8:0:4700::/56",
		"::ffff:192.0.2.1":       "192.0.2.1",
	} {
		keys := a.ClientKeys(client)
		if !slices.Contains(keys, client) || !slices.Contains(keys, want) || !slices.Contains(keys, `\ip:`+want) {
			t.Errorf("the keys of %s are %q", client, keys)
		}
	}
	if keys := a.ClientKeys("ann"); slices.ContainsFunc(keys, func(key string) bool { return key[0] == '\\' && key[1] == 'i' }) {
		t.Errorf("the keys of a user are %q", keys)
	}
}
