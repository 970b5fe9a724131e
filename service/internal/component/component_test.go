package component_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/component"
)

// recorded are three parts that note what is done to them. The one of the name bad does not start.
func recorded(bad string, stopFault error) (parts []component.Part, done *[]string) {
	done = new([]string)
	for i, name := range []string{"a", "b", "c"} {
		part := component.Part{
			Name: name,
			Start: func(context.Context) error {
				*done = append(*done, "start "+name)
				if name == bad {
					return errors.New("no disk")
				}
				return nil
			},
			Stop: func(context.Context) error {
				*done = append(*done, "stop "+name)
				return stopFault
			},
		}
		if i > 0 {
			part.Needs = []string{parts[i-1].Name}
		}
		parts = append(parts, part)
	}
	return parts, done
}

// Parts start in order and stop in reverse. One that fails stops those before it and no other, and is named.
func TestOrder(t *testing.T) {
	for bad, want := range map[string]struct{ done, states string }{
		"":  {"start a, start b, start c, stop c, stop b, stop a", "stopped stopped stopped"},
		"a": {"start a", "failed waiting waiting"},
		"b": {"start a, start b, stop a", "stopped failed waiting"},
		"c": {"start a, start b, start c, stop b, stop a", "stopped stopped failed"},
	} {
		parts, done := recorded(bad, nil)
		var log strings.Builder
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		list := must.Get(component.New(logger, parts...))(t)
		err := list.Start(t.Context())
		if bad == "" && err == nil {
			for name, state := range list.States() {
				if state != "running" {
					t.Errorf("%s is %s", name, state)
				}
			}
			err = list.Stop(t.Context())
		}
		failed, is := errors.AsType[*component.StartError](err)
		if is != (bad != "") || is && (failed.Part != bad || failed.Error() != bad+" did not start: no disk") || !is && err != nil {
			t.Errorf("with a fault of %q: %v", bad, err)
		}
		var states []string
		all := list.States()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			states = append(states, all[name].(string))
		}
		if got := strings.Join(*done, ", "); got != want.done || strings.Join(states, " ") != want.states {
			t.Errorf("with a fault of %q: %s, which leaves %v; want %s and %s", bad, got, states, want.done, want.states)
		}
		for _, name := range []string{"a", "b", "c"} {
			if ran := strings.Contains(want.done, "stop "+name); strings.Contains(log.String(), "part is stopped\" part="+name) != ran {
				t.Errorf("with a fault of %q, of %s the log tells %s", bad, name, &log)
			}
		}
	}
}

// A part that does not stop keeps no other from it, and all faults are told.
func TestStopFaults(t *testing.T) {
	fault := errors.New("cut off")
	parts, done := recorded("", fault)
	list := must.Get(component.New(slog.New(slog.DiscardHandler), parts...))(t)
	must.Do(t, list.Start(t.Context()))
	if err := list.Stop(t.Context()); !errors.Is(err, fault) || err.Error() != "cut off\ncut off\ncut off" || len(*done) != 6 {
		t.Errorf("%v after %v", err, *done)
	}
	if err := list.Stop(t.Context()); err != nil || len(*done) != 6 {
		t.Errorf("again: %v after %v", err, *done)
	}
}

// A need that is not met before, and a name that is given twice, are faults of the list.
func TestFaultyLists(t *testing.T) {
	for want, parts := range map[string][]component.Part{
		`stint: the part "a" needs "b"; allowed: parts before it`: {{Name: "a", Needs: []string{"b"}}, {Name: "b"}},
		`stint: the part "a" is given twice`:                      {{Name: "a"}, {Name: "a"}},
	} {
		if _, err := component.New(slog.New(slog.DiscardHandler), parts...); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// What runs in the background outlives the context of its start, and has ended when its part is stopped.
func TestBackground(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := false
	part := component.Background("a", func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	list := must.Get(component.New(slog.New(slog.DiscardHandler), part))(t)
	must.Do(t, list.Start(ctx))
	cancel()
	if err := list.Stop(t.Context()); err != nil || !ended {
		t.Errorf("%v, ended: %t", err, ended)
	}
}
