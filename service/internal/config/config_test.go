package config_test

import (
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected faults in testdata")

func env(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		text, found := variables[name]
		return text, found
	}
}

func write(t testing.TB, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "stint.yaml")
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
	return name
}

// faults loads a file's text and returns what is wrong with it, without the file's
// name.
func faults(t testing.TB, text string) string {
	t.Helper()
	name := write(t, text)
	_, err := config.Load(config.Sources{File: name})
	if err == nil {
		return ""
	}
	if !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
	return strings.ReplaceAll(strings.TrimPrefix(err.Error(), "stint: "), name+":", "")
}

// refuses loads texts, of each of which something is wrong: behind the fault's place, which a fault begins with, all of it
// or its begin.
func refuses(t testing.TB, texts map[string]string) {
	t.Helper()
	for text, want := range texts {
		got := faults(t, text)
		placed := want[0] >= '0' && want[0] <= '9'
		if !strings.Contains(got, want) || placed && (!strings.HasPrefix(got, want) || strings.Contains(got, "\n")) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "listen: 127.0.0.1:1\nstore: {timeout: 1s, key_prefix: file}\ntrusted_proxies: [10.0.0.0/8]\nheaders: {ietf: false}\n")
	got := must.Get(config.Load(config.Sources{
		File: file,
		Env: env(map[string]string{
			"STINT_LISTEN": "127.0.0.1:2", "STINT_STORE_TIMEOUT": "2s", "STINT_TRUSTED_PROXIES": "::1, 192.0.2.0/24",
			"STINT_STORE": "", "STINT_ON_STORE_FAILURE": "closed",
		}),
		Flags: map[string]string{"listen": "127.0.0.1:3", "admin-listen": "off"},
	}))(t)
	if got.Listen != "127.0.0.1:3" || got.Store.Timeout != 2*time.Second || got.Store.KeyPrefix != "file" {
		t.Errorf("listen %q of flag, environment and file; timeout %v of environment and file; prefix %q of the file",
			got.Listen, got.Store.Timeout, got.Store.KeyPrefix)
	}
	if !got.Store.Memory() {
		t.Errorf("store is %q; an empty variable counts as absent", got.Store.URL)
	}
	if len(got.ClientIP.TrustedProxies) != 2 || got.ClientIP.TrustedProxies[0].String() != "::1/128" {
		t.Errorf("trusted proxies: %v; a list is replaced as a whole", got.ClientIP.TrustedProxies)
	}
	if got.Headers.Fields() != httplimit.XRateLimit|httplimit.RetryAfter {
		t.Errorf("headers: %+v; those that nobody mentions stay", got.Headers)
	}
	if got.OnStoreFailure != failover.Closed || got.AdminListen != "" || !got.AdminAsked {
		t.Errorf("on_store_failure %v, admin_listen %q, asked for: %v", got.OnStoreFailure, got.AdminListen, got.AdminAsked)
	}
}

func TestNothingGivenIsTheDefault(t *testing.T) {
	for _, text := range []string{
		"", "# nothing\n", "store:\ndefaults:\npolicies:\nrules:\ngrpc_listen:\n",
		"grpc_listen: off\nresp_listen: \"\"\nrules: []\ndefaults: {token_bucket: {}}\n",
	} {
		got, err := config.Load(config.Sources{File: write(t, text)})
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		want := config.Default()
		want.File = got.File
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

func TestEveryFaultAtOnceWithItsPlace(t *testing.T) {
	const wrong, expected = "testdata/wrong.yaml", "testdata/wrong.txt"
	_, err := config.Load(config.Sources{
		File:  wrong,
		Env:   env(map[string]string{"STINT_STORE_MAX_MEMORY": "1GiB", "STINT_INSTANCES": "many"}),
		Flags: map[string]string{"store": "redis://user:hunter2@host:6379", "headers-ietf": "maybe"},
	})
	if err == nil {
		t.Fatal("no fault")
	}
	got := strings.TrimPrefix(err.Error(), "stint: ") + "\n"
	if strings.Contains(got, "hunter2") {
		t.Error("a message shows a password")
	}
	if *rewrite {
		must.Do(t, os.WriteFile(expected, []byte(got), 0o600))
	}
	want := must.Get(os.ReadFile(expected))(t)
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestNotADocument(t *testing.T) {
	refuses(t, map[string]string{
		"listen: [1\n":                         "2:1: not YAML: did not find expected ',' or ']' while parsing a flow sequence that begins at 1:9",
		"a:\n\t- b\n":                          "2:1: not YAML: ",
		"- a\n":                                "1:1: the configuration is a list; allowed: a mapping with listen, ",
		"listen: a:1\n---\nb: 2":               "3:1: a second document; allowed: one document in a file",
		"<<: {a: b}":                           "1:1: a name must be a plain text",
		"policies: {p: 5}":                     "1:15: policies.p is 5; allowed: a list of 1 to 64 limits",
		"store: memory://":                     `1:8: store is "memory://"; allowed: a mapping with url, username`,
		"rules_from: mysql://h":                `1:13: rules_from is "mysql://h"; allowed: a file, a folder, `,
		`rules_from: "redis:/:hunter2@h:6379"`: `1:13: rules_from is "redacted@h:6379"; allowed: a file`,
		"rules_from: mongodb:/u:hunter2@h/db":  `1:13: rules_from is "redacted@h/db"; allowed: a file`,
		"rules_from: u:hunter2@h:1":            `1:13: rules_from is "redacted@h:1"; allowed: a file`,
		"rules_from: redis://":                 `1:13: rules_from is "redis://"; allowed: a file, a folder, `,
	})
	_, err := config.Load(config.Sources{File: "no/such.yaml", FileFrom: "--config"})
	if err == nil || !strings.HasPrefix(err.Error(), "stint: --config: no/such.yaml: ") {
		t.Errorf("a missing file: %v", err)
	}
}

func TestClientsAndInstances(t *testing.T) {
	const text = "instances: 4\nclient_ip_headers: [X-Forwarded-For, X-Real-IP]\n" +
		"identity: {user: X-User-Id, api_key: X-Api-Key}\n"
	got := must.Get(config.Load(config.Sources{File: write(t, text)}))(t)
	want := config.Identity{User: "X-User-Id", APIKey: "X-Api-Key"}
	if got.Instances != 4 || !reflect.DeepEqual(got.Identity, want) || len(got.ClientIP.Headers) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestLease(t *testing.T) {
	for text, want := range map[string]int64{
		"auto": stint.LeaseAuto, "5": 5, "100": 100, "off": 0, "0": 0, `"off"`: 0, "": 0,
		"101": -2, "-1": -2, "-5": -2, "true": -2, "some": -2, "1.5": -2, // refused
	} {
		file := write(t, "policies:\n  one:\n    - {algorithm: token_bucket, capacity: 100, refill: 1/s, lease: "+text+"}\n")
		got, err := config.Load(config.Sources{File: file})
		if refused := err != nil; refused != (want == -2) {
			t.Errorf("lease: %s: %v", text, err)
		} else if !refused && got.Policies["one"][0].Lease != want {
			t.Errorf("lease: %s is read as %d", text, got.Policies["one"][0].Lease)
		}
	}
}

func TestExampleFile(t *testing.T) {
	const name = "../../../docs/stint.example.yaml"
	got := must.Get(config.Load(config.Sources{File: name}))(t)
	want := config.Default()
	want.AdminAsked, want.File = true, name // as the file names the address
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the example is not the built-in configuration: %+v, %+v", got, want)
	}
	text := must.Get(os.ReadFile(name))(t)
	// What is commented out is sound as well.
	used := filepath.Join(t.TempDir(), "stint.yaml")
	must.Do(t, os.WriteFile(used, regexp.MustCompile(`(?m)^#(\w|  )`).ReplaceAll(text, []byte("$1")), 0o600))
	got = must.Get(config.Load(config.Sources{File: used}))(t)
	quota := stint.CalendarWindow(50000, stint.CalendarMonth, "Europe/Berlin")
	if lease := got.Policies["events-of-all"][0].Lease; lease != stint.LeaseAuto {
		t.Errorf("lease: %d", lease)
	}
	push := []stint.Limit{
		stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Second).CountingDenied(),
		stint.SlidingWindowLog(2, 3*time.Second).Named("burst"),
	}
	if !reflect.DeepEqual(got.Policies["push-messages"], push) {
		t.Errorf("policy: %+v", got.Policies["push-messages"])
	}
	if len(got.Policies) != 5 || got.Policies["monthly-quota"][0] != quota || len(got.ClientIP.TrustedProxies) != 2 {
		t.Errorf("policies: %+v, proxies %v", got.Policies, got.ClientIP.TrustedProxies)
	}
	login := rules.Rule{
		ID: "login", Labels: map[string]string{"team": "accounts"}, Match: rules.Match{Methods: []string{"POST"}, Paths: []string{"/login"}},
		Scope: []string{rules.PerIP}, Limits: []stint.Limit{stint.SlidingWindowLog(5, time.Minute).CountingDenied()},
		Overrides: []rules.Override{{Key: "192.0.2.7", Unlimited: true}},
	}
	if len(got.Rules) != 2 || !reflect.DeepEqual(got.Rules[0], login) || got.Rules[1].ID != "api" {
		t.Errorf("rules: %+v", got.Rules)
	}
}

func TestLimits(t *testing.T) {
	got := must.Get(config.Load(config.Sources{File: write(t, `
defaults:
  token_bucket: {capacity: 7}
  fixed_window: {calendar: week}
  sliding_window_counter: {name: web, window: 90s, max_debt: 0}
policies:
  mail: [{algorithm: LEAKY_BUCKET, capacity: 2, leak: 2/3s, max_debt: 4, name: out}]
`)}))(t)
	for want, got := range map[stint.Limit]stint.Limit{
		stint.TokenBucket(7, stint.PerSecond(10)):                                                         got.Defaults[stint.AlgorithmTokenBucket],
		stint.CalendarWindow(100, stint.CalendarWeek, ""):                                                 got.Defaults[stint.AlgorithmFixedWindow],
		stint.SlidingWindowCounter(100, 90*time.Second).Named("web").WithMaxDebt(stint.NoDebt):            got.Defaults[stint.AlgorithmSlidingWindowCounter],
		stint.SlidingWindowLog(100, time.Minute):                                                          got.Defaults[stint.AlgorithmSlidingWindowLog],
		stint.LeakyBucket(2, stint.Rate{Permits: 2, Period: 3 * time.Second}).Named("out").WithMaxDebt(4): got.Policies["mail"][0],
	} {
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// A password that is not a text is refused without being shown.
func TestSecrets(t *testing.T) {
	got, err := config.Load(config.Sources{
		File: write(t, "store: {url: \"redis://h\", username: me, tls: {ca_file: a, server_name: b}}\n"),
		Env:  env(map[string]string{"STINT_STORE_PASSWORD": "12345", "STINT_STORE_SENTINEL_PASSWORD_FILE": "c"}),
		// What no flag can give is not taken from flags.
		Flags: map[string]string{"store-password": "6"},
	})
	want := config.Default().Store
	want.URL, want.Username, want.Password, want.SentinelPasswordFile = "redis://h", "me", "12345", "c"
	want.TLS = config.StoreTLS{CAFile: "a", ServerName: "b"}
	if err != nil || got.Store != want {
		t.Errorf("%+v, %v; want %+v", got.Store, err, want)
	}
	for _, text := range []string{"store: {password: 98765}", "store: {sentinel_password: 98765}", "store: {password: [98765]}"} {
		if got := faults(t, text); !strings.Contains(got, "password is ") || strings.Contains(got, "98765") {
			t.Errorf("%s: %s", text, got)
		}
	}
}

// What makes no sense in a rule is told beside what is wrong elsewhere, at its place.
func TestRulesThatMakeNoSense(t *testing.T) {
	file := write(t, "rules:\n- {id: a, scope: per_ip, unlimited: true, match: {path: no-slash}}\nlisten: here\n")
	_, err := config.Load(config.Sources{File: file})
	if err == nil || !strings.Contains(err.Error(), file+`:2:57: rule "a": match.path is "no-slash"`) || !strings.Contains(err.Error(), ":3:9: listen is") {
		t.Error(err)
	}
}

func TestRules(t *testing.T) {
	file := write(t, "rules:\n- {id: a, scope: per_ip, unlimited: true}\n-\n  id: b\n  enabled: false\n  scope: global\n  banned: true\n")
	got, err := config.Load(config.Sources{File: file})
	want := []rules.Rule{{ID: "a", Scope: []string{rules.PerIP}, Unlimited: true}, {ID: "b", Disabled: true, Scope: []string{rules.Global}, Banned: true}}
	if err != nil || !reflect.DeepEqual([]rules.Rule(got.Rules), want) {
		t.Errorf("%+v, %v", got.Rules, err)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"1048576": 1 << 20, "64MiB": 64 << 20, "1GiB": 1 << 30, "2TiB": 2 << 40, "default": 0} {
		got, err := config.Load(config.Sources{Flags: map[string]string{"store-max-memory": text}})
		if err != nil || got.Store.MaxMemory != want {
			t.Errorf("%s: %d, %v; want %d", text, got.Store.MaxMemory, err, want)
		}
	}
	for _, text := range []string{"1GB", "-1GiB", "1023KiB", "99999999TiB", "1.5GiB", "GiB", "+5MiB"} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"store-max-memory": text}}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// A cap on memory is for states in the process, of a store or beside one.
func TestSizeBesideAStore(t *testing.T) {
	flags := map[string]string{"store": "redis://h", "store-max-memory": "2MiB", "on-store-failure": "local"}
	if got, err := config.Load(config.Sources{Flags: flags}); err != nil || got.Store.MaxMemory != 2<<20 || got.OnStoreFailure != failover.Local {
		t.Errorf("%+v, %v", got.Store, err)
	}
}

func TestBoundsOnClients(t *testing.T) {
	got, err := config.Load(config.Sources{
		File: write(t, "http: {read_header_timeout: 1s, body_timeout: 10m, max_header_size: 1KiB, max_connections: 7}\ndrain: {delay: 1m30s}\n"),
		Env:  env(map[string]string{"STINT_HTTP_WRITE_TIMEOUT": "10ms", "STINT_HTTP_MAX_BODY_SIZE": "2097152"}),
		Flags: map[string]string{
			"http-max-body-memory": "9MiB", "http-max-streams": "7",
			"http-idle-timeout": "1h", "http-max-connections": "8", "http-max-connections-per-peer": "5", "drain-timeout": "1ms", "drain-keep-alive": "3s",
		},
	})
	want := config.HTTP{
		ReadHeaderTimeout: time.Second, BodyTimeout: 10 * time.Minute, WriteTimeout: 10 * time.Millisecond, IdleTimeout: time.Hour,
		MaxHeaderBytes: 1 << 10, MaxBodyBytes: 2 << 20, MaxBodyMemory: 9 << 20, MaxStreams: 7, MaxConnections: 8, MaxConnectionsPerPeer: 5,
	}
	if err != nil || got.HTTP != want || got.Drain != (config.Drain{Delay: 90 * time.Second, KeepAlive: 3 * time.Second, Timeout: time.Millisecond}) {
		t.Errorf("%+v, %+v, %v; want %+v", got.HTTP, got.Drain, err, want)
	}
	refuses(t, map[string]string{
		"http: {read_header_timeout: 9ms}":     " 10ms to 10m",
		"http: {body_timeout: 601s}":           " 10ms to 10m",
		"http: {write_timeout: 0}":             " 10ms to 10m",
		"http: {idle_timeout: 61m}":            " 10ms to 1h",
		"http: {max_body_memory: 1023KiB}":     "at least 1MiB, or default",
		"http: {max_body_memory: 5MiB}":        "1:25: http.max_body_memory is 5242880; allowed: at least 5275648: 4 times",
		"http: {max_streams: 0}":               " 1 to 10000",
		"http: {max_header_size: 1023}":        " 1KiB to 16MiB",
		"http: {max_body_size: 65MiB}":         " 1KiB to 64MiB",
		"http: {max_connections: 0}":           " 1 to 10000000",
		"http: {max_connections_per_peer: -1}": " 0 to 10000000",
		"drain: {delay: 11m}":                  " 0s to 10m",
		"drain: {timeout: 0s}":                 " 1ms to 1h",
		"http: {max_connection: 5, delay: 5}":  "allowed: read_header_timeout, ",
		"http: 5":                              "a mapping with read_header_timeout, ",
		"http: {read_header_timeout: [1s]}":    " 10ms to 10m",
		"http: {max_connections: \"16\"}":      " 1 to 10000000",
	})
}

func TestTLS(t *testing.T) {
	both := server.TLS{CertFile: "c", KeyFile: "k", ClientCAFile: "a"}
	for text, want := range map[string][2]server.TLS{
		"": {},
		"tls: {cert_file: c, key_file: k, client_ca_file: a}":                                         {both, both},
		"tls: {cert_file: c, key_file: k, client_ca_file: a}\nadmin_tls: {cert_file: \"off\"}":        {both, {}},
		"tls: {cert_file: c, key_file: k, client_ca_file: a}\nadmin_tls: {cert_file: d, key_file: l}": {both, {CertFile: "d", KeyFile: "l"}},
		"admin_tls: {cert_file: c, key_file: k, client_ca_file: a}":                                   {{}, both},
	} {
		got, err := config.Load(config.Sources{File: write(t, text)})
		if err != nil || got.TLS != want[0] || got.AdminTLS != want[1] {
			t.Errorf("%s: %+v, %+v, %v", text, got.TLS, got.AdminTLS, err)
		}
	}
	refuses(t, map[string]string{
		"tls: {cert_file: c}":      "1:18: tls.cert_file is given; allowed: only with tls.key_file",
		"tls: {key_file: k}":       "1:17: tls.key_file is given; allowed: only with tls.cert_file",
		"tls: {client_ca_file: a}": "1:23: tls.client_ca_file is given; allowed: only with tls.cert_file",
		"admin_tls: {key_file: k}": "1:23: admin_tls.key_file is given; allowed: only with admin_tls.cert_file",
	})
}

// withTokens loads a configuration with a file of tokens, which a setting names, and returns its faults, too.
func withTokens(t testing.TB, file, text string, mode os.FileMode, s config.Sources) (got config.Config, fault string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	must.Do(t, os.Chmod(file, mode))
	got, err := config.Load(s)
	if err == nil {
		return got, ""
	}
	return got, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "stint: "), file, "TOKENS")
}

func TestTokens(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	load := func(text string, mode os.FileMode) (config.Config, string) {
		t.Helper()
		variables := map[string]string{"STINT_API_TOKENS_FILE": tokens}
		return withTokens(t, tokens, text, mode, config.Sources{Env: env(variables)})
	}
	got, fault := load("# ours\n\n0123456789abcdef\r\n  another-token.of_mine==\n", 0o644)
	if fault != "" || !reflect.DeepEqual(got.API.Tokens, []string{"0123456789abcdef", "another-token.of_mine=="}) {
		t.Errorf("tokens %q, %s", got.API.Tokens, fault)
	}
	admin, err := config.Load(config.Sources{Flags: map[string]string{"admin-tokens-file": tokens}})
	var held []string
	for _, token := range admin.Admin.Tokens {
		if held = append(held, token.Token); token.Role != server.RoleWrite || token.Name != "" {
			t.Errorf("a token alone is of role %v and name %q", token.Role, token.Name)
		}
	}
	if err != nil || !reflect.DeepEqual(held, got.API.Tokens) || admin.API.Tokens != nil {
		t.Errorf("tokens of the admin listener: %q and %q, %v", held, admin.API.Tokens, err)
	}
	const prefix = "STINT_API_TOKENS_FILE: api.tokens_file: TOKENS"
	for text, want := range map[string]string{
		"0123456789abcdef\nshort\nwith a space in it\n": prefix + ":2: a token of 5 characters; allowed: 16 or more\n" +
			prefix + ":3: a token with other characters; allowed: letters, digits and -._~+/ with = at the end",
		"# nothing\n": prefix + ": no token; allowed: one or more, one a line",
	} {
		if _, fault := load(text, 0o600); fault != want {
			t.Errorf("got %q, want %q", fault, want)
		}
	}
	want := prefix + ": mode is 0622; allowed: one that only the owner can write, such as 0600"
	if _, fault := load("0123456789abcdef\n", 0o622); fault != want {
		t.Errorf("got %q, want %q", fault, want)
	}
	for _, name := range []string{filepath.Dir(tokens), tokens + ".none"} {
		if _, err := config.Load(config.Sources{Flags: map[string]string{"api-tokens-file": name}}); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// Labels that metrics can't have are faults of the file, with their place and all others.
func TestMetricLabels(t *testing.T) {
	got := faults(t, "metrics: {labels: {le: x, 1st: y}}\nlisten: none")
	for _, want := range []string{
		`1:19: metrics.labels is "1st"; allowed: names of letters`, `1:19: metrics.labels is "le"; allowed: names other than those`,
		`2:9: listen is "none"`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if fault := faults(t, "metrics: {labels: {region: eu}}"); fault != "" {
		t.Error(fault)
	}
}

// What a file that is read again has changed is told: labels, too, which no flag sets.
func TestDiffering(t *testing.T) {
	before, after := config.Default(), config.Default()
	after.Metrics.Labels, after.Instances = map[string]string{"region": "eu"}, 3
	after.Policies = map[string][]stint.Limit{"a": nil}
	if got, want := config.Differing(before, after), []string{"instances", "metrics.labels"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAdminTokensHaveRoles(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens")
	load := func(text string) (config.Config, string) {
		return withTokens(t, tokens, text, 0o600, config.Sources{Flags: map[string]string{"admin-tokens-file": tokens}})
	}
	got, fault := load("0123456789abcdef\n0123456789abcdeg read\n 0123456789abcdeh\twrite  ann@example.com\n")
	want := []server.AdminToken{
		{Token: "0123456789abcdef", Role: server.RoleWrite},
		{Token: "0123456789abcdeg", Role: server.RoleRead},
		{Token: "0123456789abcdeh", Role: server.RoleWrite, Name: "ann@example.com"},
	}
	if fault != "" || !reflect.DeepEqual(got.Admin.Tokens, want) {
		t.Errorf("tokens %v, %s; want %v", got.Admin.Tokens, fault, want)
	}
	const prefix = "--admin-tokens-file: admin.tokens_file: TOKENS"
	for text, want := range map[string]string{
		"0123456789abcdef ann":                          ":1: the second word is another one; allowed: read or write",
		"0123456789abcdef 0123456789abcdeg":             ":1: the second word is another one; allowed: read or write",
		"0123456789abcdef read ann b":                   ":1: 4 words; allowed: a token, perhaps with read or write, and that with a name",
		"0123456789abcdef read caf\u00e9":               ":1: a name of 5 bytes; allowed: names of up to 64 printable ASCII characters",
		"0123456789abcdef read\n0123456789abcdef write": ":2: the token of line 1 again; allowed: each token once",
		"short read": ":1: a token of 5 characters; allowed: 16 or more",
	} {
		if _, fault := load(text); fault != prefix+want {
			t.Errorf("%q: got %q, want %q", text, fault, prefix+want)
		}
	}
}

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"redis://user:pass@host:1/2": "redis://redacted@host:1/2",
		"redis://:p@ss/w@host":       "redis://redacted@host",
		"user:pass@host":             "redacted@host",
		"memory://":                  "memory://",
	} {
		if got := document.RedactURL(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
		if got := document.Redact("dial " + url); strings.Contains(url, "://") && got != "dial "+want {
			t.Errorf("in a text, %s: %s", url, got)
		}
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range config.Settings() {
		if seen[s.Flag()] || seen[s.Env()] || s.Help() == "" {
			t.Errorf("%s: flag %s or variable %s is taken, or there is no usage", s.Name, s.Flag(), s.Env())
		}
		seen[s.Flag()], seen[s.Env()] = true, true
	}
	// Those that the API's contract fixes.
	for _, name := range []string{
		"listen", "STINT_LISTEN", "grpc-listen", "STINT_GRPC_LISTEN", "resp-listen", "STINT_RESP_LISTEN",
		"admin-listen", "STINT_ADMIN_LISTEN", "store", "STINT_STORE",
	} {
		if !seen[name] {
			t.Errorf("%s is missing", name)
		}
	}
}

// A variable that is mistyped is told; what Kubernetes sets for services that are named like the program is not.
func TestUnknownVariables(t *testing.T) {
	variables := map[string]string{
		"STINT_LISTN": "127.0.0.1:1", "STINT_STORE_TIMEOUTS": "1s", "STINT_PORTS": "1", "STINT_EMPTY": "",
		"STINT_LISTEN": "127.0.0.1:1", "STINT_CONFIG": "a", "STINT_SERVER": "b", "STINT_TOKEN": "c", "STINT": "d", "HOME": "e",
		"STINT_SERVICE_HOST": "10.0.0.1", "STINT_SERVICE_PORT": "80", "STINT_SERVICE_PORT_HTTP": "80", "STINT_PORT": "tcp://10.0.0.1:80",
		"STINT_PORT_80_TCP": "tcp://10.0.0.1:80", "STINT_PORT_80_TCP_PROTO": "tcp", "STINT_PORT_80_TCP_PORT": "80", "STINT_PORT_80_TCP_ADDR": "10.0.0.1",
		"STINT_REDIS_SERVICE_HOST": "10.0.0.1", "STINT_ADMIN_PORT_8079_TCP": "tcp://10.0.0.1:8079",
	}
	got, err := config.Load(config.Sources{Env: env(variables), Variables: slices.Collect(maps.Keys(variables))})
	const no, says = ": there is no such setting", "; allowed: the variables that `stint serve --help` names, such as STINT_LISTEN"
	want := "STINT_LISTN" + no + " (did you mean STINT_LISTEN?)" + says + "\nSTINT_PORTS" + no + says +
		"\nSTINT_STORE_TIMEOUTS" + no + " (did you mean STINT_STORE_TIMEOUT?)" + says
	if err == nil || err.Error() != "stint: "+want || got.Listen != "127.0.0.1:1" {
		t.Errorf("%s, got\n%v\nwant\n%s", got.Listen, err, want)
	}
}

// A cluster of one partition is as good as a single server.
func TestClustered(t *testing.T) {
	for url, want := range map[string]bool{
		"memory://": false, "redis://a": false, "redis-sentinel://a/b": false, "redis-cluster://a": true, "rediss-cluster://a": true,
	} {
		for partitions, want := range map[int]bool{0: want, 1: false, 16: want} {
			if got := (config.Store{URL: url, Partitions: partitions}).Clustered(); got != want {
				t.Errorf("%s with %d partitions: %t", url, partitions, got)
			}
		}
	}
}

// A number where a duration is meant is answered by one in the first unit by which it is allowed.
func TestNumberWithoutUnit(t *testing.T) {
	refuses(t, map[string]string{
		"store: {max_memory: 64}":      "1:21: store.max_memory is 64; allowed: a number of bytes such as 64KiB or 1GiB, at least 1MiB (64 has no unit; did you mean 64MiB?), or default",
		"store: {timeout: 100}":        "1:18: store.timeout is 100; allowed: 1ms to 1m (100 has no unit; did you mean 100ms?)",
		"drain: {timeout: 3600000}":    "1:18: drain.timeout is 3600000; allowed: 1ms to 1h (3600000 has no unit; did you mean 3600000ms?)",
		"store: {timeout: 3600000000}": "1:18: store.timeout is 3600000000; allowed: 1ms to 1m",
		"store: {timeout: 5h}":         `1:18: store.timeout is "5h"; allowed: 1ms to 1m`,
	})
}
