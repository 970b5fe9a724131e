package rulefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
	"github.com/stint-go/stint/rules"
)

const sample = `# Who signs in.
rules:
  - id: login
    match: {methods: [POST], path: /login}
    scope: per_ip
    limits:
      - {algorithm: fixed_window, limit: 5, window: 1m}
  -
    id: search
    scope: [per_user, "custom:tier"]
    missing: skip
    unlimited: true
`

func sampleRules() []rules.Rule {
	return []rules.Rule{
		{
			ID: "login", Match: rules.Match{Methods: []string{"POST"}, Paths: []string{"/login"}}, Scope: []string{rules.PerIP},
			Limits: []stint.Limit{stint.FixedWindow(5, time.Minute)},
		},
		{ID: "search", Scope: []string{rules.PerUser, rules.Custom("tier")}, Missing: rules.MissingSkip, Unlimited: true},
	}
}

func TestParse(t *testing.T) {
	got, positions, err := rulefile.Parse("r.yaml", []byte(sample))
	if err != nil || !reflect.DeepEqual(got, sampleRules()) {
		t.Errorf("%+v, %v", got, err)
	}
	want := []document.Position{{Source: "r.yaml", Line: 3, Column: 5}, {Source: "r.yaml", Line: 9, Column: 5}}
	if !reflect.DeepEqual(positions, want) {
		t.Errorf("positions %v, want %v", positions, want)
	}
	for source, text := range map[string]string{
		"r.yaml": "- id: a\n- id: b\n", "r": `{"rules": [{"id": "a"}, {"id": "b"}]}`,
		"r.json": `[{"id": "a"}, {"id": "b"}]`, "r.JSON": "{\"rules\":\n\t[{\"id\": \"a\"}, {\"id\": \"b\"}]}",
	} {
		got, positions, err := rulefile.Parse(source, []byte(text))
		if err != nil || !reflect.DeepEqual(got, []rules.Rule{{ID: "a"}, {ID: "b"}}) || len(positions) != 2 {
			t.Errorf("%s: %s: %+v, %v, %v", source, text, got, positions, err)
		}
	}
	for _, text := range []string{"[]", "rules: []"} {
		if got, _, err := rulefile.Parse("none.yaml", []byte(text)); err != nil || len(got) != 0 {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func TestParseFaults(t *testing.T) {
	type row struct{ Text, Want string }
	long := row{strings.Repeat(" ", rulefile.MaxBytes+1), "r.yaml: the document has 33554433 bytes; allowed: at most 33554432"}
	for _, test := range append(testtable.Rows[row](t, "testdata/parse.txt"), long) {
		got, positions, err := rulefile.Parse("r.yaml", []byte(test.Text))
		if err == nil || err.Error() != "stint: "+test.Want || !errors.Is(err, stint.ErrInvalid) || got != nil || positions != nil {
			t.Errorf("%.60q: got\n%v\nwant\n%s", test.Text, err, test.Want)
		}
	}
}

// write makes files in a folder, or replaces them, each in one step.
func write(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		half := filepath.Join(folder, ".half")
		must.Do(t, os.WriteFile(half, []byte(text), 0o600))
		must.Do(t, os.Rename(half, filepath.Join(folder, name)))
	}
}

func TestReadFolder(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, map[string]string{
		"2.yml": "[{id: c}]", "1.yaml": "- id: a\n- id: b\n", "10.json": `{"rules":[{"id":"d"}]}`,
		".3.yaml": "not: rules", "README.md": "not rules", "4.yaml~": "not rules",
	})
	must.Do(t, os.Mkdir(filepath.Join(folder, "more.yaml"), 0o700))
	got, positions, err := rulefile.Read(folder)
	var ids, places []string
	for i, rule := range got {
		ids = append(ids, rule.ID)
		places = append(places, strings.TrimPrefix(positions[i].String(), folder+"/"))
	}
	if err != nil || strings.Join(ids, " ") != "a b d c" || strings.Join(places, " ") != "1.yaml:1:3 1.yaml:2:3 10.json:1:11 2.yml:1:2" {
		t.Errorf("%v at %v, %v", ids, places, err)
	}
	got, _, err = rulefile.Read(filepath.Join(folder, "2.yml"))
	if err != nil || len(got) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestReadFaults(t *testing.T) {
	folder := t.TempDir()
	read := func() string {
		t.Helper()
		got, _, err := rulefile.Read(folder)
		if err == nil || got != nil || !errors.Is(err, stint.ErrInvalid) {
			t.Fatalf("%+v, %v", got, err)
		}
		return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "stint: "), folder, "F")
	}
	if got := read(); got != "F: the folder is without files of rules; allowed: one or more files *.yaml, *.yml or *.json" {
		t.Error(got)
	}
	write(t, folder, map[string]string{"a.yaml": "- id: a\n- id: b\n- id: a\n", "b.yaml": "- id: b\n- id: 5\n"})
	if got, want := read(), `F/a.yaml:3:3: rule "a" is given twice, first at F/a.yaml:1:3
F/b.yaml:1:3: rule "b" is given twice, first at F/a.yaml:2:3
F/b.yaml:2:7: rules[1]: id is 5; allowed: a text`; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	must.Do(t, os.Symlink("nowhere", filepath.Join(folder, "c.yaml")))
	if got := read(); got != "F/c.yaml: no such file or directory" {
		t.Error(got)
	}
	folder = filepath.Join(folder, "none")
	if got := read(); got != "F: no such file or directory" {
		t.Error(got)
	}
}
