// Package demo makes up rules and traffic, to see what stint shows.
package demo

import (
	"context"
	_ "embed" // the rules
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/rulestore"
)

//go:embed demo.json
var rules []byte

// PutRules puts the made-up rules by the manager, like anybody's, with the author demo, so that history and dashboard
// show them. It returns how many they are.
func PutRules(ctx context.Context, manager *rulestore.Manager) (int, error) {
	list, err := rulestore.Decode("the rules of the demo", rules)
	if err != nil {
		return 0, err
	}
	author := rulestore.Author{By: "demo", Action: "replace", Comment: "made up by --demo"}
	_, err = manager.Edit(ctx, author, func(d *rulestore.Draft) error {
		d.Replace(list)
		return nil
	})
	return len(list), err
}

// Traffic makes up traffic. Make it with NewTraffic. It asks the service as a client would, over a transport that
// calls the handler within the process: what the demonstration shows went through all that real requests go through.
type Traffic struct {
	client *client.Client
	logger *slog.Logger
	random *rand.Rand
	second float64 // since it began
}

// NewTraffic makes traffic by a client.
func NewTraffic(by *client.Client, logger *slog.Logger) *Traffic {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it makes up traffic
	return &Traffic{client: by, logger: logger, random: random}
}

// tick is the time between two bursts of requests. It is short enough for the dashboard to show
// curves, and long enough to cost nothing.
const tick = 100 * time.Millisecond

// Run makes the traffic until ctx is done. It ends if the service refuses it, but not if it is overloaded.
func (d *Traffic) Run(ctx context.Context) {
	for ; sleep.For(ctx, tick) == nil; d.second += tick.Seconds() {
		for _, request := range d.burst() {
			_, err := d.client.Evaluate(ctx, request)
			var problem *api.Problem
			if errors.As(err, &problem) && problem.Status != http.StatusServiceUnavailable {
				d.logger.Error("the demonstration has ended", "err", err)
				return
			}
		}
	}
}

// burst is the requests of one tick: 200 users, a few of which make most requests, in waves of two
// minutes; somebody who guesses passwords for 20 seconds of each minute; one user whose client has
// gone wild for 30 seconds of two minutes; and a banned address. Users are drawn by the cube of a
// number from 0 to 1, which makes the first ones heavy: half of all requests come from the first 25
// of the 200. The wave is 4 + 3 sin(2 pi t/120s) requests a tick, which is 10 to 70 a second.
func (d *Traffic) burst() (requests []api.EvaluateRequest) {
	request := func(method, path string, user, address int) {
		r := api.EvaluateRequest{Method: method, Path: path, Host: "demo.example", IP: fmt.Sprintf("198.51.100.%d", address)}
		if user >= 0 {
			r.Attributes = map[string]string{api.AttributeUserID: fmt.Sprintf("demo-user-%d", user)}
		}
		requests = append(requests, r)
	}
	wave := 4 + 3*math.Sin(2*math.Pi*d.second/120)
	for range int(wave) + d.random.IntN(2) {
		user, path := int(math.Pow(d.random.Float64(), 3)*200), "/api/orders"
		switch n := d.random.IntN(20); {
		case n < 2:
			path = "/export"
		case n < 4:
			path = "/api/search"
		case n < 10:
			path = fmt.Sprintf("/api/items/%d", d.random.IntN(1000))
		}
		request(http.MethodGet, path, user, user+1)
	}
	if math.Mod(d.second, 60) < 20 && d.random.IntN(4) == 0 {
		request(http.MethodPost, "/login", -1, 251)
	}
	if math.Mod(d.second, 120) < 30 {
		request(http.MethodGet, "/api/orders", 7, 8)
	}
	if d.random.IntN(20) == 0 {
		requests = append(requests, api.EvaluateRequest{
			Method: http.MethodGet, Path: "/", Host: "demo.example", IP: "203.0.113.66",
		})
	}
	return requests
}
