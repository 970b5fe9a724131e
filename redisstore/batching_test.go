package redisstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stint-go/stint"
	decided "github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

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

// colocate gives all keys of a sequence one hash tag, so that a cluster decides what it has together.
func colocate(t *testing.T, sequence storetest.Sequence) storetest.Sequence {
	t.Helper()
	for i, step := range sequence.Steps {
		renamed := stint.Op{Verb: step.Op.Verb}
		for j := range step.Op.Len() {
			claim, way := step.Op.NthClaim(j)
			tagged := *claim
			tagged.Key = fmt.Sprintf("{%d}%s", sequence.Seed, claim.Key)
			decided.Append(&renamed, tagged, way)
		}
		must.Do(t, renamed.Validate()) // the keys are not too long
		sequence.Steps[i].Op = renamed
	}
	return sequence
}

// Standalone or on a cluster, with warm or cold scripts, however operations are put together into script
// calls, the decisions are the same (docs/internals/engine.md).
func deploymentsAgree(t *testing.T, cluster *testredis.Cluster) {
	clock := storetest.NewClock(dawn)
	own := testredis.Start(t)
	scripts := cold{newStoreAt(t, own, redisstore.Options{Partitions: redisstore.MaxPartitions, Now: clock.Now}), t, own}
	stores := []contender{{"memory", memstore.New(memstore.Config{Now: clock.Now})}, {"cold", scripts}}
	for _, c := range []struct{ batch, inFlight, partitions int }{
		{0, 0, 0}, {1, 4, 2}, {2, 1, 4}, {3, 4, 8}, {50, 4, 4}, {redisstore.MaxMaxBatch, 1, 1},
	} {
		options := redisstore.Options{Now: clock.Now, MaxBatch: c.batch, InFlight: c.inFlight, Partitions: c.partitions}
		stores = append(stores, contender{fmt.Sprintf("one server, %+v", c), newStore(t, options)})
		if c.batch == 0 || c.batch == 3 {
			options.KeyPrefix = fmt.Sprint("batches", c.batch)
			stores = append(stores, contender{fmt.Sprintf("cluster, %+v", c), open(t, cluster.URL(), options)})
		}
	}
	for _, algorithm := range notation.Algorithms() {
		t.Run(algorithm.String(), func(t *testing.T) {
			steps, seeds := 300, uint64(2)
			if testing.Short() {
				steps, seeds = 75, 1
			}
			for seed := range seeds {
				sequence := colocate(t, nearlyForward(storetest.Generate(2000+100*uint64(algorithm)+seed, algorithm, steps)))
				if err := compare(t, clock, stores, sequence); err != nil {
					t.Fatalf("seed %d: %v", sequence.Seed, err)
				}
			}
		})
	}
}
