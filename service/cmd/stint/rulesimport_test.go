package main

import (
	"context"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/testmongo"
)

// What is imported from FluxGate is a file of rules; what could not be kept is told.
func TestRulesImportFromMongo(t *testing.T) {
	t.Parallel()
	url := testmongo.Start(t).URL("fluxgate")
	client := must.Get(driver.Connect(options.Client().ApplyURI(url)))(t)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	_, err := client.Database("fluxgate").Collection("rate_limit_rules").InsertOne(t.Context(), bson.M{
		"id": "per-ip", "scope": "PER_IP", "deniedIps": bson.A{"192.0.2.1"}, "bands": bson.A{bson.M{"windowSeconds": int64(60), "capacity": int64(5), "label": "burst"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := do(t, nil, "rules", "import", url)
	const want = "[\n" + `{"id":"per-ip","scope":"per_ip","limits":[{"algorithm":"token_bucket","name":"burst","capacity":5,"refill":"5/m"}]}` + "\n]\n"
	if code != exitOK || stdout != want || stderr != "stint: rule \"per-ip\": deniedIps is not kept\n" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	says(t, nil, exitOK, ": 1 rule, 1 enabled", "rules", "validate", writeFile(t, stdout))
	if code, _, stderr := do(t, nil, "rules", "import", "redis://ann:s3cret@localhost"); code != exitUsage || strings.Contains(stderr, "s3cret") {
		t.Errorf("another scheme: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := do(t, nil, "rules", "import", "mongodb://ann:s3cret@127.0.0.1:1/x?serverSelectionTimeoutMS=20"); code != exitFailed || strings.Contains(stderr, "s3cret") {
		t.Errorf("unreachable: exit code %d, %s", code, stderr)
	}
}
