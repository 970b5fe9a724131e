package server

import (
	"context"
	"net/http"
	"runtime"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// liveness never depends on the store: restarting the process would not mend it.
func liveness(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, api.Health{Status: api.StatusUp})
	return nil
}

// healthTimeout bounds the asking for the store's health.
const healthTimeout = time.Second

// readiness is up while requests are answered: not when draining or before rules were read, and with the store
// unreachable only when requests are decided nevertheless.
func (s *service) readiness(w http.ResponseWriter, r *http.Request) error {
	health := api.Health{Status: api.StatusUp, Components: map[string]api.Component{
		"server": {Status: api.StatusUp}, "store": {Status: api.StatusUp},
	}}
	if !s.storeIsUp(r.Context()) {
		health.Components["store"] = api.Component{Status: api.StatusDown}
		if s.config.StoreRequired {
			health.Status = api.StatusDown
		}
	}
	if s.config.RulesState != nil {
		health.Components["rules"] = api.Component{Status: api.StatusUp}
	}
	switch s.rulesState() {
	case RulesUnknown:
		health.Components["rules"] = api.Component{Status: api.StatusDown, Detail: "they were not read yet from where they are kept"}
		health.Status = api.StatusDown
	case RulesCached:
		health.Components["rules"] = api.Component{Status: api.StatusUp, Detail: "they are from rules_cache and may be old"}
	case RulesCurrent:
	}
	if s.draining.Load() {
		health.Components["server"] = api.Component{Status: api.StatusDown}
		health.Status = api.StatusDown
	}
	status := http.StatusOK
	if health.Status == api.StatusDown {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, health)
	return nil
}

func (s *service) storeIsUp(ctx context.Context) bool {
	if s.config.StoreHealth == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return s.config.StoreHealth(ctx) == nil
}

func (s *service) rulesState() RulesState {
	if s.config.RulesState == nil {
		return RulesCurrent
	}
	return s.config.RulesState()
}

func (s *service) info(w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, api.Info{
		Version: s.config.Build.Version, Commit: s.config.Build.Commit, GoVersion: runtime.Version(),
		TimeZones: api.TimeZones(stint.TimeZones()),
	})
	return nil
}

func (s *service) scrapeMetrics(w http.ResponseWriter, r *http.Request) error {
	w.Header()["Cache-Control"] = noStore
	s.scrape.ServeHTTP(w, r)
	return nil
}

func describe(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Content-Type"] = yamlType
	_, _ = w.Write(openAPI) // a client that is gone has no use for the error
	return nil
}
