package config_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/service/internal/config"
)

const (
	pageFile   = "../../../docs/reference/settings.md"
	schemaFile = "../../../docs/reference/configuration.schema.json"
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

For operators of ` + "`stint serve`" + `: every setting with its built-in value, what it may be and what it does. [Configuration](configuration.md) says
how they are given and how they work together. This page and the [JSON schema](configuration.schema.json), by which editors check the file, are
made from the program's own list.

| setting | default | allowed | |
|---|---|---|---|
`)
	cell := func(text string) string { return strings.ReplaceAll(text, "|", "\\|") }
	for _, s := range config.Settings() {
		standard := ""
		if s.Default() != "" {
			standard = "`" + s.Default() + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Name, standard, cell(allowed(t, s)), cell(s.Help()))
	}
	b.WriteString("\n`defaults`, `policies`, `rules` and `metrics.labels` are given in the file only; see [Limits](configuration.md#limits) and " +
		"[Rules](../rules.md).\n")
	return b.String()
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
		schema["anyOf"] = []any{number}
		if zero != "" {
			schema["anyOf"] = []any{number, map[string]any{"const": zero}}
		}
	case kind == "size":
		schema["type"] = []any{"string", "integer"}
	case kind == "networks" || kind == "headers":
		schema["type"], schema["items"] = []any{"array", "null"}, map[string]any{"type": "string"}
	case kind == "attribute-headers":
		schema["type"], schema["additionalProperties"] = []any{"object", "null"}, map[string]any{"type": "string"}
	case s.Value() == "":
		schema["type"] = "boolean"
	default:
		schema["type"] = "string"
		if kind == "webhook" || kind == "place" {
			schema["type"] = []any{"string", "null"}
		}
	}
	return schema
}

// object is a schema of a mapping that takes no other names.
func object() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
}

// schema is the JSON schema of the configuration's file.
func schema(t *testing.T) map[string]any {
	t.Helper()
	root := object()
	root["$schema"], root["title"] = "https://json-schema.org/draft/2020-12/schema", "The configuration of stint serve"
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
	limit := map[string]any{"type": "object"}
	for _, algorithm := range stint.Algorithms() {
		put("defaults."+strings.ToLower(algorithm.String()), limit)
	}
	put("policies", map[string]any{
		"type": []any{"object", "null"}, "additionalProperties": map[string]any{"type": "array", "items": limit, "minItems": 1},
	})
	put("rules", map[string]any{"type": []any{"array", "null"}, "items": map[string]any{"type": "object", "required": []any{"id"}}})
	return root
}

// The page of settings and the schema are made of the struct, with its help.
func TestReference(t *testing.T) {
	text, err := json.MarshalIndent(schema(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{pageFile: page(t), schemaFile: string(text) + "\n"} {
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

// check is what of a value a schema does not allow, as far as the schema above goes.
func check(of map[string]any, name string, v document.Value) (faults []string) {
	kind := map[document.Kind]string{
		document.KindMapping: "object", document.KindList: "array", document.KindText: "string", document.KindBoolean: "boolean",
		document.KindInteger: "integer", document.KindNull: "null",
	}[v.Kind]
	if types, given := of["type"]; given && !strings.Contains(fmt.Sprintf(" %v ", types), kind) {
		return []string{fmt.Sprintf("%s is a %s: %v", name, kind, types)}
	}
	if enum, given := of["enum"]; given && !strings.Contains(fmt.Sprint(enum), v.Text) {
		faults = append(faults, fmt.Sprintf("%s is %s: %v", name, v.Text, enum))
	}
	properties, _ := of["properties"].(map[string]any)
	for _, f := range v.Fields {
		if inner, known := properties[f.Name].(map[string]any); known {
			faults = append(faults, check(inner, name+"."+f.Name, f.Value)...)
		} else if of["additionalProperties"] == false {
			faults = append(faults, name+"."+f.Name+" is unknown")
		}
	}
	return faults
}

// The example, which has every setting, is as the schema says; a wrong name and a wrong type are not.
func TestSchemaOfTheExample(t *testing.T) {
	example, err := os.ReadFile("../../../docs/stint.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{string(example): 0, "listen: [a]\nlisten_too: b\nlog: {format: xml}": 3} {
		var faults document.Faults
		whole := document.Parse("example", []byte(text), 1<<20, &faults)
		if err := faults.Err(); err != nil {
			t.Fatal(err)
		}
		if got := check(schema(t), "", whole); len(got) != want {
			t.Errorf("%q, want %d faults", got, want)
		}
	}
}
