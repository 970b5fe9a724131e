package redisstore_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

func fuzz(f *testing.F, encoding redisstore.LogEncoding) {
	storetest.Fuzz(f, func(t testing.TB, clock *storetest.Clock) stint.Store {
		return newStore(t, redisstore.Options{LogEncoding: encoding, Now: clock.Now})
	})
}

func FuzzPacked(f *testing.F) { fuzz(f, redisstore.LogPacked) }
func FuzzZSet(f *testing.F)   { fuzz(f, redisstore.LogZSet) }
func FuzzStream(f *testing.F) { fuzz(f, redisstore.LogStream) }
