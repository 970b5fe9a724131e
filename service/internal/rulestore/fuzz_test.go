package rulestore_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testrules"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

func equal(a, b []rules.Rule) bool {
	return slices.EqualFunc(a, b, func(a, b rules.Rule) bool { return a.Equal(&b) })
}

// Rules are read as they were written, also by a codec that knows some of them, which writes them alike.
func TestDecodeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var codec rulestore.Codec
		list := rapid.SliceOfN(testrules.Rules(), 0, 6).Draw(t, "rules")
		for range 3 {
			text := must.Get(rulestore.Encode(list))(t)
			if again, err := codec.Encode(list); err != nil || !bytes.Equal(again, text) {
				t.Fatalf("%s is written by a codec as\n%s, %v", text, again, err)
			}
			if rapid.Bool().Draw(t, "known") {
				codec.Known(text, list)
			}
			for _, decode := range []func(string, []byte) ([]rules.Rule, error){rulestore.Decode, codec.Decode} {
				if read, err := decode("a text", text); err != nil || !equal(read, list) {
					t.Fatalf("%s is read as\n%+v, %v", text, read, err)
				}
			}
			if len(list) > 0 {
				list = slices.Clone(list)
				at, rule := &list[rapid.IntRange(0, len(list)-1).Draw(t, "at")], testrules.Rules().Draw(t, "rule")
				if rapid.Bool().Draw(t, "same ID") {
					rule.ID = at.ID
				}
				*at = rule
				list = append(list[rapid.IntRange(0, 1).Draw(t, "less"):], testrules.Rules().Draw(t, "more"))
			}
		}
	})
}

// Whatever a store holds is read as rules that are written and read as the same, or refused; a
// codec that knows other rules reads the same.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		"[\n]\n", "[\n{\"id\":\"a\",\"unlimited\":true},\n{\"id\":\"b\"}\n]\n", "[\n{\"id\":\"a\"},{\"id\":\"b\"}\n]\n", "[\n{\"id\":\"a\"}\n{\"id\":\"b\"}\n]\n",
		"[\n{\"id\":\"a\"},\n]\n", "[\n{\n\"id\":\"a\"}\n]\n", "[\n{\"id\":\"x\"}\n", "{\"id\":\"x\"}\n]\n", "garbage", "", "[", "null", "{}", "[\n{\"unknown\":1}\n]\n", "[\n{\"id\":\"\xff\"}\n]\n",
		`[{"id":"a","limits":[{"algorithm":"fixed_window","limit":5,"window":"1m"}]}]`, `[{"id":"a","id":"b"}]`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := rulestore.Decode("the place", text)
		var codec rulestore.Codec
		codec.Known([]byte("[\n{\"id\":\"x\"}\n]\n"), []rules.Rule{{ID: "x"}})
		if again, fault := codec.Decode("the place", text); (fault == nil) != (err == nil) || !equal(again, list) || err != nil && err.Error() != fault.Error() {
			t.Fatalf("%q is read as %+v, %v, by a codec as %+v, %v", text, list, err, again, fault)
		}
		if err != nil {
			if !errors.Is(err, rulestore.ErrUnreadable) {
				t.Fatalf("%q: %v is not ErrUnreadable", text, err)
			}
			return
		}
		written, err := rulestore.Encode(list)
		if err != nil {
			t.Fatalf("%q is read as %+v and can't be written: %v", text, list, err)
		}
		again, err := rulestore.Decode("the place", written)
		if err != nil || !equal(again, list) {
			t.Fatalf("%q is read as\n%+v, and what is written of it as\n%+v, %v", text, list, again, err)
		}
		if rewritten, err := rulestore.Encode(again); err != nil || !bytes.Equal(rewritten, written) {
			t.Fatalf("%q is written as %q, and then as %q, %v", text, written, rewritten, err)
		}
	})
}

// TestRuleOverTwoLines: a rule of a text made by hand goes over two lines, of which none is written again by itself.
func TestRuleOverTwoLines(t *testing.T) {
	var codec rulestore.Codec
	list, err := codec.Decode("a text", []byte("[\n"+`{"id":"a","limits":[{"algorithm":"fixed_window","limit":1,"window":"1m"}`+",\n"+
		`{"algorithm":"fixed_window","name":"n","limit":2,"window":"1m"}]},{"id":"b","unlimited":true}`+"\n]\n"))
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	list[1].Name = "new"
	text, err := codec.Encode(list)
	if read, fault := rulestore.Decode("a text", text); err != nil || fault != nil || !equal(read, list) {
		t.Errorf("%v; %s is read as %+v, %v", err, text, read, fault)
	}
}
