package redis_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules/redis"
	"github.com/stint-go/stint/rules/registry"
)

func TestOptions(t *testing.T) {
	for _, prefix := range []string{"a b", "a{b}", strings.Repeat("x", 65), "ä"} {
		if _, err := redis.New(nil, redis.Options{KeyPrefix: prefix}); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
	if _, err := redis.New(nil, redis.Options{}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("no connection: %v", err)
	}
	if _, err := rueidis.Dial(rueidis.Connection{URL: "http://x"}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a URL of something else: %v", err)
	}
}

// A server that is away, or whose context is over, is told from one that holds something else.
func TestAway(t *testing.T) {
	s, b, r := own(t)
	put(t, r, rule("a", 1))
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := tryPut(ctx, r, rule("a", 2))
	unavailable(t, err, "the rules in Redis: ")
	_, err = b.Load(ctx)
	unavailable(t, err, "the rules in Redis: ")
	_, err = b.Versions(ctx, 0, 1)
	unavailable(t, err, "the rules in Redis: ")
	if err := b.Watch(ctx, func() {}, func() {}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("Watch: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-short.Done()
	if _, err := b.Head(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Head: %v", err)
	}
}

// Scripts that the server forgot are sent again.
func TestScriptsForgotten(t *testing.T) {
	s, b, r := own(t)
	for n := int64(1); n < 4; n++ {
		put(t, r, rule("a", n))
		do(t, s, "SCRIPT", "FLUSH")
		has(t, b, n, short(nil)+"a:"+string(rune('0'+n)))
		do(t, s, "SCRIPT", "FLUSH")
	}
}

// A commit that the server does not want changes nothing at all, and can be read around.
func TestAllOrNothing(t *testing.T) {
	for name, test := range map[string]struct{ forbid, allow [][]any }{
		"OOM":      {[][]any{{"CONFIG", "SET", "maxmemory", "1"}}, [][]any{{"CONFIG", "SET", "maxmemory", "0"}}},
		"READONLY": {[][]any{{"REPLICAOF", "127.0.0.1", "1"}}, [][]any{{"REPLICAOF", "NO", "ONE"}}},
		"NOREPLICAS": {
			[][]any{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, [][]any{{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		},
		"NOPERM": {[][]any{{"ACL", "SETUSER", "default", "-hdel"}}, [][]any{{"ACL", "SETUSER", "default", "+hdel"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b, r := own(t)
			try := func(edit func(d *registry.Draft)) {
				t.Helper()
				before := dump(t, s)
				for _, command := range test.forbid {
					do(t, s, command...)
				}
				_, err := r.Edit(t.Context(), registry.Author{}, func(d *registry.Draft) error { edit(d); return nil })
				unavailable(t, err, name)
				if !errors.Is(err, registry.ErrRefused) {
					t.Errorf("%v; want that nothing was made", err)
				}
				if after := dump(t, s); !maps.Equal(before, after) {
					t.Errorf("%q became %q", before, after)
				}
				if _, err := b.Load(t.Context()); err != nil {
					t.Errorf("loading meanwhile: %v", err)
				}
				if _, err := b.Versions(t.Context(), 0, 5); err != nil {
					t.Errorf("reading versions meanwhile: %v", err)
				}
				for _, command := range test.allow {
					do(t, s, command...)
				}
			}
			try(func(d *registry.Draft) { d.Put(rule("a", 1)) }) // the first version
			put(t, r, rule("a", 1), rule("b", 1))
			try(func(d *registry.Draft) { d.Delete("b"); d.Put(rule("a", 2)) })
			has(t, b, 1, "a:1 b:1")
			put(t, r, rule("a", 3))
			has(t, b, 2, "a:3 b:1")
		})
	}
}

// isUnreadable reports whether an error is that what is kept can't be read.
func isUnreadable(err error) bool {
	return errors.Is(err, registry.ErrUnreadable) && errors.Is(err, stint.ErrInvalid)
}

// Keys of something else are left alone, and it is said what they are.
func TestKeysOfSomethingElse(t *testing.T) {
	s, b, r := own(t)
	const set, versions = "rate_limiter:{rules}:set", "rate_limiter:{rules}:versions"
	for _, key := range []string{set, versions} {
		do(t, s, "FLUSHALL")
		do(t, s, "SET", key, "theirs")
		before := dump(t, s)
		v := registry.Version{Head: registry.Head{Number: 1, At: 1}}
		if err := b.Commit(t.Context(), registry.Head{}, &v); !isUnreadable(err) || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v", key, err)
		}
		if after := dump(t, s); !maps.Equal(before, after) {
			t.Errorf("%q became %q", before, after)
		}
	}
	do(t, s, "FLUSHALL")
	put(t, r, rule("a", 1))
	do(t, s, "XADD", versions, "5-0", "v", "x")
	if _, err := tryPut(t.Context(), r, rule("a", 2)); !isUnreadable(err) || !strings.Contains(err.Error(), versions) {
		t.Errorf("a stream that is ahead: %v", err)
	}
	has(t, b, 1, "a:1")
}

// What can't be read is named, with the reason.
func TestGarbage(t *testing.T) {
	s, b, r := own(t)
	const set, versions = "rate_limiter:{rules}:set", "rate_limiter:{rules}:versions"
	put(t, r, rule("a", 1), rule("login", 1))
	for _, test := range []struct {
		field, text string
		says        []string
	}{
		{"login", "garbage", []string{`rule "login"`, "not JSON"}},
		{"login", "\xff", []string{`rule "login"`, "UTF-8"}},
		{"login", `{"id":"login","color":1}`, []string{`rule "login"`, "color"}},
		{"login", `{"id":"logout"}`, []string{`rule "login"`, "logout"}},
		{"@head", "1", []string{"@head", `"1"`}},
		{"@head", "one 1", []string{"@head"}},
		{"@head", "-1 1", []string{"@head"}},
		{"@head", "1 1 ", []string{"@head"}},
	} {
		before := do(t, s, "HGET", set, test.field)
		do(t, s, "HSET", set, test.field, test.text)
		_, err := b.Load(t.Context())
		for _, says := range test.says {
			if !isUnreadable(err) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s is %q: %v; want that it says %q", test.field, test.text, err, says)
			}
		}
		do(t, s, "HSET", set, test.field, before)
	}
	has(t, b, 1, "a:1 login:1")
	for _, text := range []string{"garbage", `{"version":3}`} {
		do(t, s, "XADD", versions, "2-0", "v", text)
		if _, err := b.Versions(t.Context(), 0, 5); !isUnreadable(err) || !strings.Contains(err.Error(), "version 2-0") {
			t.Errorf("%s: %v", text, err)
		}
		do(t, s, "DEL", versions)
	}
}

// A user with the rights that docs/redis.md lists can do everything. Without that to publish
// commits are made all the same.
func TestRights(t *testing.T) {
	text, err := os.ReadFile("../../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rights, found := strings.Cut(string(text), "ACL SETUSER limiter on >PASSWORD ")
	rights, _, ended := strings.Cut(rights, "\n")
	if !found || !ended {
		t.Fatal("docs/redis.md says no rights")
	}
	user := append([]string{">s3cret"}, strings.Fields(rights)...)
	for name, more := range map[string][]string{"all": nil, "without publish": {"-publish"}} {
		t.Run(name, func(t *testing.T) {
			s := testredis.Start(t, testredis.User("limiter", append(slices.Clone(user), more...)...))
			b := open(t, rueidis.Connection{URL: s.URL(), Username: "limiter", Password: "s3cret"}, "")
			r := registryOn(t, b, 20*time.Millisecond)
			f := follow(t, r)
			f.until("")
			other := registryOn(t, open(t, rueidis.Connection{URL: s.URL(), Username: "limiter", Password: "s3cret"}, ""), 0)
			put(t, other, rule("a", 1), rule("b", 1))
			f.until("a:1 b:1")
			if _, err := r.Rollback(t.Context(), registry.Author{}, 0, nil); err != nil {
				t.Fatal(err)
			}
			f.until("")
			if len(f.told) > 0 {
				t.Error(<-f.told)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if err := b.Watch(ctx, cancel, func() {}); !errors.Is(err, context.Canceled) {
				t.Errorf("Watch: %v", err)
			}
		})
	}
}
