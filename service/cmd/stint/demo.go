package main

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/demo"
	"github.com/stint-go/stint/service/internal/server"
)

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

// startDemo makes up rules, and traffic until its end. It tells the token if there is one.
func (s *serving) startDemo(ctx context.Context) (end func(), err error) {
	n, err := demo.PutRules(ctx, s.source.Manager)
	if err != nil {
		return nil, err
	}
	options := client.Options{HTTPClient: &http.Client{Transport: inProcess{s.server.Handler()}}}
	if len(s.config.API.Tokens) > 0 {
		options.Token = s.config.API.Tokens[0]
	}
	opened, err := client.Open("http://localhost", options)
	if err != nil {
		return nil, err
	}
	s.logger.Warn(
		"this is a demonstration: rules and traffic are made up by --demo", "rules", n,
		"dashboard", dashboardOf(s.config, s.server),
	)
	if s.token != "" {
		s.logger.Warn("the demonstration made an admin token: see it by stint top --token TOKEN", "admin_token", s.token)
	}
	return component.Run(ctx, demo.NewTraffic(opened, s.logger).Run), nil
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
