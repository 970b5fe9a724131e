package server_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// words takes a command apart as a shell does that knows single quotes.
func words(command string) []string {
	var all []string
	for _, word := range regexp.MustCompile(`(?:'[^']*'|[^\s'])+`).FindAllString(command, -1) {
		all = append(all, strings.ReplaceAll(word, "'", ""))
	}
	return all
}

// curl does what a command of the documentation does, and returns what it prints.
func (d *adminFixture) curl(command string) string {
	d.t.Helper()
	method, url, body, head := http.MethodGet, "", "", false
	var fields []string
	for args := words(command)[1:]; len(args) > 0; args = args[1:] {
		argument := func() string { args = args[1:]; return args[0] }
		switch args[0] {
		case "-i":
			head = true
		case "-X":
			method = argument()
		case "-d":
			body = argument()
		case "-H":
			fields = append(fields, argument())
		default:
			url = args[0]
		}
	}
	got := d.ask(method, strings.TrimPrefix(url, "localhost:8079"), body, fields...)
	if !head {
		return got.body
	}
	lines := []string{fmt.Sprintf("HTTP/1.1 %d %s", got.status, http.StatusText(got.status))}
	for name := range got.header {
		lines = append(lines, name+": "+got.header.Get(name))
	}
	slices.Sort(lines)
	return strings.Join(append(lines, got.body), "\n")
}

// The commands of docs/administration.md print what it says, where … stands for anything.
func TestAdministrationDocs(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/administration.md"))(t)
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	commands := 0
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for example := range strings.SplitSeq(block[1], "\n\n") {
			command, output, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(example), "\\\n", " "), "\n")
			command, isCommand := strings.CutPrefix(command, "$ ")
			if !isCommand {
				t.Fatalf("no command: %s", example)
			}
			commands++
			printed := strings.Split(d.curl(command), "\n")
			for line := range strings.SplitSeq(output, "\n") {
				pattern := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*") + "$")
				if !slices.ContainsFunc(printed, pattern.MatchString) {
					t.Errorf("%s\nprints\n%s\nwhich lacks\n%s", command, strings.Join(printed, "\n"), line)
				}
			}
		}
	}
	if commands < 15 {
		t.Errorf("only %d commands were found", commands)
	}
}

// The admin API's description of a rule has every member that a document of rules may have, and each of a member's
// values; explain takes what evaluate does.
func TestAdminDescriptionOfRules(t *testing.T) {
	var schema struct {
		Defs struct {
			Rules struct {
				Items struct {
					Properties map[string]struct{ Enum []any }
				}
			}
		} `json:"$defs"`
	}
	text := must.Get(os.ReadFile("../../../docs/reference/rules.schema.json"))(t)
	must.Do(t, json.Unmarshal(text, &schema))
	document := must.Get(adminDocument())(t)
	members := document.Components.Schemas["Rule"].Value.Properties
	for name, want := range schema.Defs.Rules.Items.Properties {
		if members[name] == nil {
			t.Errorf("%s is missing", name)
		} else if enum := members[name].Value.Enum; want.Enum != nil && !slices.Equal(enum, want.Enum) {
			t.Errorf("%s is one of %v, want %v", name, enum, want.Enum)
		}
	}
	names := func(document *openapi3.T, schema string) []string {
		return slices.Sorted(maps.Keys(document.Components.Schemas[schema].Value.Properties))
	}
	asked := names(must.Get(documentOf("../rest/openapi.yaml")())(t), "EvaluateRequest")
	if explained := names(document, "Evaluation"); !slices.Equal(explained, asked) {
		t.Errorf("explain takes %v, want %v, as evaluate does", explained, asked)
	}
}

// An answer about a rule with everything that only its document can say is as the description has it.
func TestAdminAnswersAboutSoftRules(t *testing.T) {
	d := newAdminFixture(t, rulestore.NewMemory(), nil)
	d.ask("PUT", "/api/v1/rules", `[
		{"id": "soft", "scope": "global", "on_exceed": "mark", "limits": [{"algorithm": "fixed_window", "limit": 5, "window": "1h"}]},
		{"id": "paused", "scope": "per_ip", "mark_at": "80%", "count": {"status": [401, "5xx"]}, "block": {"after": 20, "for": "10m"},
			"limits": [{"algorithm": "fixed_window", "limit": 5, "window": "1h"}]}]`).is(200)
	d.ask("GET", "/api/v1/rules", "").is(200)
	d.ask("POST", "/api/v1/rules/explain", `{"path": "/", "ip": "192.0.2.1", "wait": false}`).is(200)
	d.ask("GET", "/api/v1/clients/192.0.2.1", "").is(200)
}
