package mongo_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/mongo"
)

// heard waits for a word from who watches.
func heard(t *testing.T, word <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-word:
	case <-time.After(20 * time.Second):
		t.Fatalf("nobody heard of %s", what)
	}
}

// Where there are change streams, versions and edits by people are heard of, and rate_limit_rules is
// looked through for the latter alone.
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
			now := time.Unix(1_790_000_000, 0)
			b := open(t, m.url(), mongo.Options{LookInterval: 24 * time.Hour, Now: func() time.Time { return now }})
			looks := func(when string, want int) {
				t.Helper()
				now = now.Add(time.Second)
				if _, err := b.Head(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := m.looks("rate_limit_rules"); got != want {
					t.Errorf("%s: %d looks, want %d", when, got, want)
				}
			}
			looks("at first", 1)
			looks("without news", 1)
			ready, news, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				ended <- b.Watch(ctx, func() { ready <- struct{}{} }, func() { news <- struct{}{} })
			}()
			heard(t, ready, "the stream")
			looks("edited before anybody listened", 2)
			looks("and not again", 2)
			m.happens("1", "insert", "rate_limit_rule_versions")
			heard(t, news, "a version")
			looks("after a version", 2)
			for i, operation := range []string{"update", "delete"} {
				m.happens(string(rune('2'+i)), operation, "rate_limit_rules")
				heard(t, news, operation)
				looks("after an edit", 3+i)
			}
			m.says(bson.D{{Key: "ok", Value: 0}, {Key: "code", Value: 13}, {Key: "codeName", Value: "Unauthorized"}, {Key: "errmsg", Value: "no more rights"}})
			if err := <-ended; !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), "no more rights") {
				t.Errorf("the stream ended with %v", err)
			}
			m.mu.Lock()
			pipeline, concern := m.pipeline.String(), m.concern
			m.mu.Unlock()
			for _, part := range []string{"$changeStream", `"rate_limit_rules"`, `"rate_limit_rule_versions"`} {
				if !strings.Contains(pipeline, part) {
					t.Errorf("the pipeline %s has no %s", pipeline, part)
				}
			}
			if strings.Contains(pipeline, "states") || concern != "majority" {
				t.Errorf("the pipeline %s with read concern %q", pipeline, concern)
			}
			go func() { ended <- b.Watch(ctx, func() { ready <- struct{}{} }, func() {}) }()
			heard(t, ready, "the next stream")
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}
