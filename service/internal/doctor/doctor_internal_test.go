package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/config"
)

// The doctor and docs/redis.conf recommend the same.
func TestDoctorAgreesWithTheDocuments(t *testing.T) {
	text := must.Get(os.ReadFile("../../../docs/redis.conf"))(t)
	for _, s := range redisSettings {
		if !strings.Contains(string(text), "\n"+s.name+" "+s.want+"\n") || !s.well(s.want) {
			t.Errorf("docs/redis.conf does not say %s %s", s.name, s.want)
		}
	}
}

// What no server of a test has: an old version, a clock that is off, a round trip that is long, nothing allowed.
func TestDoctorOfServers(t *testing.T) {
	server := func(version string, clock time.Duration) redisconn.Server {
		return redisconn.Server{Name: "a", Ask: func(_ context.Context, args ...string) ([]string, error) {
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
		server  redisconn.Server
		timeout time.Duration
		check   string
		want    string
	}{
		{"old Redis", server("redis_version:6.0.16", 0), time.Minute, "version", Wrong},
		{"Redis", server("redis_version:6.2.0", 0), time.Minute, "version", OK},
		{"Redis 10", server("redis_version:10.0.0", 0), time.Minute, "version", OK},
		{"Valkey", server("redis_version:7.2.4\r\nvalkey_version:8.1.0", 0), time.Minute, "version", OK},
		{"old Valkey", server("redis_version:7.2.4\r\nvalkey_version:7.1.0", 0), time.Minute, "version", Wrong},
		{"Active-Active", server("redis_version:7.4.0\r\n# CRDT Context\r\ncrdt_config_version:3", 0), time.Minute, "active-active", Wrong},
		{"one region", server("redis_version:7.4.0", 0), time.Minute, "active-active", ""},
		{"a clock behind", server("redis_version:7.0.0", -time.Hour), time.Minute, "clock", Advice},
		{"a clock ahead", server("redis_version:7.0.0", time.Hour), time.Minute, "clock", Advice},
		{"a clock", server("redis_version:7.0.0", 0), time.Minute, "clock", OK},
		{"far away", server("redis_version:7.0.0", 0), 1, "round trip", Advice},
		{"nothing allowed", server("", 0), time.Minute, "version", Unknown},
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

// Sentinels and replicas, as they are, and as they should not be.
func TestDoctorOfSentinels(t *testing.T) {
	running := testredis.StartSentinel(t)
	c := config.Default()
	c.Store.URL = running.URL()
	findings := must.Get(Look(t.Context(), c, time.Minute))(t)
	for _, f := range findings {
		want := map[string]string{"sentinel": OK, "sentinels": "none", "min-replicas-to-write": Advice}[f.Check]
		if want != "" && f.Status != want {
			t.Errorf("%+v, want %s", f, want)
		}
	}

	sentinel := func(of ...string) redisconn.Server {
		return redisconn.Server{Name: "s", Ask: func(_ context.Context, args ...string) ([]string, error) {
			if len(of) == 0 {
				return nil, errors.New("connection refused")
			}
			known := []string{"ip", "10.0.0.1", "port", "6379", "quorum", "2", "num-other-sentinels", "2", "num-slaves", "1", "flags", "master"}
			return append(known, of...), nil
		}}
	}
	well := sentinel("x", "")
	for name, test := range map[string]struct {
		sentinels []redisconn.Server
		want      string
	}{
		"well":          {[]redisconn.Server{well, well, well}, ""},
		"unreachable":   {[]redisconn.Server{well, well, sentinel()}, Unreachable},
		"quorum":        {[]redisconn.Server{well, well, sentinel("quorum", "4")}, Wrong},
		"down":          {[]redisconn.Server{well, well, sentinel("flags", "s_down,master")}, Wrong},
		"two":           {[]redisconn.Server{sentinel("num-other-sentinels", "1"), sentinel("num-other-sentinels", "1")}, Advice},
		"not all named": {[]redisconn.Server{well}, Advice},
		"no replica":    {[]redisconn.Server{well, well, sentinel("num-slaves", "0")}, Advice},
		"two primaries": {[]redisconn.Server{well, well, sentinel("ip", "10.0.0.2")}, Wrong},
	} {
		d := &doctor{}
		d.lookAtSentinels(t.Context(), "mymaster", test.sentinels)
		got := ""
		for _, f := range d.findings {
			if f.Status != OK {
				got = f.Status
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q: %+v", name, got, test.want, d.findings)
		}
	}
	for name, test := range map[string]struct {
		role, replicas, least, want string
	}{
		"alone":             {"master", "0", "0", ""},
		"a replica":         {"slave", "0", "0", ""},
		"one":               {"master", "1", "0", OK},
		"one that is asked": {"master", "1", "1", Advice},
		"too few":           {"master", "1", "2", Wrong},
		"two":               {"master", "2", "0", Advice},
		"one of two":        {"master", "2", "1", OK},
	} {
		d := &doctor{}
		server := redisconn.Server{Ask: func(context.Context, ...string) ([]string, error) {
			return []string{"min-replicas-to-write", test.least}, nil
		}}
		d.lookAtReplicas(t.Context(), server, map[string]string{"role": test.role, "connected_slaves": test.replicas})
		got := ""
		for _, f := range d.findings {
			got = f.Status
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
