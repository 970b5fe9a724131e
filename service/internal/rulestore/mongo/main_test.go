package mongo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"os"
	"testing"

	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
	"github.com/stint-go/stint/service/internal/rulestore/storetest"
	"github.com/stint-go/stint/service/internal/testmongo"
)

var server *testmongo.Server

func TestMain(m *testing.M) { os.Exit(testmongo.Run(m, &server)) }

// newURL is that of a database of the test's own.
func newURL() string { return server.URL("t" + rand.Text()) }

func open(t testing.TB, url string) *mongo.Store {
	t.Helper()
	s := must.Get(mongo.New(url))(t)
	t.Cleanup(s.Close)
	return s
}

// raw is a database as people see it.
func raw(t testing.TB, url string) *driver.Database {
	t.Helper()
	client := must.Get(driver.Connect(options.Client().ApplyURI(url)))(t)
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return client.Database(url[len(server.URL("")):])
}

// full asks for the larger conformance run. It takes some six minutes, nearly all of them in FerretDB, which reads whole
// collections where MongoDB uses the index of _id.
var full = flag.Bool("full", false, "run the conformance suite at its full size")

func TestConformance(t *testing.T) {
	size := storetest.Small
	if *full {
		size = storetest.Full
	}
	storetest.Run(t, size, func(t testing.TB) storetest.Place {
		url := newURL()
		return storetest.Place{
			Open: func() rulestore.Store { return open(t, url) },
			Lose: func() {
				must.Do(t, raw(t, url).Drop(t.Context()))
			},
		}
	})
}

// A server without change streams says so, so that it is asked for its head instead.
func TestWatchUnsupported(t *testing.T) {
	s := open(t, newURL())
	if err := s.Watch(t.Context(), func() { t.Error("ready") }, func() { t.Error("notified") }); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want ErrUnsupported", err)
	}
}
