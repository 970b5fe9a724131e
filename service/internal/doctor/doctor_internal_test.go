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
	"github.com/stint-go/stint/internal/testtable"
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
	for _, row := range testtable.Rows[struct {
		Name, Info     string
		Clock, Timeout time.Duration
		Check, Want    string
	}](t, "testdata/servers.txt") {
		d := &doctor{config: config.Config{Store: config.Store{Timeout: row.Timeout}}}
		d.lookAtServer(t.Context(), server(row.Info, row.Clock))
		var got string
		for _, f := range d.findings {
			if f.Check == row.Check {
				got = f.Status
			}
		}
		if got != row.Want {
			t.Errorf("%s: %s is %q, want %q: %+v", row.Name, row.Check, got, row.Want, d.findings)
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
	for _, row := range testtable.Rows[struct{ Name, Want, Sentinels string }](t, "testdata/sentinels.txt") {
		var all []redisconn.Server
		for _, of := range strings.Split(row.Sentinels, ", ") {
			all = append(all, sentinel(strings.Fields(strings.TrimPrefix(of, "gone"))...))
		}
		d := &doctor{}
		d.lookAtSentinels(t.Context(), "mymaster", all)
		got := ""
		for _, f := range d.findings {
			if f.Status != OK {
				got = f.Status
			}
		}
		if got != row.Want {
			t.Errorf("%s: %q, want %q: %+v", row.Name, got, row.Want, d.findings)
		}
	}
	for _, row := range testtable.Rows[struct{ Name, Role, Replicas, Least, Want string }](t, "testdata/replicas.txt") {
		d := &doctor{}
		server := redisconn.Server{Ask: func(context.Context, ...string) ([]string, error) {
			return []string{"min-replicas-to-write", row.Least}, nil
		}}
		d.lookAtReplicas(t.Context(), server, map[string]string{"role": row.Role, "connected_slaves": row.Replicas})
		got := ""
		for _, f := range d.findings {
			got = f.Status
		}
		if got != row.Want {
			t.Errorf("%s: %q, want %q", row.Name, got, row.Want)
		}
	}
}
