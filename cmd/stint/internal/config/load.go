package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/server"
)

// Sources says where a configuration is read from.
type Sources struct {
	// File names the YAML file; "" is none. FileFrom is what named it, such as
	// --config, for the message when it can't be read.
	File, FileFrom string
	// Env looks up an environment variable. An empty one counts as absent. nil is
	// none.
	Env func(name string) (text string, found bool)
	// Flags holds what flags were given, by [Setting.Flag].
	Flags map[string]string
}

// Load reads a configuration: the built-in values, then the file, the
// environment and the flags over them. The error is [Faults] with everything that
// is wrong.
func Load(sources Sources) (Config, error) {
	config := Default()
	var faults Faults
	l := loader{config: &config, settings: settings(&config), faults: &faults, from: map[string]Position{}}
	if sources.File != "" {
		data, err := readFile(sources.File)
		if err != nil {
			faults.add(Position{Source: sources.FileFrom}, "%s: %v", sources.File, err)
		} else {
			l.file(sources.File, data)
		}
	}
	for _, s := range l.settings {
		if sources.Env == nil {
			break
		}
		if text, _ := sources.Env(s.Env()); text != "" {
			l.apply(s, value{at: Position{Source: s.Env()}, kind: kindUntyped, text: text})
		}
	}
	for _, s := range l.settings {
		if text, given := sources.Flags[s.Flag()]; given && !s.Secret() {
			l.apply(s, value{at: Position{Source: "--" + s.Flag()}, kind: kindUntyped, text: text})
		}
	}
	l.together()
	return config, faults.sorted()
}

// loader takes values over into a configuration.
type loader struct {
	config   *Config
	settings []Setting
	faults   *Faults
	from     map[string]Position // what gave each setting last, by path
}

func (l *loader) apply(s Setting, v value) {
	l.from[s.Path] = v.at
	s.apply(v, l.faults)
}

// together checks and completes what depends on several settings.
func (l *loader) together() {
	c := l.config
	_, c.AdminAsked = l.from["admin_listen"]
	if !c.Store.Memory() && c.OnStoreFailure != failover.Local && c.Store.MaxMemory != 0 {
		l.faults.add(l.from["store.max_memory"], "store.max_memory is given; allowed: only with store.url %s or on_store_failure local", memoryURL)
	}
	if c.Store.Memory() && c.Store.reaches() {
		for _, s := range l.settings {
			if at, given := l.from[s.Path]; given && slices.Contains(reachSettings, s.Path) {
				l.faults.add(at, "%s is given; allowed: only with a store.url of Redis", s.Path)
			}
		}
	}
	l.pair("tls", c.TLS)
	switch {
	case c.AdminTLS == server.TLS{}:
		c.AdminTLS = c.TLS
	case c.AdminTLS.CertFile == "off":
		c.AdminTLS = server.TLS{}
	default:
		l.pair("admin_tls", c.AdminTLS)
	}
	c.API.Tokens = l.tokens("api.tokens_file", c.TokensFile)
	c.AdminTokens = l.tokens("admin.tokens_file", c.AdminTokensFile)
}

// pair records what a section about TLS lacks.
func (l *loader) pair(section string, files server.TLS) {
	for _, lack := range []struct {
		is          bool
		given, need string
	}{
		{files.CertFile != "" && files.KeyFile == "", "cert_file", "key_file"},
		{files.CertFile == "" && files.KeyFile != "", "key_file", "cert_file"},
		{files.CertFile == "" && files.ClientCAFile != "", "client_ca_file", "cert_file"},
	} {
		if lack.is {
			l.faults.add(l.from[section+"."+lack.given], "%s.%s is given; allowed: only with %s.%s", section, lack.given, section, lack.need)
		}
	}
}

// tokens reads the file of tokens that the setting names, if it names one.
func (l *loader) tokens(path, name string) []string {
	if name == "" {
		return nil
	}
	tokens, errs := readTokens(name)
	for _, err := range errs {
		l.faults.add(l.from[path], "%s: %v", path, err)
	}
	return tokens
}

// file takes a YAML document over.
func (l *loader) file(name string, data []byte) {
	document := parseYAML(name, data, l.faults)
	l.mapping("", document, func(f field) bool {
		switch f.name {
		case "defaults":
			l.defaults(f.value)
		case "policies":
			l.policies(f.value)
		case "rules":
			if f.value.kind != kindNull && (f.value.kind != kindList || len(f.value.items) > 0) {
				l.faults.invalid("rules", f.value, "an empty list, since this version does not offer rules yet")
			}
		default:
			return l.setting(f.name, f)
		}
		return true
	}, l.names("", "defaults", "policies", "rules"))
}

// setting takes a field over that is a setting, or a section of settings.
func (l *loader) setting(path string, f field) bool {
	for _, s := range l.settings {
		if s.Path == path {
			l.apply(s, f.value)
			return true
		}
		if strings.HasPrefix(s.Path, path+".") {
			l.mapping(path, f.value, func(f field) bool { return l.setting(path+"."+f.name, f) }, l.names(path+"."))
			return true
		}
	}
	return false
}

// names lists what a section may hold.
func (l *loader) names(section string, others ...string) []string {
	var names []string
	for _, s := range l.settings {
		if rest, found := strings.CutPrefix(s.Path, section); found {
			name, _, _ := strings.Cut(rest, ".")
			names = append(names, name)
		}
	}
	return slices.Compact(append(names, others...))
}

// mapping hands each field of a section to take, and records those that take does
// not know. An empty section is like none.
func (l *loader) mapping(path string, v value, take func(field) bool, names []string) {
	switch v.kind {
	case kindNull:
		return
	case kindMapping:
	default:
		if path == "" {
			path = "the configuration"
		}
		l.faults.invalid(path, v, "a mapping with "+strings.Join(names, ", "))
		return
	}
	for _, f := range v.fields {
		if !take(f) {
			l.unknown(path, f, names)
		}
	}
}

func (l *loader) unknown(path string, f field, names []string) {
	where := path
	if where == "" {
		where = "the configuration"
	}
	l.faults.add(f.at, "%q is not a name in %s; allowed: %s", f.name, where, strings.Join(names, ", "))
}

// readFile reads a file of at most maxFileBytes. The error does not repeat the
// name.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFileBytes) {
		return nil, stint.Invalid("the file", verbatim(fmt.Sprintf("%v of %d bytes", info.Mode(), info.Size())), fmt.Sprintf("a regular file of at most %d bytes", maxFileBytes))
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(name) //nolint:gosec // the operator names the file
	}
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return nil, failed.Err
	}
	return data, err
}
