package config

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
)

// A Setting is one scalar or list of the configuration, which a flag, the
// environment and the file can give.
type Setting struct{ document.Setting }

// Flag is the name of the flag, without dashes.
func (s Setting) Flag() string {
	if flag := s.Tag.Get("flag"); flag != "" {
		return flag
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.Name)
}

// Env is the name of the environment variable.
func (s Setting) Env() string {
	return "STINT_" + strings.ToUpper(strings.ReplaceAll(s.Flag(), "-", "_"))
}

// Default is the built-in value as a flag would give it.
func (s Setting) Default() string { return s.Tag.Get("default") }

// Value stands for the value in a help text, such as HOST:PORT; "" if the setting is true or false.
func (s Setting) Value() string { return s.Tag.Get("value") }

// help says of each setting what it does: the setting's name in the file and a colon, the text in
// indented lines, behind "why:" the reason of the built-in value, and an empty line. Lines are wrapped
// for the reader of this table; a help text has them as one.
//
//go:embed help.txt
var help string

// Help says what the setting does.
func (s Setting) Help() string {
	text, _ := s.told()
	return text
}

// Why says why the built-in value is as it is; "" if that needs no reason.
func (s Setting) Why() string {
	_, why := s.told()
	return why
}

// told is what help says of the setting.
func (s Setting) told() (text, why string) {
	_, text, _ = strings.Cut("\n"+help, "\n"+s.Name+":\n")
	text, _, _ = strings.Cut(text, "\n\n")
	text, why, _ = strings.Cut(strings.Join(strings.Fields(text), " "), " why: ")
	return text, why
}

// Secret reports whether nobody may see the value. A secret has no flag, since the
// machine's other users see the flags of a process.
func (s Setting) Secret() bool { return s.Tag.Get("secret") == "all" }

// Settings lists what flags and the environment can set, in the order in which help shows it.
func Settings() []Setting { return settings(new(Config)) }

// Differing are the names of the settings that two configurations have different values of. Policies,
// defaults and rules are none of them.
func Differing(a, b Config) (names []string) {
	as := settings(&b)
	for i, s := range settings(&a) {
		if !s.Same(as[i].Setting) {
			names = append(names, s.Name)
		}
	}
	if !maps.Equal(a.Metrics.Labels, b.Metrics.Labels) { // which no flag sets
		names = append(names, "metrics.labels")
	}
	return names
}

// settings binds the settings to a configuration.
func settings(c *Config) (all []Setting) {
	for _, s := range kinds.Settings(c) {
		all = append(all, Setting{s})
	}
	return all
}

// Default returns the built-in configuration.
func Default() Config {
	config := Config{Defaults: DefaultLimits(), Policies: policies{}}
	var none document.Faults // a test holds the built-in values against their kinds
	for _, s := range settings(&config) {
		if s.Default() != "" {
			s.Set(document.Value{Kind: document.KindUntyped, Text: s.Default()}, &none)
		}
	}
	return config
}

// Sources says where a configuration is read from.
type Sources struct {
	// File names the YAML file; "" is none. FileFrom is what named it, such as
	// --config, for the message when it can't be read.
	File, FileFrom string
	// Env looks up an environment variable. An empty one counts as absent. nil is none.
	Env func(name string) (text string, found bool)
	// Variables are the names of all environment variables. One that begins with STINT_ and stands for
	// nothing is a fault.
	Variables []string
	// Flags holds what flags were given, by [Setting.Flag].
	Flags map[string]string
}

// Load reads a configuration: the built-in values, then the file, the environment and the flags
// over them. The error is [document.Faults] with everything that is wrong.
func Load(sources Sources) (Config, error) {
	config := Default()
	config.File = sources.File
	var faults document.Faults
	l := loader{config: &config, settings: settings(&config), faults: &faults, from: map[string]document.Position{}}
	if sources.File != "" {
		data, err := rulefile.Bytes(sources.File, maxFileBytes)
		if err != nil {
			faults.Add(document.Position{Source: sources.FileFrom}, "%s: %v", sources.File, err)
		} else {
			l.file(sources.File, data)
		}
	}
	for _, s := range l.settings {
		if sources.Env == nil {
			break
		}
		if text, _ := sources.Env(s.Env()); text != "" {
			l.untyped(s, s.Env(), text)
		}
	}
	l.unknown(sources)
	for _, s := range l.settings {
		if text, given := sources.Flags[s.Flag()]; given && !s.Secret() {
			l.untyped(s, "--"+s.Flag(), text)
		}
	}
	l.together()
	rulefile.Check(l.whole, config.Rules, rules.Options{IPv6Prefix: config.ClientIP.IPv6Prefix}, &faults)
	return config, faults.Err()
}

// loader takes values over into a configuration.
type loader struct {
	config   *Config
	settings []Setting
	faults   *document.Faults
	// what gave each setting last, by name
	from  map[string]document.Position
	whole document.Value // the document
}

// file takes a document over.
func (l *loader) file(name string, data []byte) {
	whole := document.Parse(name, data, maxFileBytes, l.faults)
	l.whole = whole
	kinds.Read(document.Root("the configuration", ""), whole, l.config, l.faults)
	for _, s := range l.settings {
		if v, given := whole.Find(s.Name); given {
			l.from[s.Name] = v.At
		}
	}
}

// maxFileBytes bounds the files that are read.
const maxFileBytes = 1 << 20

// untyped takes over what a flag or an environment variable gives.
func (l *loader) untyped(s Setting, source, text string) {
	at := document.Position{Source: source}
	l.from[s.Name] = at
	s.Set(document.Value{At: at, Kind: document.KindUntyped, Text: text}, l.faults)
}

// others are the environment variables of the program that are no settings.
var others = []string{"STINT_CONFIG", "STINT_SERVER", "STINT_TOKEN", "STINT_ADMIN", "STINT_ADMIN_TOKEN"}

// ofKubernetes are the variables that Kubernetes sets for services whose names are stint or begin
// with stint-.
var ofKubernetes = regexp.MustCompile(`^STINT_(?:[A-Z0-9_]+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|` +
	`PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)$`)

// unknown records the environment variables that stand for nothing.
func (l *loader) unknown(sources Sources) {
	names := slices.Clone(others)
	for _, s := range l.settings {
		names = append(names, s.Env())
	}
	for _, name := range slices.Sorted(slices.Values(sources.Variables)) {
		known := slices.Contains(names, name)
		if text, _ := sources.Env(name); text == "" || known || !strings.HasPrefix(name, "STINT_") ||
			ofKubernetes.MatchString(name) {
			continue
		}
		l.faults.Add(
			document.Position{Source: name},
			"there is no such setting%s; allowed: the variables that `stint serve --help` names, such as STINT_LISTEN",
			spell.DidYouMean(name, names),
		)
	}
}

// fault records what is wrong with a setting, where it was given.
func (l *loader) fault(setting, says string, args ...any) {
	l.faults.Add(l.from[setting], "%s "+says, slices.Insert(args, 0, any(setting))...)
}

// together checks and completes what depends on several settings.
func (l *loader) together() {
	c := l.config
	_, c.AdminAsked = l.from["admin_listen"]
	if c.RulesFrom != "" && len(c.Rules) > 0 {
		l.fault("rules_from", "is given beside rules; allowed: one of the two")
	}
	for _, s := range l.settings {
		_, given := l.from[s.Name]
		if given && s.Tag.Get("for") == "redis" && c.Store.Memory() && c.Store.reaches() {
			l.fault(s.Name, "is given; allowed: only with a store.url of Redis")
		}
	}
	l.pair("tls", c.TLS)
	if c.GRPCTLS.CertFile == "off" {
		c.GRPCTLS.ClientName = ""
	}
	c.AdminTLS = l.ownTLS("admin_tls", c.AdminTLS, c.TLS)
	c.RESPTLS = l.ownTLS("resp_tls", c.RESPTLS, c.TLS)
	c.GRPCTLS.TLS = l.ownTLS("grpc_tls", c.GRPCTLS.TLS, c.TLS)
	if c.GRPCTLS.ClientName != "" && c.GRPCTLS.ClientCAFile == "" {
		l.fault("grpc_tls.client_name", "is given; allowed: only with grpc_tls.client_ca_file")
	}
	for name, given := range map[string]string{"envoy.config": c.Envoy.Config, "envoy.xds.server": c.Envoy.XDS.Server} {
		if given != "" && c.GRPCListen == "" {
			l.fault(name, "is given; allowed: only with grpc_listen")
		}
	}
	if c.Envoy.Config != "" && c.Envoy.XDS.Server != "" {
		l.fault("envoy.xds.server", "is given beside envoy.config; allowed: one of the two")
	}
	if err := c.HTTP.validate(); err != nil {
		l.faults.Add(l.from["http.max_body_memory"], "%s", prefix.Trim(err.Error()))
	}
	_, err := promlimit.WithLabels(nil, c.Metrics.Labels)
	for _, fault := range rulefile.Unjoin[*stint.InvalidError](err) {
		l.faults.Add(l.whole.Place("metrics.labels"), "%s", prefix.Trim(fault.Error()))
	}
	l.identity()
	for _, token := range l.tokens("api.tokens_file", c.API.TokensFile, false) {
		c.API.Tokens = append(c.API.Tokens, token.Token)
	}
	c.Admin.Tokens = l.tokens("admin.tokens_file", c.Admin.TokensFile, true)
	c.Log.Key = l.key("log.key_file", c.Log.KeyFile)
	l.alerts()
}

// identity checks the headers of attributes. Those of the user and the key are checked where they
// are read.
func (l *loader) identity() {
	for _, fault := range rulefile.Unjoin[*stint.InvalidError](l.config.Identity.Validate()) {
		if setting := "identity.attributes"; strings.HasPrefix(fault.Param, setting) {
			at := l.from[setting]
			if at == l.whole.Place(setting) {
				at = l.whole.Place(fault.Param)
			}
			l.faults.Add(at, "%s", prefix.Trim(fault.Error()))
		}
	}
}

// alerts checks and completes what alerts are signed with.
func (l *loader) alerts() {
	a := &l.config.Alerts
	if a.URL != "" && !a.Denials && a.NearLimit == 0 {
		l.fault("alerts.denials", "is false and alerts.near_limit is off; allowed: one of the two at least")
	}
	switch {
	case a.URL == "" && *a != Default().Alerts:
		for _, s := range l.settings {
			if _, given := l.from[s.Name]; given && strings.HasPrefix(s.Name, "alerts.") {
				l.fault(s.Name, "is given without alerts.url; allowed: only with it")
			}
		}
	case a.Secret != "" && a.SecretFile != "":
		l.fault("alerts.secret_file", "is given beside alerts.secret; allowed: one of the two")
	case a.Secret != "" && len(a.Secret) < minTokenBytes:
		l.fault("alerts.secret", "has %d bytes; allowed: %d or more", len(a.Secret), minTokenBytes)
	case a.SecretFile != "":
		a.Secret = string(l.key("alerts.secret_file", a.SecretFile))
	case a.Secret == "" && a.HashClients:
		l.fault("alerts.clients", "is hash; allowed: only with alerts.secret or alerts.secret_file")
	}
}

// key reads the file with a key that the setting names, if it names one: all of it but line ends at
// its end.
func (l *loader) key(setting, name string) []byte {
	if name == "" {
		return nil
	}
	text, err := rulefile.Bytes(name, maxFileBytes)
	text = bytes.TrimRight(text, "\r\n")
	switch {
	case err != nil:
		l.faults.Add(l.from[setting], "%s: %s: %v", setting, name, err)
	case len(text) < minTokenBytes:
		l.faults.Add(l.from[setting], "%s: %s has %d bytes; allowed: %d or more", setting, name, len(text), minTokenBytes)
	}
	return text
}

// reaches reports whether anything says who the service is to the servers of a store, or with what it speaks TLS to
// them.
func (s Store) reaches() bool {
	return s.TLS != StoreTLS{} ||
		s.Username+s.Password+s.PasswordFile+s.SentinelUsername+s.SentinelPassword+s.SentinelPasswordFile != ""
}

// pair records what a section about TLS lacks.
func (l *loader) pair(section string, files TLS) {
	for _, lack := range []struct {
		is          bool
		given, need string
	}{
		{files.CertFile != "" && files.KeyFile == "", "cert_file", "key_file"},
		{files.CertFile == "" && files.KeyFile != "", "key_file", "cert_file"},
		{files.CertFile == "" && files.ClientCAFile != "", "client_ca_file", "cert_file"},
	} {
		if lack.is {
			l.fault(section+"."+lack.given, "is given; allowed: only with %s.%s", section, lack.need)
		}
	}
}

// ownTLS is what a listener does: its own section, unless that says nothing or off.
func (l *loader) ownTLS(section string, own, shared TLS) TLS {
	switch {
	case own == TLS{}:
		return shared
	case own.CertFile == "off":
		return TLS{}
	}
	l.pair(section, own)
	return own
}

// tokens reads the file of tokens that the setting names, if it names one. roles says that they
// have some.
func (l *loader) tokens(setting, name string, roles bool) []AdminToken {
	if name == "" {
		return nil
	}
	tokens, errs := readTokens(name, roles)
	for _, err := range errs {
		l.faults.Add(l.from[setting], "%s: %v", setting, err)
	}
	return tokens
}

// ReadDocument takes over the limits that the algorithms' names stand for. What a
// default leaves out keeps its built-in value.
func (d *defaults) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	var names []string
	for _, algorithm := range notation.Algorithms() {
		names = append(names, strings.ToLower(algorithm.String()))
	}
	faults.Mapping(path.String(), v, func(f document.Field) bool {
		place := slices.Index(names, f.Name)
		if place < 0 {
			return false
		}
		algorithm := notation.Algorithms()[place]
		if limit, ok := rulefile.Limit(path.Field(f.Name).String(), f.Value, (*d)[algorithm], faults); ok {
			(*d)[algorithm] = limit
		}
		return true
	}, func() []string { return names })
}

// ReadDocument takes over the named lists of limits.
func (p *policies) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	faults.Mapping(path.String(), v, func(f document.Field) bool {
		if f.Name == "" {
			faults.Add(f.At, "a policy's name is empty; allowed: 1 to %d printable ASCII characters", bounds.MaxNameBytes)
			return true
		}
		name := path.Field(f.Name).String()
		limits, ok := rulefile.Limits(name, f.Value, faults)
		if !ok {
			return true
		}
		_, err := stint.NewPolicy(f.Name, limits...)
		for _, invalid := range rulefile.Unjoin[*stint.InvalidError](err) {
			at, place := f.At, 0
			if _, err := fmt.Sscanf(invalid.Param, "limit %d:", &place); err == nil {
				at = f.Value.Items[place].At
			}
			faults.Add(at, "%s: %v", name, invalid)
		}
		concurrent := slices.ContainsFunc(limits,
			func(l stint.Limit) bool { return l.Algorithm == stint.AlgorithmConcurrency })
		for i := range limits {
			var invalid *stint.InvalidError
			if concurrent && errors.As(limits[i].CanHold(), &invalid) {
				at := f.Value.Items[i].Place(spell.Document(invalid.Param))
				faults.Add(at, "%s[%d]: %s", name, i, spell.Document(invalid.Error()))
			}
		}
		if err == nil {
			(*p)[f.Name] = limits
		}
		return true
	}, func() []string { return []string{"policies by name"} })
}

// ReadDocument takes over the list of rules.
func (l *ruleList) ReadDocument(path document.Path, v document.Value, faults *document.Faults) {
	if list := rulefile.Rules(v, path.String(), faults); len(list) > 0 {
		*l = list
	}
}

// Validate reports what is wrong with settings that were not loaded but made: of tokens, TLS, bodies, clients and their
// identity, joined. The parameters carry the names of the configuration file. Load has found it before.
func (c *Config) Validate() error {
	var faults []error
	for _, token := range c.API.Tokens {
		if !IsBearerToken(token) {
			faults = append(faults, stint.Invalid("api.tokens_file", fmt.Sprintf("a token of %d bytes", len(token)), tokenForm))
		}
	}
	faults = append(faults, validateAdminTokens(c.Admin.Tokens)...)
	for section, files := range map[string]TLS{
		"tls": c.TLS, "admin_tls": c.AdminTLS, "grpc_tls": c.GRPCTLS.TLS, "resp_tls": c.RESPTLS,
	} {
		faults = append(faults, files.validate(section))
	}
	return prefix.Join(append(faults, c.HTTP.validate(), clientip.Config(c.ClientIP).Validate(), c.Identity.Validate())...)
}
