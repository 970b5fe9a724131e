package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

// names are what a flag may choose from.
func names[T any](choice map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(choice)), ", ")
}

// handlers are what is limited: one that does nothing but answer, and one that does about what a
// small API does, a page of 20 items as JSON.
var handlers = map[string]http.HandlerFunc{
	"small": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("Hello, World!")) },
	"page": func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{"application/json"}
		_ = json.NewEncoder(w).Encode(page())
	},
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
		items[i] = item{
			ID:      i,
			Name:    fmt.Sprintf("item number %d", i),
			Tags:    []string{"new", "used"},
			Price:   9.99,
			Updated: time.Unix(1_790_000_000, 0),
		}
	}
	return items
}

// gates are what stands before a handler: nothing; nothing but the five header fields that a rule
// sends, always the same; and one rule, which admits everything, without and with those fields.
var gates = map[string]func(http.Handler) (http.Handler, error){
	"bare":        func(h http.Handler) (http.Handler, error) { return h, nil },
	"fields":      func(h http.Handler) (http.Handler, error) { return constant(h), nil },
	"rule-silent": func(h http.Handler) (http.Handler, error) { return ruled(h, httplimit.NoFields) },
	"rule":        func(h http.Handler) (http.Handler, error) { return ruled(h, httplimit.AllFields) },
}

func constant(h http.Handler) http.Handler {
	fields := http.Header{
		"X-Ratelimit-Limit": {"1000000000"}, "X-Ratelimit-Remaining": {"999999999"}, "X-Ratelimit-Reset": {"1790000001"},
		"Ratelimit": {`"default";r=999999999;t=1`}, "Ratelimit-Policy": {`"default";q=1000000000`},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		maps.Copy(w.Header(), fields)
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

// serve serves one handler behind one gate, or an answer that another server gave once.
func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("http serve", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	gate := flags.String("gate", "bare", "what stands before the handler: "+names(gates))
	handler := flags.String("handler", "small", "what to serve: "+names(handlers))
	like := flags.String("repeat", "", "URL whose answer to serve in place of a handler")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	served, err := handlers[*handler], error(nil)
	if *like != "" {
		served, err = repeat(*like)
	}
	if err != nil {
		return err
	}
	if served == nil || gates[*gate] == nil {
		return fmt.Errorf(
			"-handler is %q and -gate is %q; allowed: %s and %s", *handler, *gate, names(handlers), names(gates),
		)
	}
	gated, err := gates[*gate](served)
	if err != nil {
		return err
	}
	return cli.Serve(ctx, *listen, func(listener net.Listener) error {
		// Nothing that costs time and is not asked for: no timeouts, no mux.
		return http.Serve(listener, gated) //nolint:gosec // the barest server is what is measured
	})
}

// repeat is a handler that decides nothing and writes, for every request, the bytes that
// a server wrote once. What net/http adds by itself is left to it.
func repeat(like string) (http.HandlerFunc, error) {
	from, err := url.Parse(like)
	if err != nil {
		return nil, err
	}
	model, err := fetch(from.Host, from.RequestURI())
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	for name, value := range model.Header.All() {
		if name := string(name); name != "Date" && name != "Content-Length" {
			header[name] = append(header[name], string(value))
		}
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		maps.Copy(w.Header(), header)
		w.WriteHeader(model.StatusCode())
		_, _ = w.Write(model.Body()) // the client is gone; nobody to tell
	}, nil
}
