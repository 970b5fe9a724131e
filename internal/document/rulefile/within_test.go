package rulefile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// A ceiling on what is borrowed is written, also where a program says that clients may borrow at all.
func TestBorrowOfBothIsWritten(t *testing.T) {
	written, err := rulefile.JSON(rules.Rule{ID: "a", Borrow: rules.Borrow{Any: true, Rate: stint.PerSecond(50)}})
	if err != nil || string(written) != `{"id":"a","borrow":"50/s"}` {
		t.Errorf("%s, %v", written, err)
	}
}

// What is not written as it should be is a fault with its place.
func TestFaultsOfWithinAsWritten(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/within.txt") {
		_, _, err := rulefile.Parse("r.yaml", []byte("- {id: a, "+test.Text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), test.Want) {
			t.Errorf("%s: %v; want %s", test.Text, err, test.Want)
		}
	}
}

// What does not make sense is told where it stands in the document.
func TestPlacesOfFaultsOfWithin(t *testing.T) {
	const text = `
- {id: org, scope: global, limits: [{algorithm: token_bucket, capacity: 100, refill: 10/s}]}
- id: team
  within: org
  scope: custom:team
  missing: skip
  guaranteed:
    search: {capacity: 90, refill: 3/s}
    a.b: {capacity: 30, refill: 3/s}
  borrow: true
  classes:
    by: {attribute: class}
    keep: {critical: 0%}
    default: batch
`
	for _, test := range []struct{ replace, by, want string }{
		{"", "", `14:14: rule "team": classes.default is "batch"; allowed: one of the classes of keep`},
		{"default: batch", "default: critical", `8:5: rule "team": guaranteed is capacities of 120 together; allowed: at most 100, what rule org has`},
		{"a.b", "a|b", `9:10: rule "team": guaranteed.a|b is "a|b"; allowed: 1 parts joined by |`},
		{"within: org", "within: nobody", `classes.default is`},
	} {
		document := strings.Replace(text, test.replace, test.by, 1)
		_, _, err := rulefile.ParseSet("r.yaml", []byte(document), rules.Options{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v; want %s", test.by, err, test.want)
		}
	}
}

// An odd document of such rules is read or refused, and never more.
func FuzzWithin(f *testing.F) {
	f.Add("search", int64(30), "3/s", "true", "15%", "batch")
	f.Add(`a|\b`, int64(-1), "1/366d", "50/s", "%", "")
	f.Fuzz(func(t *testing.T, key string, n int64, rate, borrow, percent, class string) {
		quote := func(text string) string {
			return string(document.Value{Kind: document.KindText, Text: text}.JSON())
		}
		text := fmt.Sprintf(`[{"id":"org","scope":"global","limits":[{"algorithm":"token_bucket","capacity":100,"refill":"10/s"}]},
			{"id":"a","within":"org","scope":"custom:k","missing":"skip","guaranteed":{%s:{"capacity":%d,"refill":%s}},"borrow":%s},
			{"id":"b","within":"a","scope":"per_user","missing":"ip","weights":{%s:%d},"borrow":%s,
			 "classes":{"by":{"attribute":%s},"keep":{%s:%s},"default":%s}}]`,
			quote(key), n, quote(rate), quote(borrow), quote(key), n, quote(borrow), quote(class), quote(class), quote(percent), quote(class))
		_, list, err := rulefile.ParseSet("r.json", []byte(text), rules.Options{})
		if err != nil {
			return
		}
		for _, rule := range list {
			written := must.Get(rulefile.JSON(rule))(t)
			if again, err := read("[" + string(written) + "]"); err != nil || !again[0].Equal(&rule) {
				t.Errorf("%s is read as %+v, %v", written, again, err)
			}
		}
	})
}
