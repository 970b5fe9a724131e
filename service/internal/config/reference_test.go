package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/service/internal/config"
)

const (
	pageFile   = "../../../docs/reference/settings.md"
	schemaFile = "../../../docs/reference/stint.schema.json"
	rulesFile  = "../../../docs/reference/rules.schema.json"
	valuesFile = "../../../deploy/helm/values.schema.json"

	exampleFile = "../../../docs/stint.example.yaml"
)

// allowed is what a setting may be, as the fault says that it makes of a mapping; a text that is not checked is its unit.
func allowed(t *testing.T, s config.Setting) string {
	t.Helper()
	var faults document.Faults
	nonsense := document.Value{Kind: document.KindMapping, Fields: []document.Field{{Name: " "}}}
	if s.Set(nonsense, &faults); len(faults) != 1 {
		t.Fatalf("%s takes a mapping, or has no words for it: %v", s.Name, faults)
	}
	_, text, _ := strings.Cut(faults[0].Message, "; allowed: ")
	if text == "a text" {
		return s.Value()
	}
	return text
}

// page is the reference of all settings.
func page(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# Settings

For operators of ` + "`stint serve`" + `: every setting with its built-in value and the reason for it, what it may be and what it does.
[Configuration](configuration.md) says how they are given and how they work together. This page and the [JSON schema](stint.schema.json), by which editors check the file, are
made from the program's own list.

| setting | default | allowed | | why this default |
|---|---|---|---|---|
`)
	cell := func(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
	for _, s := range config.Settings() {
		standard := ""
		if s.Default() != "" {
			standard = "`" + s.Default() + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, standard, cell(allowed(t, s)), cell(s.Help()), cell(s.Why()))
	}
	b.WriteString("\n`defaults`, `policies`, `rules` and `metrics.labels` are given in the file only; see [Limits](configuration.md#limits) and " +
		"[Rules](../rules.md).\n")
	return b.String()
}

// example is the example of a configuration, with a line for each setting that it lacks, behind that of the setting
// before it.
func example(t *testing.T) string {
	t.Helper()
	text := must.Get(os.ReadFile(exampleFile))(t)
	lines, before := strings.Split(string(text), "\n"), 0
	for _, s := range config.Settings() {
		var faults document.Faults
		read := document.Parse(exampleFile, []byte(strings.Join(lines, "\n")), len(text)*2, &faults)
		must.Do(t, faults.Err())
		if _, found := read.Find(s.Name); found {
			before = read.Place(s.Name).Line
			continue
		}
		if strings.Contains(string(text), "\n#"+s.Name+":") {
			continue // an example
		}
		parts := strings.Split(s.Name, ".")
		standard := s.Default()
		if standard == "" {
			standard = `""`
		}
		line := fmt.Sprintf("%s%s: %s  # %s", strings.Repeat("  ", len(parts)-1), parts[len(parts)-1], standard, s.Help())
		lines = slices.Insert(lines, before, line)
		before++
	}
	return strings.Join(lines, "\n")
}

// orZero adds the word for a setting's zero value to schemas of which a value has to match one. Nothing at all says off, too.
func orZero(zero string, schemas ...any) []any {
	if zero != "" {
		schemas = append(schemas, map[string]any{"const": zero})
	}
	if zero == "off" {
		schemas = append(schemas, map[string]any{"enum": []any{nil, ""}})
	}
	return schemas
}

// schemaOf is the schema of one setting.
func schemaOf(t *testing.T, s config.Setting) map[string]any {
	t.Helper()
	schema := map[string]any{"description": s.Help() + ". Allowed: " + allowed(t, s)}
	words, zero := strings.Fields(s.Tag.Get("is")), s.Tag.Get("zero")
	names := func(words []string) (all []any) {
		for _, word := range words {
			all = append(all, word)
		}
		return all
	}
	kind := ""
	if len(words) > 0 {
		kind = words[0]
	}
	switch {
	case kind == "one-of":
		if zero != "" {
			words = append(words, zero)
		}
		schema["enum"] = names(words[1:])
	case kind == "level":
		schema["enum"] = names([]string{"debug", "info", "warn", "error"})
	case kind == "ietf":
		schema["enum"] = []any{true, false, "draft-11", "issue-166"}
	case kind == "integer" || kind == "partitions":
		number := map[string]any{"type": "integer"}
		if kind == "integer" {
			for i, bound := range []string{"minimum", "maximum"} {
				n, ok := document.ParseInteger(words[i+1])
				if !ok {
					t.Fatalf("%s: %s", s.Name, words[i+1])
				}
				number[bound] = n
			}
		}
		schema["anyOf"] = orZero(zero, number)
	case kind == "size":
		schema["anyOf"] = orZero(zero, map[string]any{"type": "string", "pattern": "^[0-9]+((Ki|Mi|Gi|Ti)B)?$"}, map[string]any{"type": "integer"})
	case kind == "duration":
		schema["anyOf"] = orZero(zero, map[string]any{"type": "string", "pattern": `^(0|([0-9.]+[a-zµμ]+)+)$`}, map[string]any{"const": 0})
	case kind == "networks" || kind == "headers":
		schema["type"], schema["items"] = []any{"array", "null"}, map[string]any{"type": "string"}
	case kind == "attribute-headers":
		schema["type"], schema["additionalProperties"] = []any{"object", "null"}, map[string]any{"type": "string"}
	case s.Value() == "":
		schema["type"] = "boolean"
	default:
		schema["type"] = "string"
		if kind == "webhook" || kind == "place" || zero == "off" {
			schema["type"] = []any{"string", "null"}
		}
	}
	return schema
}

// object is a schema of a mapping that takes no other names.
func object() map[string]any {
	return map[string]any{"type": []any{"object", "null"}, "additionalProperties": false, "properties": map[string]any{}}
}

const draft = "https://json-schema.org/draft/2020-12/schema"

// schema is the JSON schema of the configuration's file.
func schema(t *testing.T) map[string]any {
	t.Helper()
	root := object()
	root["$schema"], root["title"] = draft, "The configuration of stint serve"
	put := func(name string, of map[string]any) {
		at := root["properties"].(map[string]any)
		parts := strings.Split(name, ".")
		for _, part := range parts[:len(parts)-1] {
			if at[part] == nil {
				at[part] = object()
			}
			at = at[part].(map[string]any)["properties"].(map[string]any)
		}
		at[parts[len(parts)-1]] = of
	}
	for _, s := range config.Settings() {
		put(s.Name, schemaOf(t, s))
	}
	put("metrics.labels", map[string]any{"type": []any{"object", "null"}, "additionalProperties": map[string]any{"type": "string"}})
	for _, algorithm := range notation.Algorithms() {
		put("defaults."+strings.ToLower(algorithm.String()), rulefile.LimitSchema(algorithm))
	}
	put("policies", map[string]any{"type": []any{"object", "null"}, "additionalProperties": rulefile.LimitsSchema()})
	put("rules", map[string]any{"$ref": "#/$defs/rules"})
	root["$defs"] = map[string]any{"rules": rulefile.Schema()}
	return root
}

// rulesSchema is the JSON schema of a document of rules: a list of them, or a mapping with such a list.
func rulesSchema() map[string]any {
	whole := object()
	whole["properties"], whole["required"] = map[string]any{"rules": map[string]any{"$ref": "#/$defs/rules"}}, []any{"rules"}
	return map[string]any{
		"$schema": draft, "title": "Rules of stint", "$defs": map[string]any{"rules": rulefile.Schema()},
		"if": map[string]any{"type": "array"}, "then": map[string]any{"$ref": "#/$defs/rules"}, "else": whole,
	}
}

// valuesSchema is the chart's schema with the definitions of the configuration and of rules, in its one line that begins so.
func valuesSchema(t *testing.T) string {
	t.Helper()
	text := must.Get(os.ReadFile(valuesFile))(t)
	of := schema(t)
	rules := of["$defs"].(map[string]any)["rules"]
	delete(of, "$defs")
	delete(of, "$schema")
	delete(of["properties"].(map[string]any), "rules") // which are values of their own
	line := must.Get(json.Marshal(map[string]any{"config": of, "rules": rules}))(t)
	const begins = "  \"$defs\": "
	lines := strings.Split(string(text), "\n")
	for i := range lines {
		if strings.HasPrefix(lines[i], begins) {
			lines[i] = begins + string(line) + ","
			return strings.Join(lines, "\n")
		}
	}
	t.Fatalf("%s has no line that begins with %s", valuesFile, begins)
	return ""
}

// The page of settings, the schemas, and what the example lacks are made of the struct, with its help, and of package
// rules' tags.
func TestReference(t *testing.T) {
	indented := func(of map[string]any) string {
		text := must.Get(json.MarshalIndent(of, "", " "))(t)
		return string(text) + "\n"
	}
	for name, want := range map[string]string{
		pageFile: page(t), schemaFile: indented(schema(t)), rulesFile: indented(rulesSchema()), valuesFile: valuesSchema(t),
		exampleFile: example(t),
	} {
		if *rewrite {
			if err := os.WriteFile(name, []byte(want), 0o644); err != nil { //nolint:gosec // a page for everybody
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil || string(got) != want {
			t.Errorf("%s is not what the settings make (%v): go test ./service/internal/config -run TestReference -rewrite", name, err)
		}
	}
}
