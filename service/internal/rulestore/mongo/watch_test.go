package mongo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
)

// await waits for a signal of a watch.
func await(t *testing.T, word <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-word:
	case <-time.After(5 * time.Minute):
		t.Fatalf("no signal of %s", what)
	}
}

// With change streams, new heads notify, and chunks do not.
func TestWatch(t *testing.T) {
	for name, hello := range map[string]func(string) bson.D{
		"replica set": func(address string) bson.D {
			return bson.D{
				{Key: "setName", Value: "rs"},
				{Key: "hosts", Value: bson.A{address}},
				{Key: "me", Value: address},
				{Key: "primary", Value: address},
			}
		},
		"mongos": func(string) bson.D { return bson.D{{Key: "msg", Value: "isdbgrid"}} },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t, hello)
			s := open(t, m.url())
			ready, notified, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				ended <- s.Watch(ctx, func() { ready <- struct{}{} }, func() { notified <- struct{}{} })
			}()
			await(t, ready, "the stream")
			m.happens("1", "insert", "rate_limit_revisions")
			await(t, notified, "a revision")
			m.says(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 13}, {Key: "codeName", Value: "Unauthorized"}, {Key: "errmsg", Value: "no more rights"}})
			if err := <-ended; !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), "no more rights") {
				t.Errorf("the stream ended with %v", err)
			}
			m.mu.Lock()
			pipeline, concern := m.pipeline.String(), m.concern
			m.mu.Unlock()
			for _, part := range []string{"$changeStream", `"operationType"`} {
				if !strings.Contains(pipeline, part) {
					t.Errorf("the pipeline %s has no %s", pipeline, part)
				}
			}
			if m.watches("rate_limit_revisions") != 1 || concern != "majority" {
				t.Errorf("the pipeline %s with read concern %q", pipeline, concern)
			}
			go func() { ended <- s.Watch(ctx, func() { ready <- struct{}{} }, func() {}) }()
			await(t, ready, "the next stream")
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
