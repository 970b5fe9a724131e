package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/must"
)

func TestDefaultsSatisfyTheirSetters(t *testing.T) {
	var faults document.Faults
	for _, s := range settings(new(Config)) {
		if s.Default() != "" {
			s.Set(document.Value{At: document.Position{Source: s.Name}, Kind: document.KindUntyped, Text: s.Default()}, &faults)
		}
	}
	if err := faults.Err(); err != nil {
		t.Errorf("the built-in values: %v", err)
	}
	if err := clientip.Config(Default().ClientIP).Validate(); err != nil {
		t.Errorf("client addresses by default: %v", err)
	}
}

// Every setting has a help text, and every help text is a setting's.
func TestHelp(t *testing.T) {
	texts := strings.Count(help, ":\n  ")
	for _, s := range Settings() {
		if s.Help() == "" {
			t.Errorf("%s has no text in help.txt", s.Name)
		}
		texts--
	}
	if texts != 0 {
		t.Errorf("help.txt has %d texts more than there are settings", texts)
	}
}

func TestIsBearerToken(t *testing.T) {
	for token, want := range map[string]bool{
		"a": true, "AZaz09-._~+/": true, "abc==": true,
		"": false, "=": false, "a=b": false, "a b": false, "a\n": false, "é": false, "a,b": false,
	} {
		if got := IsBearerToken(token); got != want {
			t.Errorf("IsBearerToken(%q) = %v, want %v", token, got, want)
		}
	}
}

func FuzzFile(f *testing.F) {
	example := must.Get(os.ReadFile("../../../docs/stint.example.yaml"))(f)
	for _, seed := range []string{
		string(example), "", "listen: 1", "store: {url: [}", "policies: {p: [{algorithm: token_bucket}]}",
		"defaults: {fixed_window: {calendar: day, timezone: UTC}}", "? [a]\n: b", "a: &x [*x]", "<<: {a: b}", "---\n---\na: 1", "%YAML 1.2\n---\nx:", "\xff", "- - - -", "a: !!binary x",
		"store: {max_memory: 99999999TiB}", "policies: {p: [{algorithm: leaky_bucket, capacity: 1, leak: 1/1ms, max_debt: 1000000000}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return // the parser takes time that is quadratic in the depth
		}
		config := Default()
		var faults document.Faults
		l := loader{config: &config, settings: settings(&config), faults: &faults, from: map[string]document.Position{}}
		l.file("f.yaml", data)
		for _, fault := range faults {
			if fault.Position.Source != "f.yaml" || fault.Position.Line < 1 || fault.Position.Column < 1 || fault.Message == "" {
				t.Fatalf("a fault without place or words: %#v", fault)
			}
		}
		if len(faults) > 0 {
			return
		}
		for algorithm, limit := range config.Defaults {
			if err := limit.Validate(); err != nil || limit.Algorithm != algorithm {
				t.Errorf("accepted default of %v: %+v: %v", algorithm, limit, err)
			}
		}
		if err := clientip.Config(config.ClientIP).Validate(); err != nil {
			t.Errorf("accepted client addresses: %v", err)
		}
	})
}
