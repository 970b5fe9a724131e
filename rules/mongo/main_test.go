package mongo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"testing"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/internal/testmongo"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/rules/registry/registrytest"
)

var server *testmongo.Server

func TestMain(m *testing.M) { os.Exit(testmongo.Run(m, &server)) }

// newURL is that of a database of the test's own.
func newURL() string { return server.URL("t" + rand.Text()) }

func open(t testing.TB, url string, o mongo.Options) *mongo.Backend {
	t.Helper()
	b, err := mongo.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// raw is a database as people see it.
func raw(t testing.TB, url string) *driver.Database {
	t.Helper()
	client, err := driver.Connect(options.Client().ApplyURI(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client.Database(url[len(server.URL("")):])
}

func TestConformance(t *testing.T) {
	registrytest.Run(t, registrytest.Small, func(t testing.TB) func() registry.Backend {
		url := newURL()
		return func() registry.Backend { return open(t, url, mongo.Options{}) }
	})
}

// A server without change streams says so, so that it is asked for its head instead.
func TestWatchUnsupported(t *testing.T) {
	b := open(t, newURL(), mongo.Options{})
	if err := b.Watch(t.Context(), func() { t.Error("ready") }, func() { t.Error("news") }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}
