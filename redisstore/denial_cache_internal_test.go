package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// What each message of the channel makes a process forget.
func TestHear(t *testing.T) {
	const one, both = "\x00\x01k", "\x00\x01k\x00\x01l"
	for name, row := range map[string]struct {
		message  string
		kept     []string // clients and policies of those that are remembered
		policies []string // that were told
		missed   int      // times that it was told that some may not have been
	}{
		"nothing":                {"", []string{"ka", "kb", "la"}, nil, 0},
		"a client":               {one, []string{"la"}, nil, 0},
		"two clients":            {both, nil, nil, 0},
		"a policy":               {"\x00\x00\x00\x01a", []string{"kb"}, []string{"a"}, 0},
		"a policy and a client":  {"\x00\x00\x00\x01b\x00\x01l", []string{"ka"}, []string{"b"}, 0},
		"the policy without one": {"\x00\x00\x00\x00", []string{"ka", "kb", "la"}, []string{""}, 0},
		"no policy behind":       {"\x00\x00", nil, nil, 1},
		"cut short":              {"\x00\x09k", nil, nil, 1},
		"one byte":               {"\x01", nil, nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newDenialCache(1000, func() time.Duration { return 0 })
			var policies []string
			c.onPolicyReset = func(policy string) { policies = append(policies, policy) }
			missed := 0
			c.onMissed = func() { missed++ }
			c.subscribed()
			var claims []stint.Claim
			for _, known := range []string{"ka", "kb", "la"} {
				policy, err := stint.NewPolicy(known[1:], stint.FixedWindow(1, time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				claims = append(claims, stint.Claim{Key: known[:1], Policy: policy, Permits: 1})
			}
			before := c.mark()
			keep := func() {
				for _, claim := range claims {
					c.keep(before, claim.Key, &denial{policy: claim.Policy, permits: 1, decision: stint.Decision{RetryAfter: time.Hour}}, time.Hour)
				}
			}
			kept := func() (known []string) {
				for i := range claims {
					if _, hit := c.claim(&claims[i], 0, 0, nil); hit {
						known = append(known, claims[i].Key+claims[i].Policy.Name())
					}
				}
				return known
			}
			keep()
			c.receive(row.message)
			if got := kept(); !slices.Equal(got, row.kept) || int(c.entries.Load()) != len(row.kept) {
				t.Errorf("%q is remembered, of %d, want %q", got, c.entries.Load(), row.kept)
			}
			if !slices.Equal(policies, row.policies) {
				t.Errorf("the policies %q were forgotten, want %q", policies, row.policies)
			}
			if missed != row.missed {
				t.Errorf("%d messages could not be read, want %d", missed, row.missed)
			}
			keep() // what was sent before does not come back
			if got := kept(); !slices.Equal(got, row.kept) {
				t.Errorf("%q is remembered again, want %q", got, row.kept)
			}
		})
	}
}
