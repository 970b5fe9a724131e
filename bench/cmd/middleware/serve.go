package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// A named thing can be asked for by a flag.
type named[T any] struct {
	name string
	make T
}

func names[T any](list []named[T]) string {
	var all []string
	for _, n := range list {
		all = append(all, n.name)
	}
	return strings.Join(all, ", ")
}

func find[T any](list []named[T], param, name string) (T, error) {
	for _, n := range list {
		if n.name == name {
			return n.make, nil
		}
	}
	var none T
	return none, fmt.Errorf("%s is %q; allowed: %s", param, name, names(list))
}

// handlers are what is limited: one that does nothing but answer, and one that does about what a
// small API does, a page of 20 items as JSON.
var handlers = []named[http.HandlerFunc]{
	{"small", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Hello, World!")) }},
	{"page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"application/json"}
		_ = json.NewEncoder(w).Encode(page())
	}},
}

type item struct {
	ID      int       `json:"id"`
	Name    string    `json:"name"`
	Tags    []string  `json:"tags"`
	Price   float64   `json:"price"`
	Updated time.Time `json:"updated"`
}

func page() []item {
	items := make([]item, 20)
	for i := range items {
		items[i] = item{ID: i, Name: fmt.Sprintf("item number %d", i), Tags: []string{"new", "used"}, Price: 9.99, Updated: time.Unix(1_790_000_000, 0)}
	}
	return items
}

// gates are what stands before a handler: nothing; nothing but the five header fields that a rule
// sends, always the same; and one rule, which admits everything, without and with those fields.
var gates = []named[func(http.Handler) (http.Handler, error)]{
	{"bare", func(h http.Handler) (http.Handler, error) { return h, nil }},
	{"fields", func(h http.Handler) (http.Handler, error) { return constant(h), nil }},
	{"rule-silent", func(h http.Handler) (http.Handler, error) { return ruled(h, httplimit.NoFields) }},
	{"rule", func(h http.Handler) (http.Handler, error) { return ruled(h, httplimit.AllFields) }},
}

func constant(h http.Handler) http.Handler {
	fields := http.Header{
		"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"1790000001"},
		"Ratelimit": {`"default";r=999999999;t=1`}, "Ratelimit-Policy": {`"default";q=1000000000`},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		for name, lines := range fields {
			header[name] = lines
		}
		h.ServeHTTP(w, r)
	})
}

func ruled(h http.Handler, fields httplimit.Fields) (http.Handler, error) {
	set, err := rules.Compile([]rules.Rule{{
		ID: "items", Match: rules.Match{Methods: []string{http.MethodGet}, Paths: []string{"/items/{id}"}}, Scope: []string{rules.PerIP},
		Limits: []stint.Limit{stint.TokenBucket(1_000_000_000, stint.PerSecond(1_000_000_000))},
	}}, rules.Options{})
	if err != nil {
		return nil, err
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		return nil, err
	}
	limit, err := httplimit.NewRules(httplimit.RulesConfig{Limiter: limiter, Fields: fields})
	if err != nil {
		return nil, err
	}
	return limit.Wrap(h), nil
}

// serve serves one handler behind one gate.
func serve(ctx context.Context, o options) error {
	handler, err := find(handlers, "-handler", o.handler)
	if err != nil {
		return err
	}
	gate, err := find(gates, "-serve", o.serve)
	if err != nil {
		return err
	}
	gated, err := gate(handler)
	if err != nil {
		return err
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	slog.New(slog.NewTextHandler(os.Stderr, nil)).Info("listening", "service", "http", "addr", listener.Addr().String())
	return http.Serve(listener, gated) //nolint:gosec // a server without timeouts is what is measured
}
