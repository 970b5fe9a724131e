package server

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rest"
)

// A Config says what a [Server] is made of: the settings that were read, and the parts that the program made of them.
// [DefaultConfig] returns one with every default filled in; only Store has none. A Config is copied by [New] and not
// changed afterwards; what may change while a server runs is put in by SwapRules and SwapLimits.
type Config struct {
	// Config is that of the service, settings included. Of a size of 0 whose default follows from others, such as
	// HTTP.MaxBodyMemory, New makes that. AdminListen may be "", which is no admin listener.
	rest.Config

	// RulesPlace says where rules come from that can't be edited here, for the error of an edit, such as "the
	// file /etc/stint/rules.yaml". Default: "", which is "the configuration".
	RulesPlace string
	// RulesForgotten says that edited rules are lost when the process ends, which is logged at the first edit and shown
	// by the dashboard. Default: false.
	RulesForgotten bool
	// GRPCMaxAge is how long a connection of GRPCListen is kept before its client is asked to make
	// another one. Default: 0, as long as the client likes. Its calls may take an hour to end. A limit
	// spreads clients of a load balancer again that has got more servers.
	GRPCMaxAge time.Duration
	// Collectors are further metrics to serve, such as the store's. Default: none.
	Collectors []prometheus.Collector
	// Middleware stands before the handler of Listen, such as one that traces requests. Default: nil,
	// none.
	Middleware func(http.Handler) http.Handler
	// Trace is the ID of the trace in which Middleware records a request, "" if it does not. Default: nil, it records
	// none.
	Trace func(context.Context) string
}

// Names of package config that a Config and its makers use.
type (
	// TLS is [config.TLS].
	TLS = config.TLS
	// AdminToken is [config.AdminToken].
	AdminToken = config.AdminToken
)

// The roles of administrators.
const (
	RoleRead  = config.RoleRead
	RoleWrite = config.RoleWrite
)

// DefaultConfig returns the configuration of a service on loopback that lacks nothing but a store. It has no admin
// listener.
func DefaultConfig() Config {
	c := Config{Config: rest.Config{Settings: config.Default()}}
	c.AdminListen = ""
	c.Config = c.WithDefaults()
	return c
}
