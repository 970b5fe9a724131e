package rules_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
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
	away := storetest.NewFaulty(memstore.New(memstore.Config{})) // in the place of a store in Redis
	away.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	store, err := failover.New(away, failover.Config{
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
