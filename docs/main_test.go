package docs_test

import (
	"os"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/testredis"
)

// server is the Redis of the pages' examples.
var server *testredis.Server

func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &server)) }

// still is a clock that stands still, so that examples print the same at every run.
func still() stint.Instant {
	return stint.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())
}
