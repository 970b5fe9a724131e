package goredis_test

import (
	"os"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// server is the one Redis that the package's tests share; each store has its own key
// prefix.
var server *testredis.Server

func TestMain(m *testing.M) { os.Exit(testredis.Run(m, &server)) }
