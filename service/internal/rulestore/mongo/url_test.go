package mongo_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"", "no host"},
		{"redis://localhost", "another scheme"},
		{"mongodb://", "no host"},
		{"mongodb://ann:secret@/stint", "no host"},
		{"mongodb://localhost/a.b", "the database of the URL"},
		{"mongodb://localhost/stint?collection=", "the collection of the URL"},
		{"mongodb://localhost/stint?collection=system.users", "the collection of the URL"},
		{"mongodb://localhost/stint?w=1&collection=a%24b", `"a$b"`},
		{"mongodb://localhost/a%zz", "percent-encoding"},
		{"mongodb://ann:sec%zzret@localhost/", "a user or password with a bad percent-encoding"},
		{"mongodb://ann:se:cret@localhost/", "colon"},
		{"mongodb://localhost/?w=1&authMechanismProperties=secret", "authMechanism"},
		{"mongodb://localhost/?tls=perhaps", "tls"},
		{"mongodb://ann:secret@localhost/?tlsCertificateKeyFile=/nowhere&tlsCertificateKeyFilePassword=secret", "nowhere"},
	} {
		_, err := mongo.New(c.url)
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", c.url, err)
			continue
		}
		if text := err.Error(); c.url != "" && !strings.Contains(text, c.says) || strings.Contains(text, "secret") || strings.Contains(text, "%zz") {
			t.Errorf("%q: %v; want %q in it, and no password", c.url, err, c.says)
		}
	}
}

// calls is every call of a store.
func calls(s *mongo.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Head":    func(ctx context.Context) error { _, err := s.Head(ctx); return err },
		"Load":    func(ctx context.Context) error { _, err := s.Load(ctx, 0); return err },
		"History": func(ctx context.Context) error { _, err := s.History(ctx, 0, 1); return err },
		"Put": func(ctx context.Context) error {
			return s.Put(ctx, rulestore.ID{}, &rulestore.Revision{Info: rulestore.Info{ID: rulestore.ID{Number: 1, At: 1}}})
		},
		"Watch": func(ctx context.Context) error { return s.Watch(ctx, func() {}, func() {}) },
	}
}

// With an unreachable server New succeeds, and every call returns ErrUnavailable, without the password.
func TestUnreachable(t *testing.T) {
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	address := l.Addr().String()
	must.Do(t, l.Close())
	for _, url := range []string{"mongodb://ann:secret@" + address + "/stint?serverSelectionTimeoutMS=50", "mongodb+srv://ann:secret@nowhere.invalid/stint"} {
		s := open(t, url)
		for name, call := range calls(s) {
			if err := call(t.Context()); !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want ErrUnavailable without the password", name, err)
			}
		}
	}
}

// A call to a server that accepts and is silent ends with its context.
func TestSilent(t *testing.T) {
	l := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	s := open(t, "mongodb://"+l.Addr().String())
	for name, call := range calls(s) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want that the context has ended", name, err)
		}
		cancel()
	}
}

func TestClosed(t *testing.T) {
	s := open(t, newURL())
	must.Get(s.Head(t.Context()))(t)
	s.Close()
	for name, call := range calls(s) {
		if err := call(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}
