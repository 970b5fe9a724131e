package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/service/internal/config"
)

// examine runs the doctor, and returns what it found by the names of its checks.
func examine(t *testing.T, want int, args ...string) map[string]finding {
	t.Helper()
	code, stdout, stderr := do(t, nil, append([]string{"doctor", "--json"}, args...)...)
	var all []finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != want {
		t.Fatalf("it exits with %d, %v, want %d:\n%s%s", code, err, want, stdout, stderr)
	}
	found := map[string]finding{}
	for _, f := range all {
		if (f.Change == "") != (f.Status == findingOK || f.Status == findingUnknown) {
			t.Errorf("%+v changes something or nothing", f)
		}
		found[f.Check] = f
	}
	return found
}

func TestDoctor(t *testing.T) {
	conf, err := os.ReadFile("../../../docs/redis.conf")
	if err != nil {
		t.Fatal(err)
	}
	var recommended []testredis.Option
	for _, setting := range regexp.MustCompile(`(?m)^([a-z-]+) (.+)$`).FindAllStringSubmatch(string(conf), -1) {
		if setting[1] != "save" { // which the test's server has set to nothing
			recommended = append(recommended, testredis.Config(setting[1], setting[2]))
		}
	}
	well := testredis.Start(t, recommended...)
	for check, f := range examine(t, exitOK, "--store", well.URL(), "--store-timeout=1m") {
		if f.Status != findingOK || strings.HasPrefix(check, "cluster") {
			t.Errorf("docs/redis.conf: %s is %+v", check, f)
		}
	}
	keys, err := well.Do("KEYS", "*doctor*")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys.([]any) {
		if left, err := well.Do("TTL", key); err != nil || left.(int64) < 0 || left.(int64) > 300 {
			t.Errorf("it leaves %s for %v s, %v", key, left, err)
		}
	}

	plain := testredis.Start(t, testredis.Config("maxmemory-policy", "allkeys-lru"))
	found := examine(t, 1, "--store", plain.URL(), "--store-timeout=1m")
	for check, want := range map[string]string{
		"maxmemory-policy": findingAdvice, "maxmemory": findingAdvice, "appendonly": findingAdvice, "lazyfree-lazy-expire": findingAdvice,
		"lazyfree-lazy-user-del": findingAdvice, "lazyfree-lazy-user-flush": findingAdvice, "save": findingOK,
		"version": findingOK, "rights": findingOK, "rules": findingOK, "clock": findingOK, "round trip": findingOK,
	} {
		if found[check].Status != want {
			t.Errorf("%s is %+v, want %s", check, found[check], want)
		}
	}

	if _, err := plain.Do("ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval"); err != nil {
		t.Fatal(err)
	}
	url := strings.Replace(plain.URL(), "redis://", "redis://limiter:secret@", 1)
	if f := examine(t, exitUsage, "--store", url, "--store-timeout=1m")["rights"]; f.Status != findingWrong || !strings.Contains(f.Found, "evalsha") {
		t.Errorf("without scripts rights are %+v", f)
	}
	url = strings.Replace(plain.URL(), "redis://", "redis://limiter:wrong@", 1)
	if f := examine(t, exitUsage, "--store", url)["store"]; f.Status != findingWrong || strings.Contains(f.Found, "wrong@") {
		t.Errorf("with a wrong password the store is %+v", f)
	}
	if f := examine(t, exitUnreachable, "--store", "redis://127.0.0.1:1", "--timeout", "200ms")["store"]; f.Status != findingUnreachable {
		t.Errorf("without a server the store is %+v", f)
	}
	file := writeFile(t, "identity: {user: X-User}\n")
	if f := examine(t, 1, "--config", file)["identity"]; f.Status != findingAdvice {
		t.Errorf("identity without proxies is %+v", f)
	}
	file = writeFile(t, "rules_from: /there/is/none.yaml\n")
	if f := examine(t, exitUsage, "--config", file)["rules"]; f.Status != findingWrong {
		t.Errorf("rules that are not there are %+v", f)
	}
	if code, _, stderr := do(t, nil, "doctor", "--config", writeFile(t, "nothing: 1\n")); code != exitUsage || !strings.Contains(stderr, "nothing") {
		t.Errorf("a wrong configuration: %d, %s", code, stderr)
	}
}

// scattered are rules whose requests are errors on a cluster.
const scattered = `rules:
  - {id: organisation, scope: global, limits: [{algorithm: token_bucket, capacity: 100, refill: 100/s}]}
  - {id: team, within: organisation, scope: "custom:team", missing: skip, guaranteed: {search: {capacity: 20, refill: 20/s}}, borrow: true}
`

// apart are two rules whose logs no cluster decides together.
const apart = `
- {id: address, scope: per_ip, limits: [{algorithm: sliding_window_log, limit: 10, window: 1m}]}
- {id: whole, scope: global, limits: [{algorithm: sliding_window_log, limit: 100, window: 1m}]}
`

// Of a cluster each primary is looked at, and whether it can decide by the rules.
func TestDoctorOfACluster(t *testing.T) {
	cluster := testredis.StartCluster(t, 3)
	rules := writeFile(t, scattered)
	code, stdout, stderr := do(t, nil, "doctor", "--json", "--store", cluster.URL(), "--store-timeout=1m", "--timeout=1m", "--rules-from", rules)
	var all []finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != exitUsage {
		t.Fatalf("%d, %v:\n%s%s", code, err, stdout, stderr)
	}
	covered := 0
	for _, f := range all {
		if f.Check == "cluster-require-full-coverage" && f.Status == findingAdvice && f.Found == "yes" {
			covered++
		}
	}
	if covered != 3 {
		t.Errorf("of three primaries that decide nothing without one another, %d are advised: %+v", covered, all)
	}
	wrong := slices.DeleteFunc(slices.Clone(all), func(f finding) bool { return f.Status != findingWrong })
	if len(wrong) != 1 || wrong[0].Check != "partitions" || !strings.HasPrefix(wrong[0].Found, "rule team: its clients and those of rule organisation are") ||
		!strings.HasPrefix(wrong[0].Change, "set the same partition_by in both") {
		t.Errorf("of rules that no cluster decides it is said %+v", wrong)
	}
	logs := writeFile(t, apart)
	f := examine(t, exitUsage, "--store", cluster.URL(), "--store-timeout=1m", "--timeout=1m", "--rules-from", logs)["partitions"]
	if f.Status != findingWrong || !strings.HasPrefix(f.Found, "rule whole: requests may meet it and rule address, whose clients") {
		t.Errorf("of logs of two rules it is said %+v", f)
	}
	for _, node := range cluster.Nodes {
		if _, err := node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no"); err != nil {
			t.Fatal(err)
		}
	}
	f = examine(t, exitUsage, "--store", cluster.URL(), "--store-timeout=1m", "--timeout=1m", "--rules-from", logs)["cluster-require-full-coverage"]
	if f.Status != findingOK {
		t.Errorf("of a cluster with docs/redis.conf it is said %+v", f)
	}
	if f, said := examine(t, 0, "--store", "memory://", "--rules-from", rules)["partitions"]; said {
		t.Errorf("without a cluster: %+v", f)
	}
	versions := map[string]bool{}
	for _, f := range all {
		if f.Check == "version" {
			versions[f.Server] = f.Status == findingOK
		}
		if f.Check == "rights" && f.Status != findingOK {
			t.Errorf("rights are %+v", f)
		}
	}
	for _, node := range cluster.Nodes {
		if !versions[node.Addr()] {
			t.Errorf("nothing, or nothing good, is said of the version of %s: %v", node.Addr(), versions)
		}
	}
}

// The doctor and docs/redis.conf recommend the same.
func TestDoctorAgreesWithTheDocuments(t *testing.T) {
	text, err := os.ReadFile("../../../docs/redis.conf")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range redisSettings {
		if !strings.Contains(string(text), "\n"+s.name+" "+s.want+"\n") || !s.well(s.want) {
			t.Errorf("docs/redis.conf does not say %s %s", s.name, s.want)
		}
	}
}

// What no server of a test has: an old version, a clock that is off, a round trip that is long, nothing allowed.
func TestDoctorOfServers(t *testing.T) {
	server := func(version string, clock time.Duration) redisstore.Server {
		return redisstore.Server{Name: "a", Ask: func(_ context.Context, args ...string) ([]string, error) {
			switch {
			case version == "":
				return nil, errors.New("NOPERM")
			case args[0] == "INFO":
				return []string{version + "\r\nrole:master\r\n"}, nil
			case args[0] == "TIME":
				now := time.Now().Add(clock)
				return []string{fmt.Sprint(now.Unix()), fmt.Sprint(now.Nanosecond() / 1000)}, nil
			}
			return []string{args[2], "unwise"}, nil
		}}
	}
	for _, test := range []struct {
		name    string
		server  redisstore.Server
		timeout time.Duration
		check   string
		want    string
	}{
		{"old Redis", server("redis_version:6.0.16", 0), time.Minute, "version", findingWrong},
		{"Redis", server("redis_version:6.2.0", 0), time.Minute, "version", findingOK},
		{"Redis 10", server("redis_version:10.0.0", 0), time.Minute, "version", findingOK},
		{"Valkey", server("redis_version:7.2.4\r\nvalkey_version:8.1.0", 0), time.Minute, "version", findingOK},
		{"old Valkey", server("redis_version:7.2.4\r\nvalkey_version:7.1.0", 0), time.Minute, "version", findingWrong},
		{"a clock behind", server("redis_version:7.0.0", -time.Hour), time.Minute, "clock", findingAdvice},
		{"a clock ahead", server("redis_version:7.0.0", time.Hour), time.Minute, "clock", findingAdvice},
		{"a clock", server("redis_version:7.0.0", 0), time.Minute, "clock", findingOK},
		{"far away", server("redis_version:7.0.0", 0), 1, "round trip", findingAdvice},
		{"nothing allowed", server("", 0), time.Minute, "version", findingUnknown},
	} {
		d := &doctor{config: config.Config{Store: config.Store{Timeout: test.timeout}}}
		d.lookAtServer(t.Context(), test.server)
		var got string
		for _, f := range d.findings {
			if f.Check == test.check {
				got = f.Status
			}
		}
		if got != test.want {
			t.Errorf("%s: %s is %q, want %q: %+v", test.name, test.check, got, test.want, d.findings)
		}
	}
}
