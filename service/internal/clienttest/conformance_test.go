package clienttest

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// TestDecisionsMatchTheOracle replays the conformance suite's random sequences, cut down
// to what the REST API tells in full, through a client and a service on a memory
// store. Every field of every decision has to be the oracle's.
func TestDecisionsMatchTheOracle(t *testing.T) {
	const operations = 300
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			decided, kept := map[stint.Verb]int{}, 0
			for seed := range uint64(seeds) {
				sequence, policies := askable(t, storetest.Generate(seed+1, algorithm, operations))
				clock := storetest.NewClock(start)
				c := open(t, serve(t, clock, withPolicies(policies...)), client.Options{})
				if err := storetest.Replay(t.Context(), c, clock, sequence); err != nil {
					t.Fatalf("seed %d: %v\n%s", seed+1, err, sequence)
				}
				for _, step := range sequence.Steps {
					decided[step.Op.Verb]++
					kept += min(1, int(step.Op.Keep))
				}
			}
			for verb, least := range map[stint.Verb]int{stint.VerbTake: 800, stint.VerbTry: 50, stint.VerbPeek: 100, stint.VerbSettle: 50} {
				if decided[verb] < least*seeds/12 {
					t.Errorf("only %d operations were compared with verb %s", decided[verb], verb)
				}
			}
			if kept < 100*seeds/12 {
				t.Errorf("only %d operations kept permits for others", kept)
			}
		})
	}
}

// askable keeps the operations that the service can be asked for and answers in full, which
// leaves out resets, and gives every policy a name of its own.
func askable(t *testing.T, sequence storetest.Sequence) (storetest.Sequence, []*stint.Policy) {
	t.Helper()
	var named []*stint.Policy
	names := map[*stint.Policy]*stint.Policy{}
	kept := storetest.Sequence{Seed: sequence.Seed}
	for _, step := range sequence.Steps {
		if !tellable(&step.Op) {
			continue
		}
		policy := names[step.Op.Policy]
		if policy == nil {
			policy = policyOf(t, fmt.Sprintf("p%d", len(named)), step.Op.Policy.Limits()...)
			names[step.Op.Policy] = policy
			named = append(named, policy)
		}
		claim := &step.Op.Claim
		step.Op.Claim = stint.Claim{Key: claim.Key, Policy: policy, Permits: claim.Permits, Keep: claim.Keep} // a client names no way
		step.Op.And, step.Op.Extra, step.Each = nil, nil, false
		kept.Steps = append(kept.Steps, step)
	}
	return kept, named
}

func tellable(op *stint.Op) bool {
	if op.Verb == stint.VerbReset || op.Groups() != nil || op.Verb == stint.VerbSettle && op.Keep > 0 && op.Policy.Len() > 1 || strings.Contains(op.Key, "\x00") || !utf8.ValidString(op.Key) {
		return false
	}
	seen := map[stint.Algorithm]bool{}
	for _, limit := range op.Policy.Limits() {
		if op.Verb != stint.VerbSettle && op.Permits > limit.Capacity || op.Keep > limit.Capacity || op.Verb == stint.VerbTry && (limit.CountDenied || limit.Denials) || seen[limit.Algorithm] {
			return false
		}
		seen[limit.Algorithm] = true // so that the deciding limit is found
	}
	return true
}

// TestOtherVerbsMatchTheOracle drives the oracle beside the client with
// every verb, and compares what the answers tell.
func TestOtherVerbsMatchTheOracle(t *testing.T) {
	for _, limit := range []stint.Limit{
		stint.TokenBucket(5, stint.PerMinute(7)), stint.LeakyBucket(5, stint.PerMinute(7)), stint.FixedWindow(5, 10e9),
		stint.SlidingWindowLog(5, 10e9), stint.SlidingWindowCounter(5, 10e9),
	} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			clock := storetest.NewClock(start)
			url := serve(t, clock, func(c *server.Config) { c.Defaults = map[stint.Algorithm]stint.Limit{limit.Algorithm: limit} })
			c, model := open(t, url, client.Options{Defaults: []stint.Limit{limit}}), oracle.New(0)
			policy := policyOf(t, "", limit)
			leaky := limit.Algorithm == stint.AlgorithmLeakyBucket
			for i, op := range []stint.Op{
				operation(stint.VerbTake, "k", policy, 3), operation(stint.VerbPeek, "k", policy, 2), operation(stint.VerbPeek, "k", policy, 3),
				operation(stint.VerbPeek, "k", policy, 5), operation(stint.VerbTry, "k", policy, 3), operation(stint.VerbSettle, "k", policy, 4),
				operation(stint.VerbPeek, "k", policy, 1), operation(stint.VerbSettle, "k", policy, -6), operation(stint.VerbTake, "k", policy, 4),
				operation(stint.VerbReset, "k", policy, 0), operation(stint.VerbPeek, "k", policy, 5), operation(stint.VerbTake, "k", policy, 5),
			} {
				clock.Advance(1_300e6)
				if leaky && op.Permits < 0 {
					continue
				}
				got := make([]stint.Outcome, 1)
				a := model.Decide(op, clock.Instant())
				w, want := a.Decision, a.Each
				if op.Verb != stint.VerbReset {
					op.Each = got
				}
				d, err := c.Decide(t.Context(), op)
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if op.Verb == stint.VerbReset {
					w = stint.Decision{Allowed: true}
				}
				if d != w {
					t.Errorf("step %d: %s says\n%+v, the oracle\n%+v", i, op.Verb, d, w)
				}
				if op.Verb == stint.VerbReset {
					continue
				}
				o := got[0]
				if o.GrowsAfter < want[0].GrowsAfter || o.GrowsAfter > o.ResetAfter {
					t.Errorf("step %d: grows after %s, the oracle's after %s", i, o.GrowsAfter, want[0].GrowsAfter)
				}
				o.GrowsAfter = want[0].GrowsAfter
				if o != want[0] {
					t.Errorf("step %d: outcome %+v, the oracle's %+v", i, o, want[0])
				}
			}
		})
	}
}
