package docs_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

// server is the Redis of the pages' examples.
var server *testredis.Server

// The tests run in the repository's root, whose pages they read.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	code := testredis.Run(m, &server)
	if err := os.RemoveAll(programs); err != nil { // "" if no test needed them
		panic(err)
	}
	os.Exit(code)
}

// still is a clock that stands still, so that examples print the same at every run.
func still() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

// stillStore is a store in memory by that clock, and newStore one by the time of day.
func stillStore() *memstore.Store { return memstore.New(memstore.Config{Now: still}) }
func newStore() *memstore.Store   { return memstore.New(memstore.Config{}) }

// patient is the failover of a store in Redis on a busy machine.
var patient = failover.Config{Timeout: time.Minute}

// An example ends by a panic at an error of a step that it only stands on.
type example struct{}

func (example) Helper()             {}
func (example) Fatal(reason ...any) { panic(fmt.Sprint(reason...)) }

// bareStore is a store without failover, which waits for Redis as long as the caller does.
func bareStore(t *testing.T, url string, options redisstore.Options) *redisstore.Store {
	t.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: url}))(t)
	store := must.Get(redisstore.New(conn, options))(t)
	t.Cleanup(store.Close)
	return store
}
