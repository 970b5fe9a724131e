package main

import (
	"context"
	"crypto/rand"
	_ "embed" // the rules
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"net/http"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

//go:embed demo.json
var demoRules []byte

const demoHelp = "make up rules and traffic, to see what stint shows: rules demo-*, " +
	"users demo-user-* and addresses for documentation. " +
	"It needs the store memory:// and no rules"

// demonstrable reports why a configuration has no place for a demonstration, and gives one without
// an admin token one, so that clients are shown by name. The token is returned, if it is new. Only
// where nothing real can be disturbed: rules that are made up would decide over real clients, and a
// shared store would keep them.
func demonstrable(c *config.Config) (token string, err error) {
	if !c.Store.Memory() || len(c.Rules) > 0 || c.RulesFrom != "" {
		return "", misused(
			"--demo is given; allowed: only with the store memory:// and without rules and rules_from, as it makes up its own",
		)
	}
	if len(c.Admin.Tokens) == 0 {
		token = rand.Text()
		c.Admin.Tokens = []config.AdminToken{{Token: token, Role: config.RoleWrite, Name: "demo"}}
	}
	return token, nil
}

// A demo makes up traffic. It asks the service as a client would, over a transport that calls the
// handler within the process: what the demonstration shows went through all that real requests go
// through.
type demo struct {
	client *client.Client
	logger *slog.Logger
	random *mathrand.Rand
	second float64 // since it began
}

// demoTick is the time between two bursts of requests. It is short enough for the dashboard to show
// curves, and long enough to cost nothing.
const demoTick = 100 * time.Millisecond

// startDemo makes up rules, and traffic until its end. It tells the token if there is one. The
// rules are stored by the manager like anybody's, with the author demo, so that history and
// dashboard show them.
func (s *serving) startDemo(ctx context.Context) (end func(), err error) {
	list, err := rulestore.Decode("the rules of the demo", demoRules)
	if err != nil {
		return nil, failed(err)
	}
	author := rulestore.Author{By: "demo", Action: "replace", Comment: "made up by --demo"}
	if _, err := s.source.manager.Edit(ctx, author, func(d *rulestore.Draft) error {
		d.Replace(list)
		return nil
	}); err != nil {
		return nil, failed(err)
	}
	options := client.Options{HTTPClient: &http.Client{Transport: inProcess{s.server.Handler()}}}
	if len(s.config.API.Tokens) > 0 {
		options.Token = s.config.API.Tokens[0]
	}
	opened, err := client.Open("http://localhost", options)
	if err != nil {
		return nil, failed(err)
	}
	d := &demo{
		client: opened,
		logger: s.logger,
		random: mathrand.New(mathrand.NewPCG(1, 2)), //nolint:gosec // it makes up traffic
	}
	s.logger.Warn(
		"this is a demonstration: rules and traffic are made up by --demo", "rules", len(list),
		"dashboard", dashboardOf(s.config, s.server),
	)
	if s.token != "" {
		s.logger.Warn("the demonstration made an admin token: see it by stint top --token TOKEN", "admin_token", s.token)
	}
	return component.Run(ctx, d.run), nil
}

// dashboardOf is where the dashboard is, "off" if the service has none.
func dashboardOf(c config.Config, s *server.Server) string {
	addr := s.AdminAddr()
	switch {
	case addr == nil:
		return "off"
	case c.AdminTLS.CertFile != "":
		return "https://" + addr.String() + "/"
	default:
		return "http://" + addr.String() + "/"
	}
}

// run makes the traffic. It ends if the service refuses it, but not if it is overloaded.
func (d *demo) run(ctx context.Context) {
	for ; sleep.For(ctx, demoTick) == nil; d.second += demoTick.Seconds() {
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
func (d *demo) burst() (requests []api.EvaluateRequest) {
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
