package rules_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/rules"
)

// In this program each rule says how its requests are decided while the store is unreachable.
func ExampleFailureOf() {
	set, err := rules.Compile([]rules.Rule{
		{ID: "login", Match: rules.Match{Paths: []string{"/login"}}, Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(5, time.Minute)}, OnStoreFailure: rules.FailClosed},
		{ID: "pages", Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.FixedWindow(500, time.Minute)}},
	}, rules.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := failover.New(away{}, failover.Config{ // away is a store in Redis
		Mode: failover.Open,
		ForPolicy: func(policy *stint.Policy) (failover.PolicyOptions, bool) {
			failure := rules.FailureOf(policy)
			options := failover.PolicyOptions{Mode: failover.Open, Timeout: failure.Timeout}
			if failure.Policy != "" {
				mode, err := failover.ParseMode(string(failure.Policy))
				if err != nil {
					return failover.PolicyOptions{}, false
				}
				options.Mode = mode
			}
			return options, failure != rules.Failure{}
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	limiter, err := enforce.New(enforce.Config{Store: store, Set: set})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/", "/login"} {
		var verdict enforce.Verdict
		err := limiter.Decide(context.Background(), &rules.Request{Path: path, Address: "192.0.2.1"}, &verdict)
		fmt.Println(path, verdict.Allowed, errors.Is(err, stint.ErrUnavailable))
	}
	// Output:
	// / true false
	// /login false true
}

// away is a store that can't be asked.
type away struct{}

func (away) Decide(context.Context, stint.Op) (stint.Decision, error) {
	return stint.Decision{}, stint.ErrUnavailable
}

func (a away) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return a.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (away) DecideAll(_ context.Context, _ []stint.Op, results []stint.Result) {
	for i := range results {
		results[i] = stint.Result{Err: stint.ErrUnavailable}
	}
}

func (away) ResetAll(context.Context, stint.Scope) error { return stint.ErrUnavailable }

func (away) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
