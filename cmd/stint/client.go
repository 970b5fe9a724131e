package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/pflag"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/server"
)

// maxAnswerBytes bounds what is read of an answer.
const maxAnswerBytes = 1 << 20

// ask connects, sends one request and returns the body of the answer, decoded into answer as well.
func (q *question) ask(p process, method, path, key string, query url.Values, answer any) ([]byte, error) {
	s, err := q.connect(p)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return q.askAt(s, method, path, key, query, answer)
}

// An endpoint is where a question is put.
type endpoint struct {
	base   *url.URL
	client *http.Client
	token  string
	close  func()
}

// askAt sends one request to a service. An answer that is not one of the API's is an error.
func (q *question) askAt(s *endpoint, method, path, key string, query url.Values, answer any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(q.command.Context(), q.timeout)
	defer cancel()
	if query == nil {
		query = url.Values{}
	}
	query.Set("key", key)
	for name, text := range map[string]string{"algorithm": q.algorithm, "policy": q.policy} {
		if q.command.Flags().Changed(name) {
			query.Set(name, text)
		}
	}
	target := s.base.JoinPath(path)
	target.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, method, target.String(), http.NoBody)
	if err != nil {
		return nil, failed(err)
	}
	request.Header.Set("Accept", "application/json")
	if s.token != "" {
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	response, body, err := exchange(s.client, request, s.base, "--server", maxAnswerBytes)
	if err != nil {
		return nil, err
	}
	return body, understand(s.base, response, body, answer)
}

// exchange sends a request and reads the answer, of which it keeps so many bytes at most. flag names the service.
func exchange(client *http.Client, request *http.Request, base *url.URL, flag string, most int64) (*http.Response, []byte, error) {
	response, err := client.Do(request)
	if err != nil {
		if known, ok := errors.AsType[*url.Error](err); ok { // its text repeats the URL, with the key
			err = known.Err
		}
		return nil, nil, unreachable(fmt.Errorf("%s does not answer: %w. Start a service with `stint serve`, or name another with %s", base.Redacted(), err, flag))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if err != nil {
		return nil, nil, unreachable(fmt.Errorf("the answer of %s broke off: %w", base.Redacted(), err))
	}
	return response, body, nil
}

// noRedirects makes a client that follows no redirection.
func noRedirects() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// serviceURL is the URL of a service that a flag names, or the environment if the flag is not given.
func serviceURL(p process, flags *pflag.FlagSet, flag, variable, standard string) (*url.URL, error) {
	from, text := "--"+flag, flags.Lookup(flag).Value.String()
	if env := p.env(variable); env != "" && !flags.Changed(flag) {
		from, text = variable, env
	}
	base, err := url.Parse(text)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" {
		return nil, misused("%s is %q; allowed: a URL such as %s", from, config.RedactURL(text), standard)
	}
	return base, nil
}

// understand decodes an answer. A denied check is one.
func understand(base *url.URL, response *http.Response, body []byte, answer any) error {
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	if media == api.ProblemType {
		var problem api.Problem
		if err := json.Unmarshal(body, &problem); err == nil {
			if response.StatusCode == http.StatusServiceUnavailable {
				return unreachable(&problem)
			}
			return failed(&problem)
		}
	}
	denied := response.StatusCode == http.StatusTooManyRequests
	if media != "application/json" || response.StatusCode != http.StatusOK && !denied || json.Unmarshal(body, answer) != nil {
		return failed(fmt.Errorf("%s does not answer like stint: %s, %q", base.Redacted(), response.Status, media))
	}
	return nil
}

// connect returns whom to ask. It has to be closed.
func (q *question) connect(p process) (*endpoint, error) {
	flags := q.command.Flags()
	if flags.Changed("store") {
		if flags.Changed("server") {
			return nil, misused("--server and --store are given; allowed: one of them")
		}
		return q.connectStore()
	}
	for _, name := range []string{"config", "store-timeout", "store-key-prefix", "store-log-encoding"} {
		if flags.Changed(name) {
			return nil, misused("--%s is given; allowed: only with --store", name)
		}
	}
	base, err := serviceURL(p, flags, "server", "STINT_SERVER", defaultServer)
	if err != nil {
		return nil, err
	}
	client := noRedirects()
	return &endpoint{base, client, cmp.Or(q.token, p.env("STINT_TOKEN")), client.CloseIdleConnections}, nil
}

// connectStore makes a service without a listener in this process, so that a store
// is asked exactly as a service would ask it. It fails rather than guess when the
// store is unreachable, and lets the caller name keys.
func (q *question) connectStore() (*endpoint, error) {
	ctx, cancel := context.WithTimeout(q.command.Context(), q.timeout)
	defer cancel()
	loaded, err := q.loadStore()
	if err != nil {
		return nil, err
	}
	if loaded.Store.Memory() {
		return nil, misused("--store is memory://, which lives in a service's process; allowed: the URL of a shared store, or --server")
	}
	store, err := openStore(loaded)
	if err != nil {
		return nil, err
	}
	if err := store.Health(ctx); err != nil {
		store.Close()
		return nil, storeFault(loaded.Store, err)
	}
	loaded.OnStoreFailure = failover.Closed
	logger := slog.New(slog.DiscardHandler)
	if err := store.survive(loaded, logger); err != nil {
		store.Close()
		return nil, err
	}
	loaded.API = config.API{ExplicitKeys: true, Open: true}
	service := serverConfig(loaded, store)
	service.Logger = logger
	s, err := server.New(service)
	if err != nil {
		store.Close()
		return nil, misconfigured(err)
	}
	base := &url.URL{Scheme: "http", Host: "store"}
	return &endpoint{base: base, client: &http.Client{Transport: inProcess{s.Handler()}}, close: store.Close}, nil
}
