package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/doctor"
)

// examine runs the doctor, and returns what it found by the names of its checks.
func examine(t *testing.T, want int, args ...string) map[string]doctor.Finding {
	t.Helper()
	code, stdout, stderr := do(t, nil, append([]string{"doctor", "--json"}, args...)...)
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != want {
		t.Fatalf("it exits with %d, %v, want %d:\n%s%s", code, err, want, stdout, stderr)
	}
	found := map[string]doctor.Finding{}
	for _, f := range all {
		if (f.Change == "") != (f.Status == doctor.OK || f.Status == doctor.Unknown) {
			t.Errorf("%+v changes something or nothing", f)
		}
		found[f.Check] = f
	}
	return found
}

func TestDoctor(t *testing.T) {
	conf := readFile(t, "../../../docs/redis.conf")
	var recommended []testredis.Option
	for _, setting := range regexp.MustCompile(`(?m)^([a-z-]+) (.+)$`).FindAllStringSubmatch(conf, -1) {
		if setting[1] != "save" { // which the test's server has set to nothing
			recommended = append(recommended, testredis.Config(setting[1], setting[2]))
		}
	}
	well := testredis.Start(t, recommended...)
	for check, f := range examine(t, exitOK, "--store", well.URL(), "--store-timeout=1m") {
		if f.Status != doctor.OK || strings.HasPrefix(check, "cluster") {
			t.Errorf("docs/redis.conf: %s is %+v", check, f)
		}
	}
	keys := must.Get(well.Do("KEYS", "*doctor*"))(t)
	for _, key := range keys.([]any) {
		if left, err := well.Do("TTL", key); err != nil || left.(int64) < 0 || left.(int64) > 300 {
			t.Errorf("it leaves %s for %v s, %v", key, left, err)
		}
	}

	plain := testredis.Start(t, testredis.Config("maxmemory-policy", "allkeys-lru"))
	found := examine(t, 1, "--store", plain.URL(), "--store-timeout=1m")
	for check, want := range map[string]string{
		"maxmemory-policy": doctor.Advice, "maxmemory": doctor.Advice, "appendonly": doctor.Advice, "lazyfree-lazy-expire": doctor.Advice,
		"lazyfree-lazy-user-del": doctor.Advice, "lazyfree-lazy-user-flush": doctor.Advice, "save": doctor.OK,
		"version": doctor.OK, "rights": doctor.OK, "rules": doctor.OK, "clock": doctor.OK, "round trip": doctor.OK,
	} {
		if found[check].Status != want {
			t.Errorf("%s is %+v, want %s", check, found[check], want)
		}
	}

	must.Get(plain.Do("ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval"))(t)
	url := strings.Replace(plain.URL(), "redis://", "redis://limiter:secret@", 1)
	if f := examine(t, exitUsage, "--store", url, "--store-timeout=1m")["rights"]; f.Status != doctor.Wrong || !strings.Contains(f.Found, "evalsha") {
		t.Errorf("without scripts rights are %+v", f)
	}
	url = strings.Replace(plain.URL(), "redis://", "redis://limiter:wrong@", 1)
	if f := examine(t, exitUsage, "--store", url)["store"]; f.Status != doctor.Wrong || strings.Contains(f.Found, "wrong@") {
		t.Errorf("with a wrong password the store is %+v", f)
	}
	if f := examine(t, exitUnreachable, "--store", "redis://127.0.0.1:1", "--timeout", "200ms")["store"]; f.Status != doctor.Unreachable {
		t.Errorf("without a server the store is %+v", f)
	}
	file := writeFile(t, "identity: {user: X-User}\n")
	if f := examine(t, 1, "--config", file)["identity"]; f.Status != doctor.Advice {
		t.Errorf("identity without proxies is %+v", f)
	}
	file = writeFile(t, "rules_from: /there/is/none.yaml\n")
	if f := examine(t, exitUsage, "--config", file)["rules"]; f.Status != doctor.Wrong {
		t.Errorf("rules that are not there are %+v", f)
	}
	says(t, nil, exitUsage, "nothing", "doctor", "--config", writeFile(t, "nothing: 1\n"))
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
	var all []doctor.Finding
	if err := json.Unmarshal([]byte(stdout), &all); err != nil || code != exitUsage {
		t.Fatalf("%d, %v:\n%s%s", code, err, stdout, stderr)
	}
	covered := 0
	for _, f := range all {
		if f.Check == "cluster-require-full-coverage" && f.Status == doctor.Advice && f.Found == "yes" {
			covered++
		}
	}
	if covered != 3 {
		t.Errorf("of three primaries that decide nothing without one another, %d are advised: %+v", covered, all)
	}
	wrong := slices.DeleteFunc(slices.Clone(all), func(f doctor.Finding) bool { return f.Status != doctor.Wrong })
	if len(wrong) != 1 || wrong[0].Check != "partitions" || !strings.HasPrefix(wrong[0].Found, "rule team: its clients and those of rule organisation are") ||
		!strings.HasPrefix(wrong[0].Change, "set the same partition_by in both") {
		t.Errorf("of rules that no cluster decides it is said %+v", wrong)
	}
	logs := writeFile(t, apart)
	f := examine(t, exitUsage, "--store", cluster.URL(), "--store-timeout=1m", "--timeout=1m", "--rules-from", logs)["partitions"]
	if f.Status != doctor.Wrong || !strings.HasPrefix(f.Found, "rule whole: requests may meet it and rule address, whose clients") {
		t.Errorf("of logs of two rules it is said %+v", f)
	}
	for _, node := range cluster.Nodes {
		must.Get(node.Do("CONFIG", "SET", "cluster-require-full-coverage", "no"))(t)
	}
	f = examine(t, exitUsage, "--store", cluster.URL(), "--store-timeout=1m", "--timeout=1m", "--rules-from", logs)["cluster-require-full-coverage"]
	if f.Status != doctor.OK {
		t.Errorf("of a cluster with docs/redis.conf it is said %+v", f)
	}
	if f, said := examine(t, 0, "--store", "memory://", "--rules-from", rules)["partitions"]; said {
		t.Errorf("without a cluster: %+v", f)
	}
	versions := map[string]bool{}
	for _, f := range all {
		if f.Check == "version" {
			versions[f.Server] = f.Status == doctor.OK
		}
		if f.Check == "rights" && f.Status != doctor.OK {
			t.Errorf("rights are %+v", f)
		}
	}
	for _, node := range cluster.Nodes {
		if !versions[node.Addr()] {
			t.Errorf("nothing, or nothing good, is said of the version of %s: %v", node.Addr(), versions)
		}
	}
}
