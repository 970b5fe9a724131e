package redisstore_test

import (
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// TestScriptLoads: the scripts loaded at first are counted, and the one that a server forgot; a call by its digest is not.
func TestScriptLoads(t *testing.T) {
	own := testredis.Start(t)
	store := open(t, own.URL(), redisstore.Options{})
	policy := policyOf(t, "loads", aLimit(stint.AlgorithmTokenBucket, 1000))
	must.Do(t, store.Ready(t.Context()))
	takeAll := func() uint64 {
		for range 50 {
			take(t, store, "k", policy, 1)
		}
		return store.Stats().ScriptLoads
	}
	first := takeAll()
	if again := takeAll(); first < 1 || first > 30 || again > first+5 {
		t.Errorf("%d scripts were loaded at first, %d later", first, again-first)
	}
	before := store.Stats().ScriptLoads
	must.Get(own.Do("SCRIPT", "FLUSH"))(t)
	if after := takeAll(); after <= before || after > before+10 {
		t.Errorf("%d scripts were loaded after SCRIPT FLUSH", after-before)
	}
}
