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

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/redis"
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
	if _, err := rueidis.Dial(rueidis.Config{URL: "http://x"}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a URL of something else: %v", err)
	}
}

// An unreachable server, and a context that is over, give other errors than a server with a foreign key.
func TestUnreachable(t *testing.T) {
	s, b, r := own(t)
	put(t, r, rule("a", 1))
	must.Do(t, s.Kill())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := tryPut(ctx, r, rule("a", 2))
	unavailable(t, err, "the rules in Redis: ")
	_, err = b.Load(ctx, 0)
	unavailable(t, err, "the rules in Redis: ")
	_, err = b.History(ctx, 0, 1)
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

// A commit that the server refuses changes nothing, and reads still succeed.
func TestAllOrNothing(t *testing.T) {
	for name, test := range map[string]struct{ forbid, allow [][]any }{
		"OOM":      {[][]any{{"CONFIG", "SET", "maxmemory", "1"}}, [][]any{{"CONFIG", "SET", "maxmemory", "0"}}},
		"READONLY": {[][]any{{"REPLICAOF", "127.0.0.1", "1"}}, [][]any{{"REPLICAOF", "NO", "ONE"}}},
		"NOREPLICAS": {
			[][]any{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, [][]any{{"CONFIG", "SET", "min-replicas-to-write", "0"}},
		},
		// Redis 7.0 and Valkey 8 say differently that it may not.
		"script": {[][]any{{"ACL", "SETUSER", "default", "-hset"}}, [][]any{{"ACL", "SETUSER", "default", "+hset"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b, r := own(t)
			try := func(edit func(d *rulestore.Draft)) {
				t.Helper()
				before := dump(t, s)
				for _, command := range test.forbid {
					do(t, s, command...)
				}
				_, err := r.Edit(t.Context(), rulestore.Author{}, func(d *rulestore.Draft) error { edit(d); return nil })
				unavailable(t, err, name)
				if !errors.Is(err, rulestore.ErrRefused) {
					t.Errorf("%v; want that nothing was made", err)
				}
				if after := dump(t, s); !maps.Equal(before, after) {
					t.Errorf("%q became %q", before, after)
				}
				must.Get(b.Load(t.Context(), 0))(t)
				must.Get(b.History(t.Context(), 0, 5))(t)
				for _, command := range test.allow {
					do(t, s, command...)
				}
			}
			try(func(d *rulestore.Draft) { d.Put(rule("a", 1)) }) // the first revision
			put(t, r, rule("a", 1), rule("b", 1))
			try(func(d *rulestore.Draft) { d.Delete("b"); d.Put(rule("a", 2)) })
			has(t, b, 1, "a:1 b:1")
			put(t, r, rule("a", 3))
			has(t, b, 2, "a:3 b:1")
		})
	}
}

// isUnreadable reports whether an error says that the stored data can't be read.
func isUnreadable(err error) bool {
	return errors.Is(err, rulestore.ErrUnreadable) && errors.Is(err, stint.ErrInvalid)
}

const key = "rate_limiter:{rules}:revisions"

// A key of another type is not changed, and the error says so.
func TestKeyOfSomethingElse(t *testing.T) {
	s, b, _ := own(t)
	do(t, s, "SET", key, "theirs")
	before := dump(t, s)
	next := rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 1, At: 1}}}
	if err := b.Put(t.Context(), rulestore.ID{}, &next); !isUnreadable(err) || !strings.Contains(err.Error(), "WRONGTYPE") {
		t.Errorf("%v", err)
	}
	if after := dump(t, s); !maps.Equal(before, after) {
		t.Errorf("%q became %q", before, after)
	}
}

// The error of unreadable data names it, with the reason.
func TestGarbage(t *testing.T) {
	s, b, m := own(t)
	put(t, m, rule("a", 1), rule("login", 1))
	pack := must.Get(zstd.NewWriter(nil))(t)
	packed := func(text string) string { return string(pack.EncodeAll([]byte(text), nil)) }
	for _, test := range []struct {
		field, text string
		says        []string
	}{
		{"1", "garbage", []string{"1 of " + key, "DEL " + key}},
		{"1", packed("garbage"), []string{"field 1 of " + key, "not JSON"}},
		{"1", packed("[\n{\"id\":\"\xff\"}\n]\n"), []string{"UTF-8"}},
		{"1", packed("[\n{\"id\":\"login\",\n\"color\":1}\n]\n"), []string{`rule "login"`, "color", ":3:1:"}},
		{"1", packed(strings.Repeat(" ", 3*rulestore.MaxBytes)), []string{"1 of " + key}},
		{"1:info", "garbage", []string{"N:info"}},
		{"1:info", `{"revision":0}`, []string{"N:info"}},
		{"head", "one 1", []string{"head of " + key}},
		{"head", "-1 1", []string{"head"}},
		{"head", "1 1 ", []string{"head", `"1 1 "`}},
	} {
		before := do(t, s, "HGET", key, test.field)
		do(t, s, "HSET", key, test.field, test.text)
		_, err := b.Load(t.Context(), 0)
		if test.field == "head" {
			_, err = b.Head(t.Context())
		}
		for _, says := range test.says {
			if !isUnreadable(err) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s is %.40q: %v; want that it says %q", test.field, test.text, err, says)
			}
		}
		do(t, s, "HSET", key, test.field, before)
	}
	has(t, b, 1, "a:1 login:1")
}

// A wrong password has another error than an unreachable server.
func TestWrongPassword(t *testing.T) {
	s := testredis.Start(t, testredis.User("limiter", ">s3cret", "~*", "&*", "+@all"))
	b := open(t, rueidis.Config{URL: s.URL(), Username: "limiter", Password: "wrong"}, "")
	_, err := b.Head(t.Context())
	if unavailable(t, err, "WRONGPASS"); !errors.Is(err, rulestore.ErrCredentials) {
		t.Errorf("%v is not ErrCredentials", err)
	}
}

// A user with the rights that docs/redis.md lists can do everything. Commits succeed without the right to
// publish.
func TestRights(t *testing.T) {
	text := must.Get(os.ReadFile("../../../../docs/redis.md"))(t)
	_, rights, found := strings.Cut(string(text), "ACL SETUSER limiter on >PASSWORD ")
	rights, _, ended := strings.Cut(rights, "\n")
	if !found || !ended {
		t.Fatal("docs/redis.md says no rights")
	}
	user := append([]string{">s3cret"}, strings.Fields(rights)...)
	for name, more := range map[string][]string{"all": nil, "without publish": {"-publish"}} {
		t.Run(name, func(t *testing.T) {
			s := testredis.Start(t, testredis.User("limiter", append(slices.Clone(user), more...)...))
			b := open(t, rueidis.Config{URL: s.URL(), Username: "limiter", Password: "s3cret"}, "")
			r := manage(t, b, 20*time.Millisecond)
			f := follow(t, r)
			f.until("")
			other := manage(t, open(t, rueidis.Config{URL: s.URL(), Username: "limiter", Password: "s3cret"}, ""), 0)
			put(t, other, rule("a", 1), rule("b", 1))
			f.until("a:1 b:1")
			must.Get(r.Rollback(t.Context(), rulestore.Author{}, 0, "", nil))(t)
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
