package clienttest

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

// teams are an organisation's limit of 20, of which team search is sure of 4, and a limit on all with few permits left.
func teams(t *testing.T) *rules.Set {
	t.Helper()
	slow := func(capacity int64) stint.Limit { return stint.TokenBucket(capacity, stint.Per(1, 100*time.Hour)) }
	return must.Get(rules.Compile([]rules.Rule{
		{ID: "org", Scope: []string{rules.Global}, Limits: []stint.Limit{slow(20)}},
		{
			ID: "team", Within: "org", Scope: []string{rules.Custom("team")}, Missing: rules.MissingSkip, Cost: rules.Cost{Attribute: "n", Permits: 1}, MaxCost: 6,
			Guaranteed: map[string]rules.Floor{"search": {Capacity: 4, Refill: stint.Per(1, 300*time.Hour)}}, Borrow: rules.Borrow{Any: true},
		},
		{ID: "few", Match: rules.Match{Paths: []string{"/few"}}, Scope: []string{rules.Global}, Limits: []stint.Limit{slow(2)}},
	}, rules.Options{}))(t)
}

// A settlement by a service's rules refunds a loan to the organisation alone, and a floor's request to both, on each store.
func TestSettleByTheWay(t *testing.T) {
	t.Run("memory", func(t *testing.T) { testSettleByTheWay(t, nil) })
	t.Run("redis", func(t *testing.T) {
		conn := must.Get(rueidis.Dial(rueidis.Config{URL: testredis.Start(t).URL()}))(t)
		store := must.Get(redisstore.New(conn, redisstore.Options{}))(t)
		t.Cleanup(store.Close)
		testSettleByTheWay(t, store)
	})
}

func testSettleByTheWay(t *testing.T, store stint.Store) {
	c := open(t, serve(t, storetest.NewClock(start), func(config *server.Config) {
		if config.Rules = teams(t); store != nil {
			config.Store = store
		}
	}), client.Options{})
	ask := func(path, n string) (api.EvaluateResponse, api.SettleRulesRequest) {
		t.Helper()
		request := api.EvaluateRequest{Path: path, Attributes: map[string]string{"team": "search", "n": n}}
		answer := must.Get(c.Evaluate(t.Context(), request))(t)
		return answer, api.SettleRulesRequest{EvaluateRequest: request, Via: answer.Via, Vias: answer.Vias}
	}
	settle := func(what string, s api.SettleRulesRequest, permits, remaining int64) {
		t.Helper()
		s.Permits = permits
		if got, err := c.SettleRules(t.Context(), s); err != nil || got.Applied != permits || got.Rest == nil || got.Remaining != remaining {
			t.Errorf("%s: %+v, %v, want %d left", what, got, err, remaining)
		}
	}
	// The floor has 4 of 4, the organisation 20 of 20.
	floor, bySearch := ask("/", "3")
	loan, byLoan := ask("/", "5")
	if floor.Via != "guaranteed" || loan.Via != "borrowed" || loan.Vias != nil {
		t.Fatalf("%+v, %+v", floor, loan)
	}
	settle("a loan is charged nothing", byLoan, 0, 8) // 20 less 3 and 5, and the 4 of the floor
	settle("a loan is refunded", byLoan, -4, 12)
	settle("the floor is as it was", bySearch, 0, 1)
	settle("a floor is refunded", bySearch, -2, 3)
	settle("to the organisation, too", byLoan, 0, 14)
	settle("a floor is charged", bySearch, 1, 2)
	settle("with the organisation", byLoan, 0, 13)

	answer, both := ask("/few", "1")
	if want := map[string]string{"team": "guaranteed"}; answer.Rule != "few" || answer.Via != "" || !maps.Equal(answer.Vias, want) {
		t.Errorf("%+v, want %v in vias", answer, want)
	}
	settle("of another rule than the one that decides", both, -1, 2)

	for want, s := range map[string]api.SettleRulesRequest{
		"via is missing; allowed: by what rule team charged the request, as its decision said: guaranteed or borrowed": {},
		`via is \"limits\"; allowed: by what rule team charged the request`:                                            {Via: "limits"},
		`vias.team is \"limits\"`: {Via: "borrowed", Vias: map[string]string{"team": "limits"}},
	} {
		s.EvaluateRequest, s.Permits = both.EvaluateRequest, 1
		_, err := c.SettleRules(t.Context(), s)
		if want = strings.ReplaceAll(want, `\`, ""); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	settle("nothing was settled", both, 0, 2)
}
