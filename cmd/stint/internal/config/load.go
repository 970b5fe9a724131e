package config

import (
	"slices"
	"strings"

	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/notation"
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
// environment and the flags over them. The error is [notation.Faults] with everything that
// is wrong.
func Load(sources Sources) (Config, error) {
	config := Default()
	var faults notation.Faults
	l := loader{config: &config, settings: settings(&config), faults: &faults, from: map[string]notation.Position{}}
	if sources.File != "" {
		data, err := file.Bytes(sources.File, maxFileBytes)
		if err != nil {
			faults.Add(notation.Position{Source: sources.FileFrom}, "%s: %v", sources.File, err)
		} else {
			l.file(sources.File, data)
		}
	}
	for _, s := range l.settings {
		if sources.Env == nil {
			break
		}
		if text, _ := sources.Env(s.Env()); text != "" {
			l.apply(s, notation.Value{At: notation.Position{Source: s.Env()}, Kind: notation.KindUntyped, Text: text})
		}
	}
	for _, s := range l.settings {
		if text, given := sources.Flags[s.Flag()]; given && !s.Secret() {
			l.apply(s, notation.Value{At: notation.Position{Source: "--" + s.Flag()}, Kind: notation.KindUntyped, Text: text})
		}
	}
	l.together()
	return config, faults.Err()
}

// loader takes values over into a configuration.
type loader struct {
	config   *Config
	settings []Setting
	faults   *notation.Faults
	from     map[string]notation.Position // what gave each setting last, by path
}

func (l *loader) apply(s Setting, v notation.Value) {
	l.from[s.Path] = v.At
	s.apply(v, l.faults)
}

// together checks and completes what depends on several settings.
func (l *loader) together() {
	c := l.config
	_, c.AdminAsked = l.from["admin_listen"]
	if c.RulesFrom != "" && len(c.Rules) > 0 {
		l.faults.Add(l.from["rules_from"], "rules_from is given beside rules; allowed: one of the two")
	}
	if c.Store.Memory() && c.Store.reaches() {
		for _, s := range l.settings {
			if at, given := l.from[s.Path]; given && slices.Contains(reachSettings, s.Path) {
				l.faults.Add(at, "%s is given; allowed: only with a store.url of Redis", s.Path)
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
	for _, token := range l.tokens("api.tokens_file", c.TokensFile, false) {
		c.API.Tokens = append(c.API.Tokens, token.Token)
	}
	c.AdminTokens = l.tokens("admin.tokens_file", c.AdminTokensFile, true)
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
			l.faults.Add(l.from[section+"."+lack.given], "%s.%s is given; allowed: only with %s.%s", section, lack.given, section, lack.need)
		}
	}
}

// tokens reads the file of tokens that the setting names, if it names one. roles says that they
// have some.
func (l *loader) tokens(path, name string, roles bool) []server.AdminToken {
	if name == "" {
		return nil
	}
	tokens, errs := readTokens(name, roles)
	for _, err := range errs {
		l.faults.Add(l.from[path], "%s: %v", path, err)
	}
	return tokens
}

// file takes a YAML document over.
func (l *loader) file(name string, data []byte) {
	whole := document.Parse(name, data, maxFileBytes, l.faults)
	l.faults.Mapping("the configuration", whole, func(f notation.Field) bool {
		switch f.Name {
		case "defaults":
			l.defaults(f.Value)
		case "policies":
			l.policies(f.Value)
		case "rules":
			l.rules(f.Value)
		default:
			return l.setting(f.Name, f)
		}
		return true
	}, l.names("", "defaults", "policies", "rules"))
}

// setting takes a field over that is a setting, or a section of settings.
func (l *loader) setting(path string, f notation.Field) bool {
	for _, s := range l.settings {
		if s.Path == path {
			l.apply(s, f.Value)
			return true
		}
		if strings.HasPrefix(s.Path, path+".") {
			l.faults.Mapping(path, f.Value, func(f notation.Field) bool { return l.setting(path+"."+f.Name, f) }, l.names(path+"."))
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

// maxFileBytes bounds the files that are read.
const maxFileBytes = 1 << 20
