package config_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
)

// compiled are the schemas of the repository, by name.
func compiled(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	all := map[string]*jsonschema.Schema{}
	for name, file := range map[string]string{"stint": schemaFile, "rules": rulesFile, "values": valuesFile} {
		path := must.Get(filepath.Abs(file))(t)
		all[name] = must.Get(jsonschema.NewCompiler().Compile(path))(t)
	}
	return all
}

// allows is why a schema does not allow a text of YAML; nil: it does.
func allows(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	var faults document.Faults
	whole := document.Parse("a.yaml", []byte(text), 1<<20, &faults)
	if err := faults.Err(); err != nil {
		return err
	}
	value := must.Get(jsonschema.UnmarshalJSON(bytes.NewReader(whole.JSON())))(t)
	return schema.Validate(value)
}

func readsRules(text string) error {
	_, _, err := rulefile.ParseSet("a.yaml", []byte(text), rules.Options{})
	return err
}

func readsConfig(t *testing.T, text string) error {
	t.Helper()
	_, err := config.Load(config.Sources{File: write(t, text)})
	return err
}

// What the readers take in examples and pages, the schemas allow.
func TestSchemasOfExamples(t *testing.T) {
	const root = "../../../"
	schemas, ofRules, configurations := compiled(t), 0, 0
	try := func(from, text string) {
		if strings.TrimSpace(text) == "" {
			return
		}
		if readsRules(text) == nil {
			ofRules++
			if err := allows(t, schemas["rules"], text); err != nil {
				t.Errorf("%s: %v\n%s", from, err, text)
			}
		}
		if readsConfig(t, text) == nil {
			configurations++
			if err := allows(t, schemas["stint"], text); err != nil {
				t.Errorf("%s: %v\n%s", from, err, text)
			}
		}
	}
	for _, pattern := range []string{
		"docs/*.md", "docs/*/*.md", "README.md", "docs/*.yaml", "examples/*/*.yaml", "deploy/*/*.yaml",
	} {
		files, err := filepath.Glob(root + pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, file := range files {
			text := must.Get(os.ReadFile(file))(t)
			if filepath.Ext(file) == ".yaml" {
				try(file, string(text))
				continue
			}
			for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
				try(file, block[1])
			}
		}
	}
	if ofRules < 25 || configurations < 20 {
		t.Errorf("%d documents of rules and %d configurations were found", ofRules, configurations)
	}
}

// rule is a document with one rule, which has these parameters besides.
func rule(parameters string) string {
	return "rules: [{id: a, scope: per_ip, limits: [{algorithm: fixed_window, limit: 5, window: 1h}], " + parameters + "}]"
}

// alone is a document with one rule of these parameters.
func alone(parameters string) string { return "rules: [{id: a, " + parameters + "}]" }

// limited is a document with one rule with one limit.
func limited(limit string) string {
	return "rules: [{id: a, scope: global, limits: [{" + limit + "}]}]"
}

// Faulty documents are refused by the reader, and by the schema, but for what no schema can know: those begin with a ~.
func TestSchemasOfFaultyDocuments(t *testing.T) {
	schemas := compiled(t)
	ofRules := []string{
		rule("nonsense: 1"), rule("missing: maybe"), rule("missing_status: x"), rule("on_exceed: explode"),
		rule("on_store_failure: ajar"), rule("max_wait: 100"), rule("max_wait: soon"), rule("max_waiters: 0"), rule("timeout: 5"),
		rule("priority: high"), rule("labels: [a]"), rule("labels: {a: {}}"), rule("match: /login"), rule("match: {pth: /a}"),
		rule("match: {paths: /a}"), rule("match: {methods: GET}"), rule("match: {headers: [a]}"),
		rule("match: {attributes: {a: {b: c}}}"), rule("enabled: maybe"), rule("unlimited: 1"), rule("banned: sure"),
		rule("cost: 0"), rule("cost: {default: 5}"), rule("cost: {header: X, other: 1}"),
		rule("cost: {sum: [{attribute: a, weight: 0}]}"), rule("cost: {sum: [{attribute: a, weight: much}]}"), rule("cost: {sum: [{attribute: a, weigth: 1}]}"), rule("cost: {sum: {attribute: a}}"),
		rule("cost: {sum: [{attribute: a, weight: 0.0001}]}"), "~" + rule("cost: {sum: [{weight: 2}]}"), "~" + rule("cost: {sum: [{attribute: a}], default: 5}"),
		rule("classes: {keep: {batch: 40}}"),
		rule("classes: {keep: {batch: 400%}}"), rule("borrow: much"), rule("weights: {a: 0}"),
		rule("guaranteed: {a: {capacity: 0, refill: 1/s}}"), rule("guaranteed: {a: {capacity: 5, refill: fast}}"),
		rule("overrides: {key: a}"), rule("overrides: [{ky: a}]"), rule("reserve: {ttl: 5}"), rule("reserve: {on_expiry: forget}"),
		rule("max_cost: 0"), "~" + rule("overrides: [{key: a, unlimited: true, until: tomorrow}]"), "~" + rule("max_wait: 1h"),
		alone("scope: nobody, unlimited: true"), alone("scope: \"per_ip:24/56\", unlimited: true"), alone("scope: {per_ip: {}}, unlimited: true"),
		alone("scope: {per_ip: {ipv4: 33}}, unlimited: true"), alone("scope: {per_ip: 24}, unlimited: true"), alone("scope: {per_user: {ipv4: 24}}, unlimited: true"),
		alone("scope: {per_ip: {ipv4: 24}, x: 1}, unlimited: true"), alone("scope: [{per_ip: {ipv4: 24}}, {per_ip: {ipv5: 24}}], unlimited: true"), "~" + alone("scope: {per_ip: {ipv6: 65}}, unlimited: true"),
		alone("scope: [], unlimited: true"), alone("scope: 5, unlimited: true"),
		limited("limit: 5, window: 1h"), limited("algorithm: leaky_bukket, capacity: 5, leak: 1/s"),
		limited("algorithm: token_bucket, capacity: 5"), limited("algorithm: token_bucket, limit: 5, window: 1s"),
		limited("algorithm: fixed_window, limit: 5"), limited("algorithm: fixed_window, limit: five, window: 1h"),
		limited("algorithm: fixed_window, limit: 5, calendar: fortnight"), limited("algorithm: token_bucket, capacity: 5, refill: 5"),
		limited("algorithm: token_bucket, capacity: 0, refill: 5/s"), limited("algorithm: sliding_window_log, limit: 5, window: 100"),
		"~" + limited("algorithm: token_bucket, capacity: 1000000000, refill: 1/1d"), "rules: {a: b}", "rules: [{scope: global}]",
		"rules: [5]", "rule: []", "- {id: a, scope: global, limits: []}",
	}
	ofConfig := []string{
		"listn: a:1", "store: {urll: memory://}", "store: memory://", "store: {timeout: 100}", "store: {max_memory: 12KB}",
		"store: {denial_cache: many}", "on_store_failure: ajar", "log: {format: xml}", "log: {level: loud}", "trusted_proxies: [5]",
		"headers: {ietf: maybe}", "instances: 0", "defaults: {token_bucket: {limit: 5}}", "defaults: {sliding_window: {limit: 5}}",
		"policies: {p: []}", "policies: {p: [{algorithm: fixed_window}]}", "metrics: {labels: [a]}",
		"rules: [{id: a, nonsense: 1}]", "~listen: 127.0.0.1:99999", "~rules_from: mysql://h",
	}
	if n := len(ofRules) + len(ofConfig); n < 60 {
		t.Errorf("only %d documents", n)
	}
	check := func(schema *jsonschema.Schema, text string, reads func(string) error) {
		text, unknowable := strings.CutPrefix(text, "~")
		if reads(text) == nil {
			t.Errorf("the reader takes %s", text)
		}
		if refused := allows(t, schema, text) != nil; refused == unknowable {
			t.Errorf("the schema refuses %s: %t", text, refused)
		}
	}
	for _, text := range ofRules {
		check(schemas["rules"], text, readsRules)
	}
	for _, text := range ofConfig {
		check(schemas["stint"], text, func(text string) error { return readsConfig(t, text) })
	}
}

// The chart's values are checked below config and rules, too.
func TestSchemaOfValues(t *testing.T) {
	schema := compiled(t)["values"]
	for text, allowed := range map[string]bool{
		"config: {store: {url: redis://r:6379, timeout: 50ms}, log: {level: debug}}": true,
		"config: {store: {urll: redis://r:6379}}":                                    false,
		"config: {listen: a:1}":                                                      false,
		"rules: [{id: a, scope: global, unlimited: true}]":                           true,
		"rules: [{id: a, scope: global, unlimitd: true}]":                            false,
	} {
		if err := allows(t, schema, text); (err == nil) != allowed {
			t.Errorf("%s: %v", text, err)
		}
	}
}
