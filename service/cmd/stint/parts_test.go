package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/dropin"
)

// newServing is a service on free ports with its states in memory, and its log from debug on.
func newServing(t *testing.T, options serveOptions) (*serving, *strings.Builder) {
	t.Helper()
	loaded := must.Get(config.Load(config.Sources{Flags: map[string]string{
		"listen": "127.0.0.1:0", "admin-listen": "127.0.0.1:0", "grpc-listen": "127.0.0.1:0",
	}}))(t)
	log := new(strings.Builder)
	s := &serving{
		serveOptions: options, process: process{Out: io.Discard, Err: io.Discard, Env: environment(nil)}, config: loaded,
		logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		lost:   func() int64 { return 0 },
	}
	if s.demo {
		s.token = must.Get(demonstrable(&s.config))(t)
	}
	return s, log
}

// partsThat are the parts of which the log says something, in its order.
func partsThat(log *strings.Builder, what string) (names []string) {
	for line := range strings.Lines(log.String()) {
		if _, rest, found := strings.Cut(line, `msg="a part is `+what+`" part=`); found {
			name, _, _ := strings.Cut(rest, " after=")
			names = append(names, strings.Trim(name, "\"\n"))
		}
	}
	return names
}

// Each way to run the service is a list of parts, which start in order and stop in reverse. When one of them, whichever it is,
// does not start, those before it are stopped and no other is; the error names it, and keeps its text and its exit code.
func TestParts(t *testing.T) {
	const common = "states, activity, observers, traces, store, source of rules, server, sender of metrics, watch of states, rules, limits, domains, "
	for _, way := range []struct {
		options serveOptions
		want    string
	}{
		{serveOptions{}, common + "listeners"},
		{serveOptions{demo: true}, common + "listeners, demo"},
		{serveOptions{dropIn: &dropin.DropIn{Debug: "127.0.0.1:0", Metrics: "127.0.0.1:0", MetricsPath: "/metrics"}}, common + "listener for debugging, listener for metrics, listeners"},
	} {
		want := strings.Split(way.want, ", ")
		for bad := range len(want) + 1 {
			s, log := newServing(t, way.options)
			parts := s.parts()
			if bad < len(want) {
				parts[bad].Start = func(context.Context) error { return exit{exitUnreachable, "no room"} }
			}
			var err error
			if s.list, err = component.New(s.logger, parts...); err != nil {
				t.Fatal(err)
			}
			err = s.list.Start(t.Context())
			if got := partsThat(log, "running"); !slices.Equal(got, want[:bad]) && bad < len(want) || bad == len(want) && !slices.Equal(got, want) {
				t.Errorf("running are %q, want %q", got, want[:min(bad, len(want))])
			}
			if bad == len(want) {
				if err == nil {
					details := s.details()["parts"]
					if details["listeners"] != "running" || len(details) != len(want) {
						t.Errorf("the health tells %v", details)
					}
					err = s.list.Stop(t.Context())
				}
				if err != nil {
					t.Error(err)
				}
			} else {
				failure := exit{}
				text := "no room\nthe service did not start: its part " + want[bad] + " failed"
				if !errors.As(notStarted(err), &failure) || failure != (exit{exitUnreachable, text}) {
					t.Errorf("the failure of %s is %+v", want[bad], failure)
				}
			}
			before := slices.Clone(want[:bad])
			slices.Reverse(before)
			if got := partsThat(log, "stopped"); !slices.Equal(got, before) {
				t.Errorf("stopped are %q, want %q", got, before)
			}
		}
	}
}

// The health tells operators of each part.
func TestPartsAreTold(t *testing.T) {
	url, _ := start(t)
	if status, body := get(t, url+"/actuator/health?details=true"); status != http.StatusOK || !strings.Contains(body, `"parts":{"status":"UP","details":{"activity":"running"`) ||
		!strings.Contains(body, `"store":"running"`) {
		t.Errorf("the health is %d %s", status, body)
	}
}
