package promlimit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/promlimit"
)

func TestWithLabels(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registerer := must.Get(promlimit.WithLabels(registry, map[string]string{"application": "shop", "region": "eu"}))(t)
	m := must.Get(promlimit.New(registerer))(t)
	m.StoreFailed()
	gathers(t, registry, `
# HELP rate_limiter_store_errors_total Operations that the store could not decide.
# TYPE rate_limiter_store_errors_total counter
rate_limiter_store_errors_total{application="shop",region="eu"} 1
`, "rate_limiter_store_errors_total")
	if same, err := promlimit.WithLabels(registry, nil); err != nil || same != prometheus.Registerer(registry) {
		t.Errorf("without labels the registerer is %v, %v", same, err)
	}
}

func TestWithLabelsRefuses(t *testing.T) {
	for name, fault := range map[string]string{
		"":             "metrics.labels",
		"1st":          "begin with neither a digit nor __",
		"__name__":     "begin with neither a digit nor __",
		"app-name":     "letters, digits and _",
		"allowed":      "other than those that metrics have themselves (action, algorithm, allowed",
		"le":           "other than those that metrics have themselves",
		"with_latin_1": "UTF-8",
	} {
		_, err := promlimit.WithLabels(prometheus.NewRegistry(), map[string]string{name: "caf\xe9"})
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v, want it to say %q", name, err, fault)
		}
	}
	_, err := promlimit.WithLabels(prometheus.NewRegistry(), map[string]string{"1st": "", "le": "", "latin": "\xe9"})
	if err == nil || strings.Count(err.Error(), "; allowed: ") != 3 {
		t.Errorf("not all faults at once: %v", err)
	}
}
