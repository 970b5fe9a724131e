package registry_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry"
	"github.com/stint-go/stint/rules/registry/registrytest"
)

// A version is read as it was written.
func TestVersionRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := registrytest.Rules().Draw(t, "before"), registrytest.Rules().Draw(t, "after")
		v := registry.Version{
			Head:   registry.Head{Number: rapid.Int64().Draw(t, "number"), At: rapid.Int64().Draw(t, "at")},
			Author: registry.Author{By: rapid.String().Draw(t, "by"), Comment: rapid.String().Draw(t, "comment")},
			Changes: []registry.Change{
				{ID: before.ID, Before: &before}, {ID: after.ID, After: &after}, {ID: after.ID, Before: &before, After: &after},
			},
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var read registry.Version
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, v) {
			t.Fatalf("%s is read as\n%+v, %v", text, read, err)
		}
	})
}

// Whatever a backend holds is read as a version that is written and read as the same, or refused.
func FuzzVersion(f *testing.F) {
	for _, text := range []string{
		`{"version":1,"at":5,"by":"ann","action":"x","comment":"y","changes":[{"id":"a","before":{"id":"a","unlimited":true},"after":{"id":"a","banned":true}}]}`,
		`{"changes":[{"id":"a","after":{"id":"b","scope":["per_ip"],"limits":[{"algorithm":"token_bucket","capacity":5,"refill":"1/s"}]}}]}`,
		`{"changes":[{"id":"a","after":null}]}`, `{"changes":[{"id":"a","after":[]}]}`, `{"version":1.5}`, `null`, `[]`, `{`, ``, "{\"by\":\"\xff\"}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var v registry.Version
		if err := v.UnmarshalJSON(text); err != nil {
			if !errors.Is(err, stint.ErrInvalid) {
				t.Fatalf("%q: %v is not ErrInvalid", text, err)
			}
			return
		}
		written, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%q is read as %+v and can't be written: %v", text, v, err)
		}
		var again registry.Version
		if err := again.UnmarshalJSON(written); err != nil {
			t.Fatalf("%q is written as %q, and that not read: %v", text, written, err)
		}
		if rewritten, err := json.Marshal(again); err != nil || string(rewritten) != string(written) {
			t.Fatalf("%q is written as %q, and then as %q, %v", text, written, rewritten, err)
		}
	})
}

// The same for rules by themselves.
func FuzzParseRule(f *testing.F) {
	for _, text := range []string{
		`{"id":"a","scope":"global","unlimited":true}`, `{"id":"a","limits":[{"algorithm":"fixed_window","limit":5,"window":"1m"}]}`,
		`{"id":5}`, `{"unknown":1}`, `null`, `[{}]`, `"`, `{"id":"a","id":"b"}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rule, err := registry.ParseRule("the place", text)
		if err != nil {
			if !errors.Is(err, stint.ErrInvalid) {
				t.Fatalf("%q: %v is not ErrInvalid", text, err)
			}
			return
		}
		written, err := notation.JSON(rule)
		if err != nil {
			t.Fatalf("%q is read as %+v and can't be written: %v", text, rule, err)
		}
		again, err := registry.ParseRule("the place", written)
		if err != nil || !again.Equal(&rule) {
			t.Fatalf("%q is read as\n%+v, and what is written of it as\n%+v, %v", text, rule, again, err)
		}
	})
}
