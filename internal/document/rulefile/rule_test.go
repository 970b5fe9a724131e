package rulefile_test

import (
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected faults in testdata")

// read reads a list of rules in JSON.
func read(text string) ([]rules.Rule, error) {
	var faults document.Faults
	v := document.JSON("r.json", []byte(text), &faults)
	list := rulefile.Rules(v, "rules", &faults)
	return list, faults.Err()
}

// What is read is written again, in one form. TestJSON and TestRoundTrip hold that to the fields of a rule.
func TestRules(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Written string }](t, "testdata/rules.txt") {
		list, _, err := rulefile.Parse("r.yaml", []byte("["+test.Text+"]"))
		if strings.HasPrefix(test.Text, `{"`) && err == nil {
			var fromJSON []rules.Rule
			if fromJSON, err = read("[" + test.Text + "]"); !reflect.DeepEqual(fromJSON, list) {
				t.Errorf("%s: as JSON %+v, as YAML %+v", test.Text, fromJSON, list)
			}
		}
		if err != nil || len(list) != 1 {
			t.Errorf("%s: %+v, %v", test.Text, list, err)
			continue
		}
		got, err := rulefile.JSON(list[0])
		if err != nil || string(got) != strings.Replace(test.Written, "=", test.Text, 1) {
			t.Errorf("%s: %s, %v; want %s", test.Text, got, err, test.Written)
		}
		checkRoundTrip(t, list[0])
		if clone := list[0].Clone(); !clone.Equal(&list[0]) {
			t.Errorf("%s: a clone is %+v", test.Text, clone)
		}
	}
}

// Two rules are two, whatever is wrong with one of them.
func TestAFaultyRuleKeepsItsPlace(t *testing.T) {
	got, err := read(`[5, {"id": "b"}]`)
	if err == nil || len(got) != 2 || got[1].ID != "b" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestEveryFaultAtOnceWithItsPlace(t *testing.T) {
	_, err := read(string(must.Get(os.ReadFile("testdata/wrong.json"))(t)))
	wantFaults(t, err, "testdata/wrong.txt")
}

// wantFaults compares the faults of a document with those in a file.
func wantFaults(t *testing.T, err error, file string) {
	t.Helper()
	if !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("%v", err)
	}
	got := err.Error() + "\n"
	if *rewrite {
		must.Do(t, os.WriteFile(file, []byte(got), 0o600))
	}
	if want := string(must.Get(os.ReadFile(file))(t)); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNotAListOfRules(t *testing.T) {
	if _, err := read(`{"id": "a"}`); err == nil || !strings.Contains(err.Error(), "r.json:1:1: rules is a mapping; allowed: a list of rules") {
		t.Error(err)
	}
}

// There are two sliding windows; a document says which.
func TestSlidingWindowIsNone(t *testing.T) {
	_, _, err := rulefile.Parse("r.yaml", []byte("- {id: a, scope: global, limits: [{algorithm: sliding_window, limit: 5, window: 1s}]}"))
	const want = `limits[0].algorithm is "sliding_window"; allowed: sliding_window_log, which is exact, or sliding_window_counter, which takes less memory`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}
