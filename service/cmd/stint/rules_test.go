package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const someRules = `
rules:
  - id: login
    priority: 10
    match: {methods: [POST], path: /login}
    scope: per_ip
    limits:
      - {algorithm: sliding_window_counter, limit: 2, window: 1h}
  - id: users
    match: {path: "/api/**"}
    scope: per_user
    missing: skip
    limits:
      - {algorithm: token_bucket, capacity: 5, refill: 1/10d}
    overrides:
      - {key: mallory, banned: true}
  - id: everybody
    scope: global
    on_exceed: shadow
    limits:
      - {algorithm: fixed_window, limit: 1000, window: 10d}
  - id: later
    enabled: false
    scope: global
    banned: true
`

func TestRulesValidate(t *testing.T) {
	good := writeFile(t, someRules)
	code, stdout, stderr := do(t, nil, "rules", "validate", good)
	if code != exitOK || stdout != good+": 4 rules, 3 enabled\n" {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}

	bad := writeFile(t, `
rules:
  - id: login
    scope: per_moon
    limits:
      - {algorithm: token_bucket, capacity: 5}
  - id: users
    scope: per_user
    limits:
      - {algorithm: fixed_window, limit: 1, window: 1s}
    colour: red
  - id: senseless
    match: {path: x}
    scope: global
    banned: true
`)
	code, stdout, stderr = do(t, nil, "rules", "validate", good, bad)
	if code != exitUsage || !strings.HasPrefix(stdout, good) {
		t.Errorf("exit code %d, %s", code, stdout)
	}
	for _, want := range []string{bad + ":4:", "per_moon", bad + ":6:", "refill", bad + ":11:", "colour", bad + ":13:", "path is \"x\""} {
		if !strings.Contains(stderr, want) {
			t.Errorf("the faults lack %q:\n%s", want, stderr)
		}
	}

	code, _, stderr = do(t, nil, "rules", "validate", "../../../docs/stint.example.yaml")
	if code != exitUsage || strings.Count(stderr, "\n") > 1 || !strings.Contains(stderr, "a configuration of the service") {
		t.Errorf("a configuration: exit code %d, %s", code, stderr)
	}

	senseless := writeFile(t, `[{id: a, scope: per_user, limits: [{algorithm: fixed_window, limit: 1, window: 1s}]}]`)
	code, _, stderr = do(t, nil, "rules", "validate", senseless)
	if code != exitUsage || !strings.Contains(stderr, senseless+":1:") || !strings.Contains(stderr, "missing") {
		t.Errorf("a rule that does not say what is missing: exit code %d, %s", code, stderr)
	}
}

// A path that is written as for another router is a fault where it is written. The doctor says that it is wrong in rules
// that the service puts in force.
func TestRulesOfOtherRouters(t *testing.T) {
	const rule = "- id: users\n  match: {path: \"/users/:id\"}\n  scope: per_ip\n  limits: [{algorithm: fixed_window, limit: 1, window: 1m}]\n"
	const fault = `rule "users": match.path is "/users/:id"; allowed: /users/{id}, or /users/%3Aid for :id itself`
	file := writeFile(t, rule)
	says(t, nil, exitUsage, file+":2:17: "+fault, "rules", "validate", file)
	var v []validation
	code, stdout, _ := do(t, nil, "rules", "validate", "--json", file)
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || code != exitUsage || v[0].Valid || v[0].Faults[0].Line != 2 || v[0].Faults[0].Column != 17 {
		t.Errorf("validate --json: %d, %v: %s", code, err, stdout)
	}
	configured := writeFile(t, "rules:\n"+rule)
	for _, args := range [][]string{{"--rules-from", file}, {"--config", configured}} {
		code, stdout, stderr := do(t, nil, append([]string{"doctor", "--json"}, args...)...)
		if code != exitUsage || !strings.Contains(stdout, `rule users: match.path is`) || !strings.Contains(stdout, "it is in force") {
			t.Errorf("doctor %v: %d, %s%s", args, code, stdout, stderr)
		}
	}
	odata := writeFile(t, strings.Replace(rule, "/users/:id", "/$metadata", 1))
	says(t, nil, exitOK, "warning: rule users: match.path is", "rules", "validate", odata)
}

// Overrides name networks no longer than those by which the service counts.
func TestRulesOfAPrefix(t *testing.T) {
	file := writeFile(t, `[{id: a, scope: per_ip, banned: true, overrides: [{key: "2001:db8::/72", unlimited: true}]}]`)
	config := writeFile(t, "ipv6_prefix: 72")
	for args, want := range map[string]int{
		"validate " + file:                                                  exitUsage,
		"validate --ipv6-prefix 72 " + file:                                 exitOK,
		"validate --config " + config + " " + file:                          exitOK,
		"validate --ipv6-prefix 0 " + file:                                  exitUsage,
		"explain --rules " + file:                                           exitUsage,
		"explain --ipv6-prefix 72 --ip 2001:db8::1 --rules " + file:         exitOK,
		"explain --ipv6-prefix 72 --ip 2001:db8::100:0:0:1 --rules " + file: exitDenied,
	} {
		if code, stdout, stderr := do(t, nil, append([]string{"rules"}, strings.Fields(args)...)...); code != want {
			t.Errorf("%s: exit code %d, want %d: %s%s", args, code, want, stdout, stderr)
		}
	}
}

// What the service would refuse, explain refuses with its setting.
func TestAmbiguousPaths(t *testing.T) {
	file, config := writeFile(t, `[{id: a, scope: global, unlimited: true}]`), writeFile(t, "ambiguous_paths: reject")
	for args, want := range map[string]int{
		"--path //login":                                            exitOK,
		"--ambiguous-paths match --path //login":                    exitOK,
		"--ambiguous-paths reject --path //login":                   exitUsage,
		"--config " + config + " --path /a%2Fb":                     exitUsage,
		"--config " + config + " --path /a%20b":                     exitOK,
		"--ambiguous-paths reject --path /caf%C3%A9/?next=//x/../y": exitOK,
		"--ambiguous-paths no --path /":                             exitUsage,
	} {
		if code, stdout, stderr := do(t, nil, append([]string{"rules", "explain", "--rules", file}, strings.Fields(args)...)...); code != want {
			t.Errorf("%s: exit code %d, want %d: %s%s", args, code, want, stdout, stderr)
		}
	}
}

// A rule that only reserves are decided by is said to be one, and a bucket that its holds would drain.
func TestRulesByReserve(t *testing.T) {
	chat := writeFile(t, `
- id: chat
  match: {path: /chat}
  scope: global
  limits:
    - {algorithm: concurrency, capacity: 5}
    - {algorithm: token_bucket, capacity: 100, refill: 10/s}
  reserve: {ttl: 30s, on_expiry: keep}
- {id: quick, scope: global, limits: [{algorithm: token_bucket, capacity: 10, refill: 10/s}]}
- {id: room, scope: global, limits: [{algorithm: token_bucket, capacity: 20, refill: 10/s}], reserve: {ttl: 2s}}
- id: plans
  scope: per_api_key
  missing: deny
  limits: [{algorithm: token_bucket, capacity: 10, refill: 10/s}]
  overrides: [{key: a-secret, unlimited: true}, {key: another-secret, limits: [{algorithm: concurrency, capacity: 5}]}]
- {id: login, match: {path: /login}, scope: per_ip, limits: [{algorithm: fixed_window, limit: 5, window: 15m}], count: {status: [401]}}
`)
	code, stdout, stderr := do(t, nil, "rules", "validate", chat)
	want := chat + ": 5 rules, 5 enabled\n" +
		"warning: rule chat: it has a concurrency limit: only reserves are decided by it, evaluate and forward-auth leave it out\n" +
		"warning: rule chat: limits[1], a bucket of 100, is less than what 10/s refills in reserve.ttl, 30s, so holds of that length slow its clients down\n" +
		"warning: rule login: it has count: only reserves are decided by it, evaluate and forward-auth leave it out\n" +
		"warning: rule plans: it has a concurrency limit in overrides[1]: only reserves are decided by it, evaluate and forward-auth admit its client without this rule\n"
	if code != exitOK || stdout != want {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
	places := writeFile(t, `[{id: chat, match: {path: /chat}, scope: global, limits: [{algorithm: concurrency, capacity: 5}]}]`)
	counts := writeFile(t, `[{id: login, scope: global, limits: [{algorithm: fixed_window, limit: 5, window: 15m}], count: {status: [4xx]}}]`)
	for path, file := range map[string]string{"/chat": places, "/login": counts} {
		code, stdout, stderr = do(t, nil, "rules", "explain", "--rules", file, "--path", path)
		if code != exitOK || !strings.Contains(stdout, "limited, by reserves alone") || !strings.Contains(stdout, "but for a reserve") {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
	}
}

// A limit of which less than a tenth is in no floor is said to leave little to borrow.
func TestRulesShortOfPermitsToBorrow(t *testing.T) {
	const text = `
- {id: org, scope: global, limits: [{algorithm: token_bucket, capacity: 100, refill: 100/1h}]}
- {id: team, within: org, scope: "custom:team", missing: skip, borrow: true, guaranteed: {search: {capacity: FLOOR, refill: 10/1h}}}
`
	for floor, want := range map[string]string{
		"90": "",
		"91": "warning: rule team: 9 of 100 permits are in no floor, less than a tenth: those who borrow have small bursts\n",
	} {
		path := writeFile(t, strings.ReplaceAll(text, "FLOOR", floor))
		code, stdout, stderr := do(t, nil, "rules", "validate", path)
		if code != exitOK || stdout != path+": 2 rules, 2 enabled\n"+want {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
	}
}

// Floors that several clients of the outer rule have in common are warned of, and those that partition_by tells apart are not.
func TestRulesOfMixedFloors(t *testing.T) {
	const text = `
- {id: org, scope: "custom:org", missing: skip,PARTITION limits: [{algorithm: token_bucket, capacity: 100, refill: 100/1h}]}
- {id: team, within: org, scope: "custom:team", missing: skip,PARTITION guaranteed: {search: {capacity: 50, refill: 10/1h}}}
`
	for partition, want := range map[string]string{
		"": "warning: rule team: all clients of rule org have its floors in common, so one can use up those of another; " +
			"tell them apart by the same partition_by in all of these rules, or begin its scope with custom:org\n",
		" partition_by: org,": "",
	} {
		path := writeFile(t, strings.ReplaceAll(text, "PARTITION", partition))
		code, stdout, stderr := do(t, nil, "rules", "validate", path)
		if code != exitOK || stdout != path+": 2 rules, 2 enabled\n"+want {
			t.Errorf("exit code %d, %s%s", code, stdout, stderr)
		}
	}
}

// Rules by which every reserve would be refused are faults, each with its place.
func TestRulesThatNoReservePasses(t *testing.T) {
	file := writeFile(t, `
- id: chat
  scope: global
  limits:
    - {algorithm: concurrency, capacity: 5}
    - {algorithm: leaky_bucket, capacity: 5, leak: 1/s}
    - {algorithm: token_bucket, capacity: 5, refill: 1/s, lease: 2}
- id: log
  scope: global
  limits: [{algorithm: sliding_window_log, limit: 5, window: 1s, count_denied: true}]
  reserve: {ttl: 30s}
`)
	code, _, stderr := do(t, nil, "rules", "validate", file)
	for _, want := range []string{
		`:6:7: rule "chat": limits[1].cost is 0; allowed: 1 or more for a leaky bucket`,
		`:7:66: rule "chat": limits[2].lease is 2; allowed: none where permits are reserved`,
		`:10:80: rule "log": limits[0].count_denied is true; allowed: false where permits are reserved`,
	} {
		if code == exitOK || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %s; want %s", code, stderr, want)
		}
	}
}

func TestRulesExplain(t *testing.T) {
	file := writeFile(t, someRules)
	for _, test := range []struct {
		args  string
		code  int
		lines []string // the beginnings, with single spaces
	}{
		{
			"--method POST --path //login/ --ip 192.0.2.7", exitOK,
			[]string{
				"RULE OUTCOME KEY COST ALLOWED REMAINING RETRY AFTER",
				"login limited 192.0.2.7 1 yes 2 0s",
				"everybody limited, shadow * 1 yes 1000 0s",
				"path /login: allowed yes, rule login decides",
			},
		},
		{
			"--path /api/things --user alice", exitOK,
			[]string{"RULE", "everybody", "users limited alice 1 yes 5 0s", "path /api/things: allowed yes, rule users decides"},
		},
		{
			"--path /api --user mallory", exitDenied,
			[]string{"RULE", "everybody", "users banned - - - - -", "path /api: allowed no, rule users decides"},
		},
		{"--path /api", exitOK, []string{"RULE", "everybody", "users skipped - - - - -", "path /api: allowed yes, no rule limits the request"}},
	} {
		code, stdout, stderr := do(t, nil, append([]string{"rules", "explain", "--rules", file}, strings.Fields(test.args)...)...)
		lines := strings.Split(strings.TrimSpace(stdout), "\n")
		if code != test.code || len(lines) != len(test.lines) {
			t.Errorf("%s: exit code %d, %s%s", test.args, code, stdout, stderr)
			continue
		}
		for i, want := range test.lines {
			if got := strings.Join(strings.Fields(lines[i]), " "); !strings.HasPrefix(got, want) {
				t.Errorf("%s: line %d is %q, want %q", test.args, i, got, want)
			}
		}
	}
	for args, want := range map[string]string{
		"--ip moon":          "--ip is",
		"--header x":         "--header is",
		"--attribute =x":     "--attribute is",
		"--rules /dev/null/": "/dev/null/",
	} {
		code, _, stderr := do(t, nil, append([]string{"rules", "explain", "--rules", file}, strings.Fields(args)...)...)
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s", args, code, stderr)
		}
	}
}

// The domains of Envoy's rate limit service are checked as rules are: all faults at once, each with its place.
func TestValidateDomains(t *testing.T) {
	good := writeFile(t, "domain: web\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 3, shadow_mode: true}}\n")
	code, stdout, stderr := do(t, nil, "rules", "validate", good)
	if want := good + ": 1 domain, 1 limit\nwarning: " + good + ":3:58: shadow_mode has no effect in descriptors[0].rate_limit\n"; code != exitOK || stdout != want {
		t.Errorf("exit code %d, %q%s, want %q", code, stdout, stderr, want)
	}
	joined := writeFile(t, "domain: web\ndescriptors: [{key: user}, {key: user_internal, rate_limit: {unlimited: Yes}}]\n---\n")
	code, stdout, stderr = do(t, nil, "rules", "validate", joined)
	if want := `the key "user_internal" also counts user=internal, since key and value are joined by _`; code != exitOK || !strings.Contains(stdout, want) {
		t.Errorf("exit code %d, %q%s, want %q", code, stdout, stderr, want)
	}
	bad := writeFile(t, `
domain: web
descriptors:
  - {key: a, rate_limit: {unit: minut, requests_per_unit: 5, algorithm: leaky_bucket}}
  - {key: b, value: 8080, colour: red}
  - {key: b, value: "8080"}
`)
	code, _, stderr = do(t, nil, "rules", "validate", bad)
	for _, want := range []string{
		`:4:33: descriptors[0].rate_limit.unit is "minut"; allowed: second,`, "LEAKY_BUCKET, and Envoy can't hold a request", "TOKEN_BUCKET",
		`:5:27: "colour" is not a name in descriptors[1]`, `:6:5: descriptors[2]: the key and value "b_8080" are given twice, first at `,
	} {
		if code != exitUsage || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, without %q:\n%s", code, want, stderr)
		}
	}
	code, stdout, _ = do(t, nil, "rules", "validate", "--json", good, bad)
	if code != exitUsage || !strings.Contains(stdout, `"warnings":["`) || strings.Count(stdout, `"line":`) != 4 {
		t.Errorf("as JSON: exit code %d, %s", code, stdout)
	}
}

// Rules whose requests are errors on a cluster are named, if the configuration has one.
func TestValidateForACluster(t *testing.T) {
	rules := writeFile(t, scattered)
	cluster := writeFile(t, "store: {url: redis-cluster://127.0.0.1:1}\n")
	const want = "warning: rule team: its clients and those of rule organisation are in different partitions of a cluster"
	if code, stdout, stderr := do(t, nil, "rules", "validate", "--config", cluster, rules); code != 0 || !strings.Contains(stdout, want) {
		t.Errorf("%d: %s%s, want %s", code, stdout, stderr, want)
	}
	if code, stdout, _ := do(t, nil, "rules", "validate", rules); code != 0 || strings.Contains(stdout, "warning") {
		t.Errorf("without a cluster %d: %s", code, stdout)
	}
	logs := writeFile(t, `rules:
  - {id: per-ip, match: {path: /x/**}, scope: per_ip, limits: [{algorithm: leaky_bucket, capacity: 10, leak: 1/s}]}
  - {id: whole, match: {path: "/x/{id}"}, scope: global, limits: [{algorithm: sliding_window_log, limit: 100, window: 1m}]}
`)
	const apart = "warning: rule whole: requests may meet it and rule per-ip, whose clients are in different partitions of a cluster"
	if code, stdout, stderr := do(t, nil, "rules", "validate", "--config", cluster, logs); code != 0 || !strings.Contains(stdout, apart) {
		t.Errorf("%d: %s%s, want %s", code, stdout, stderr, apart)
	}
}
