package mongo_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
)

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct{ url, says string }{
		{"", "no host"},
		{"redis://localhost", "another scheme"},
		{"mongodb://", "no host"},
		{"mongodb://ann:secret@/stint", "no host"},
		{"mongodb://localhost/a.b", "the database of the URL"},
		{"mongodb://localhost/a%zz", "percent-encoding"},
		{"mongodb://ann:sec%zzret@localhost/", "a user or password with a bad percent-encoding"},
		{"mongodb://ann:se:cret@localhost/", "colon"},
		{"mongodb://localhost/?w=1&authMechanismProperties=secret", "authMechanism"},
		{"mongodb://localhost/?tls=perhaps", "tls"},
		{"mongodb://ann:secret@localhost/?tlsCertificateKeyFile=/nowhere&tlsCertificateKeyFilePassword=secret", "nowhere"},
	} {
		_, err := mongo.New(c.url, mongo.Options{})
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", c.url, err)
			continue
		}
		if text := err.Error(); c.url != "" && !strings.Contains(text, c.says) || strings.Contains(text, "secret") || strings.Contains(text, "%zz") {
			t.Errorf("%q: %v; want %q in it, and no password", c.url, err, c.says)
		}
	}
	if _, err := mongo.New("mongodb://localhost", mongo.Options{LookInterval: 99 * time.Millisecond}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a look every 99ms: %v, want ErrInvalid", err)
	}
	if _, err := mongo.New("mongodb://localhost", mongo.Options{IPv6Prefix: 129}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("a prefix of 129 bits: %v, want ErrInvalid", err)
	}
}

// calls is every call of a backend.
func calls(b *mongo.Backend) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Head":     func(ctx context.Context) error { _, err := b.Head(ctx); return err },
		"Load":     func(ctx context.Context) error { _, err := b.Load(ctx); return err },
		"Versions": func(ctx context.Context) error { _, err := b.Versions(ctx, 0, 1); return err },
		"Commit": func(ctx context.Context) error {
			return b.Commit(ctx, registry.Head{}, &registry.Version{Head: registry.Head{Number: 1, At: 1}})
		},
		"Watch": func(ctx context.Context) error { return b.Watch(ctx, func() {}, func() {}) },
	}
}

// A server that is away is no error of New, and ErrUnavailable of every call, without the password.
func TestAway(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"mongodb://ann:secret@" + address + "/stint?serverSelectionTimeoutMS=50", "mongodb+srv://ann:secret@nowhere.invalid/stint"} {
		b := open(t, url, mongo.Options{})
		for name, call := range calls(b) {
			if err := call(t.Context()); !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v, want ErrUnavailable without the password", name, err)
			}
		}
	}
}

// A server that accepts and is silent ends no call but by its context.
func TestSilent(t *testing.T) {
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	b := open(t, "mongodb://"+l.Addr().String(), mongo.Options{})
	for name, call := range calls(b) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want that the context has ended", name, err)
		}
		cancel()
	}
}

func TestClosed(t *testing.T) {
	b := open(t, newURL(), mongo.Options{})
	if _, err := b.Head(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for name, call := range calls(b) {
		if err := call(t.Context()); !errors.Is(err, stint.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrUnavailable", name, err)
		}
	}
}
