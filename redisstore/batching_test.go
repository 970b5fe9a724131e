package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stint-go/stint"
	decided "github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// How operations are put together into script calls changes no decision: each way
// stands up to the oracle.
func TestBatchingConforms(t *testing.T) {
	sequences, operations := 2, 250 // for each algorithm
	if testing.Short() {
		sequences, operations = 1, 100
	}
	next := uint64(100_000)
	for _, batch := range []int{1, 2, 50, redisstore.MaxMaxBatch} {
		for _, inFlight := range []int{1, 4} {
			seed := next
			next += uint64(sequences * len(notation.Algorithms()))
			t.Run(fmt.Sprintf("batch=%d/inFlight=%d", batch, inFlight), func(t *testing.T) {
				t.Parallel()
				clock := storetest.NewClock(dawn)
				store := newStore(t, redisstore.Options{MaxBatch: batch, InFlight: inFlight, Partitions: 1 << (batch % 3), Now: clock.Now})
				for _, algorithm := range notation.Algorithms() {
					for range sequences {
						sequence := storetest.Generate(seed, algorithm, operations)
						if err := storetest.Replay(t.Context(), store, clock, sequence); err != nil {
							t.Fatalf("%s, seed %d: %v", algorithm, seed, err)
						}
						seed++
					}
				}
			})
		}
	}
}

// cold is a store whose server forgets its scripts before every call.
type cold struct {
	stint.Store
	t   testing.TB
	own *testredis.Server
}

func (c cold) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return c.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (c cold) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if _, err := c.own.Do("SCRIPT", "FLUSH"); err != nil {
		c.t.Error(err)
	}
	c.Store.DecideAll(ctx, ops, results)
}

// colocate gives keys that come together in an operation of the sequence one hash
// tag, and other keys others, so that a cluster accepts the sequence.
func colocate(sequence storetest.Sequence) storetest.Sequence {
	tag := map[string]string{}
	find := func(key string) string {
		for tag[key] != key {
			if tag[key] == "" {
				tag[key] = key
			}
			key = tag[key]
		}
		return key
	}
	for _, step := range sequence.Steps {
		for i := range step.Op.Len() {
			claim, _ := step.Op.NthClaim(i)
			tag[find(claim.Key)] = find(step.Op.First().Key)
		}
	}
	numbers := map[string]int{}
	rename := func(key string) string {
		root := find(key)
		if _, known := numbers[root]; !known {
			numbers[root] = len(numbers)
		}
		// The sequences' keys start with their seed.
		return fmt.Sprintf("{%d.%d}%s", sequence.Seed, numbers[root], key)
	}
	steps := make([]storetest.Step, len(sequence.Steps))
	for i, step := range sequence.Steps {
		renamed := stint.Op{Verb: step.Op.Verb}
		for j := range step.Op.Len() {
			claim, way := step.Op.NthClaim(j)
			tagged := *claim
			tagged.Key = rename(claim.Key)
			decided.Append(&renamed, tagged, way)
		}
		step.Op = renamed
		steps[i] = step
	}
	return storetest.Sequence{Seed: sequence.Seed, Steps: steps}
}

// fitting cuts keys that the tag makes too long.
func fitting(sequence storetest.Sequence) bool {
	for _, step := range sequence.Steps {
		if step.Op.Validate() != nil {
			return false
		}
	}
	return true
}

// Standalone or on a cluster, with warm or cold scripts, the decisions are the same
// (docs/internals/engine.md). On one server with warm scripts other tests hold them
// to the same, batched or not.
func TestDeploymentsAgree(t *testing.T) {
	cluster := testredis.StartCluster(t, 3)
	clock := storetest.NewClock(dawn)
	own := testredis.Start(t)
	scripts := cold{newStoreAt(t, own, redisstore.Options{Partitions: redisstore.MaxPartitions, Now: clock.Now}), t, own}
	stores := []contender{{"memory", memstore.New(memstore.Config{Now: clock.Now})}, {"cold", scripts}}
	for _, options := range []redisstore.Options{{KeyPrefix: "one"}, {KeyPrefix: "other", MaxBatch: 3, InFlight: 4, Partitions: 8}} {
		options.Now = clock.Now
		stores = append(stores, contender{fmt.Sprintf("cluster with batches of %d", options.MaxBatch), open(t, cluster.URL(), options)})
	}
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			steps := 300
			if testing.Short() {
				steps = 75
			}
			for seed := range uint64(2) {
				sequence := colocate(nearlyForward(storetest.Generate(2000+100*uint64(algorithm)+seed, algorithm, steps)))
				if !fitting(sequence) {
					t.Fatalf("seed %d: keys are too long", sequence.Seed)
				}
				if err := compare(t, clock, stores, sequence); err != nil {
					t.Fatalf("seed %d: %v", sequence.Seed, err)
				}
			}
		})
	}
}
