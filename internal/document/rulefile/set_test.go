package rulefile_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

// faultsIn are the faults of a document, one a line.
func faultsIn(t *testing.T, source, text string) string {
	t.Helper()
	set, _, err := rulefile.ParseSet(source, []byte(text), rules.Options{})
	if (err == nil) == (set == nil) || err != nil && !errors.Is(err, stint.ErrInvalid) {
		t.Fatalf("%v, %v", set, err)
	}
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "stint: ")
}

// Rules that are a part of a set are checked with its others, and those that they replace are left out.
func TestParsePart(t *testing.T) {
	const org, team = "- {id: org, scope: global, limits: [{algorithm: token_bucket, capacity: CAPACITY, refill: 10/1h}]}\n",
		"- {id: team, within: org, scope: \"custom:team\", missing: skip, guaranteed: {search: {capacity: 10, refill: 1/1h}}}\n"
	whole, _, err := rulefile.ParseSet("a", []byte(strings.ReplaceAll(org, "CAPACITY", "100")+team), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		previous   *rules.Set
		text, want string
		rules      int
	}{
		{whole, team, "", 2},
		{whole, "- {id: other, scope: global, unlimited: true}", "", 3},
		{whole, strings.ReplaceAll(org, "CAPACITY", "9"), "part: rule \"team\": guaranteed is capacities of 10 together", 0},
		{whole, strings.ReplaceAll(org, "CAPACITY", "many"), `part:1:73: rule "org": limits[0].capacity is "many"`, 0},
		{whole, strings.Replace(team, "id: team", "id: zz", 1), `part:1:20: rule "zz": within is "org"`, 0},
		{whole, "- {scope: global, unlimited: true}", `part:1:3: rule 0: id is`, 0},
		{nil, team, `part:1:22: rule "team": within is "org"`, 0},
	} {
		set, list, err := rulefile.ParsePart("part", []byte(test.text), rules.Options{Previous: test.previous})
		switch {
		case test.want == "" && (err != nil || set.Len() != test.rules || len(list) != 1):
			t.Errorf("%s: %v, %v", test.text, list, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n")):
			t.Errorf("%s: %v; want %s alone", test.text, err, test.want)
		}
	}
}

// What is written wrongly hides nothing of what makes no sense elsewhere, and each fault is where it is.
func TestParseSetTellsAllFaults(t *testing.T) {
	_, list, err := rulefile.ParseSet("r.yaml", must.Get(os.ReadFile("testdata/set.yaml"))(t), rules.Options{})
	wantFaults(t, err, "testdata/set.txt")
	var faults document.Faults
	if !errors.As(err, &faults) || len(list) != 6 || faults[6].Rule != "a" || faults[5].Rule != "a" || faults[0].Rule != "" {
		t.Errorf("%d rules, %#v", len(list), faults)
	}
}

// A rule with something written wrongly has what makes no sense in it told too, unless that only follows from it.
func TestParseSetTellsAllFaultsOfARule(t *testing.T) {
	for _, test := range testtable.Rows[struct{ Text, Want string }](t, "testdata/set_rule.txt") {
		got := strings.Split(faultsIn(t, "r.yaml", test.Text), "\n")
		var wants []string
		for _, part := range strings.Split(test.Want, "; ") {
			at, what, _ := strings.Cut(part, ": ")
			wants = append(wants, "r.yaml:"+at+": ")
			if !slices.ContainsFunc(got, func(line string) bool {
				return strings.HasPrefix(line, "r.yaml:"+at+": ") && strings.Contains(line, what)
			}) {
				t.Errorf("%s\nlacks %s:\n%s", test.Text, part, strings.Join(got, "\n"))
			}
		}
		if len(got) != len(wants) {
			t.Errorf("%s\n%d faults, want %d:\n%s", test.Text, len(got), len(wants), strings.Join(got, "\n"))
		}
	}
}

func TestReadSetTellsAllFaults(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{
		"a.yaml": "- {id: a, scope: per_user, banned: true}\n- {id: b, scope: global, banned: true}\n",
		"b.yaml": "- {id: b, scope: per_user, banned: true}\n- {id: 5}\n",
		"c.json": `[{"id":"c","scope":"global"}]`,
	})
	const missing = `missing is not given; allowed: skip, deny or ip: what becomes of a request that lacks what scope or partition_by asks for`
	want := `F/a.yaml:1:3: rule "a": ` + missing + `
F/b.yaml:1:3: rule "b" is given twice, first at F/a.yaml:2:3
F/b.yaml:1:3: rule "b": ` + missing + `
F/b.yaml:2:3: rule 3: scope is missing; allowed: global, per_ip, per_user, per_api_key or custom:ATTRIBUTE, or a list of them without global
F/b.yaml:2:3: rule 3: limits is missing; allowed: 1 to 64 limits, or unlimited, banned or within in their place
F/b.yaml:2:8: rules[1]: id is 5; allowed: a text
F/c.json:1:2: rule "c": limits is missing; allowed: 1 to 64 limits, or unlimited, banned or within in their place`
	set, err := rulefile.ReadSet(folder, rules.Options{})
	if err == nil || set != nil {
		t.Fatal(set, err)
	}
	if got := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "stint: "), folder, "F"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := rulefile.ReadSet(folder+"/none", rules.Options{}); err == nil {
		t.Error("a file that is not there makes a set")
	}
	write(t, folder, map[string]string{"a.yaml": "[]", "b.yaml": "- {id: b, scope: global, banned: true}\n", "c.json": "[]"})
	if set, err := rulefile.ReadSet(folder, rules.Options{}); err != nil || set.Len() != 1 {
		t.Errorf("%v, %v", set, err)
	}
}

func TestMoreFaultsThanAreKept(t *testing.T) {
	var text strings.Builder
	for i := range 2 * document.MaxFaults {
		fmt.Fprintf(&text, "- {id: r%d, scope: global}\n", i)
	}
	got := strings.Split(faultsIn(t, "r.yaml", text.String()), "\n")
	if n := len(got); n != document.MaxFaults+1 || got[n-1] != "r.yaml:1001:3: and more" {
		t.Errorf("%d faults, the last %s", n, got[n-1])
	}
}

// What is wrong with all rules together is no rule's fault.
func TestFaultOfAllRules(t *testing.T) {
	_, _, err := rulefile.ParseSet("r.yaml", []byte("[{id: a, scope: global, banned: true}]"), rules.Options{IPv6Prefix: 129})
	if err == nil || err.Error() != "stint: r.yaml: IPv6Prefix is 129; allowed: 1 to 128" {
		t.Error(err)
	}
}

func TestByteOrderMark(t *testing.T) {
	for source, text := range map[string]string{
		"r.yaml": "\ufeff- {id: a, scope: global, banned: true}",
		"s.yaml": "\ufeffrules:\n- {id: a, scope: global, banned: true}",
		"r.json": "\ufeff" + `[{"id":"a","scope":"global","banned":true}]`,
	} {
		if got := faultsIn(t, source, text); got != "" {
			t.Errorf("%s: %s", source, got)
		}
	}
	if got := faultsIn(t, "r.yaml", "\ufeff- {id: a, scope: moon, banned: true}"); !strings.HasPrefix(got, "r.yaml:1:18: ") {
		t.Errorf("a fault in the first line: %s", got)
	}
}

// A configuration of the service is told by what only it has.
func TestConfigurationForRules(t *testing.T) {
	for _, name := range []string{"listen", "admin_listen", "store", "policies", "rules_from", "trusted_proxies"} {
		text := "\n" + name + ": {}\ncolour: red\nrules: [{id: 5}]\n"
		if got := faultsIn(t, "c.yaml", text); strings.Contains(got, "\n") || !strings.HasPrefix(got, `c.yaml:2:1: the document has "`+name+`", as a configuration of the service has`) {
			t.Errorf("%s: %s", name, got)
		}
	}
}
