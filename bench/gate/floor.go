package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/redis/rueidis"
	"github.com/sethvargo/go-limiter/memorystore"
)

// Work of others that does the least of the same kind: what stint costs is held against it, too.

// goLimiter is the quickest of the peers in memory.
func goLimiter(r *rig) (*work, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 1_000_000_000, Interval: 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	op := func(int, int) error {
		_, _, _, ok, err := store.Take(r.ctx, "user:0")
		if err == nil && !ok {
			err = errors.New("denied")
		}
		return err
	}
	return &work{op: op, close: func() { _ = store.Close(r.ctx) }}, nil
}

// incr is INCR of a client's counter, by the client library that stint uses: the least that a limiter
// on Redis can do. Callers begin 1,000 clients apart.
func incr(r *rig) (*work, error) {
	server, err := r.redisServer()
	if err != nil {
		return nil, err
	}
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.addr}, DisableCache: true})
	if err != nil {
		return nil, err
	}
	keys := names(redisKeys)
	op := func(caller, i int) error {
		return client.Do(r.ctx, client.B().Incr().Key(keys[(caller*1000+i)%len(keys)]).Build()).Error()
	}
	return &work{callers: 64, op: op, redis: server.id(), close: client.Close}, nil
}

// serveBare is a process of its own: a handler that decides nothing, and writes the header fields
// and the body that the service answers a check with.
func serveBare(ctx context.Context, addr string) error {
	header := map[string][]string{
		"Content-Type":          {"application/json"},
		"X-Ratelimit-Limit":     {"1000000000"},
		"X-Ratelimit-Remaining": {"999999999"},
		"X-Ratelimit-Reset":     {"1790000001"},
		"Ratelimit":             {`"default";r=999999999;t=1`},
		"Ratelimit-Policy":      {`"default";q=1000000000`},
	}
	body := []byte(`{"allowed":true,"key":"user:42","algorithm":"TOKEN_BUCKET","limit":1000000000,"remaining":999999999,` +
		`"retryAfterMicros":0,"resetAfterMicros":1,"delayMicros":0,"at":1790000001000000,"degraded":false}` + "\n")
	handler := func(w http.ResponseWriter, _ *http.Request) {
		for name, values := range header {
			w.Header()[name] = values
		}
		_, _ = w.Write(body)
	}
	server := &http.Server{Addr: addr, Handler: http.HandlerFunc(handler)} //nolint:gosec // the barest
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bareHandler is requests to serveBare.
func bareHandler(r *rig) (*work, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return r.requests(checkPath, http.StatusOK, nil, self, "-serve-bare", procAddr)
}
