package redisstore

import (
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

// What each message of the channel makes a process forget.
func TestReceive(t *testing.T) {
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
				policy := must.Get(stint.NewPolicy(known[1:], stint.FixedWindow(1, time.Hour)))(t)
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

// The server decides between sending and receipt: what callers are told counts from the later, and
// for how long the denial answers from the earlier.
func TestDenialCountsFromReceipt(t *testing.T) {
	const sent, received, wait = time.Second, time.Second + 10*time.Millisecond, 100 * time.Millisecond
	policy := must.Get(stint.NewPolicy("p", stint.FixedWindow(1, time.Hour)))(t)
	now := sent
	c := newDenialCache(1000, func() time.Duration { return now })
	c.subscribed()
	mark := c.mark()
	now = received
	claim := stint.Claim{Key: "k", Policy: policy, Permits: 1}
	out := stint.Outcome{RetryAfter: wait, ResetAfter: 2 * wait, GrowsAfter: wait}
	decision := stint.Decision{At: stint.Instant(time.Hour / time.Microsecond), RetryAfter: wait, ResetAfter: 2 * wait}
	c.keep(mark, claim.Key, &denial{policy: policy, permits: 1, decision: decision, outcomes: []stint.Outcome{out}}, wait)
	for _, elapsed := range []time.Duration{0, 5 * time.Millisecond, 89 * time.Millisecond} {
		var each [1]stint.Outcome
		d, hit := c.claim(&claim, 0, received+elapsed, each[:])
		if !hit || d.RetryAfter != wait-elapsed || d.ResetAfter != 2*wait-elapsed ||
			each[0].RetryAfter != wait-elapsed || each[0].ResetAfter != 2*wait-elapsed || each[0].GrowsAfter != wait-elapsed {
			t.Errorf("%v after the reply: %v, %+v, %+v", elapsed, hit, d, each[0])
		}
		if end := d.At.Add(d.RetryAfter); end != decision.At.Add(wait) {
			t.Errorf("%v after the reply: it ends at %v, want %v", elapsed, end, decision.At.Add(wait))
		}
	}
	if d, hit := c.claim(&claim, 0, sent+wait, nil); hit {
		t.Errorf("a wait after sending it still answers: %+v", d)
	}
}
