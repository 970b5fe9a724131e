package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/service/internal/config"
)

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
		{"old Redis", server("redis_version:6.0.16", 0), time.Minute, "version", Wrong},
		{"Redis", server("redis_version:6.2.0", 0), time.Minute, "version", OK},
		{"Redis 10", server("redis_version:10.0.0", 0), time.Minute, "version", OK},
		{"Valkey", server("redis_version:7.2.4\r\nvalkey_version:8.1.0", 0), time.Minute, "version", OK},
		{"old Valkey", server("redis_version:7.2.4\r\nvalkey_version:7.1.0", 0), time.Minute, "version", Wrong},
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
