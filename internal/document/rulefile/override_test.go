package rulefile_test

import (
	"reflect"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

func TestOverrideAlone(t *testing.T) {
	for want, override := range map[string]rules.Override{
		`{"key":"<a|b>","banned":true}`: {Key: "<a|b>", Banned: true},
		`{"key":"ann","limits":[{"algorithm":"token_bucket","capacity":5,"refill":"1/s"}]}`: {Key: "ann", Limits: []stint.Limit{stint.TokenBucket(5, stint.PerSecond(1))}},
	} {
		text, err := rulefile.OverrideJSON(override)
		if err != nil || string(text) != want {
			t.Errorf("%s, %v; want %s", text, err, want)
		}
		var faults document.Faults
		read := rulefile.Override(document.JSON("test", text, &faults), "the override", &faults)
		if faults.Err() != nil || !reflect.DeepEqual(read, override) {
			t.Errorf("%s is read as %v, %v", text, read, faults.Err())
		}
	}
	var faults document.Faults
	rulefile.Override(document.JSON("test", []byte(`{"banned": 5, "scope": "global"}`), &faults), "the override", &faults)
	rulefile.Override(document.JSON("test", []byte(`[]`), &faults), "the override", &faults)
	if len(faults) != 3 {
		t.Errorf("faults: %v", faults)
	}
	if _, err := rulefile.OverrideJSON(rules.Override{Limits: []stint.Limit{{}}}); err == nil {
		t.Error("an unsound limit is written")
	}
}
