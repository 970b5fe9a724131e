package rest

import (
	"context"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// The values of [Component.Status].
const (
	StatusUp   = "UP"
	StatusDown = "DOWN"
)

// A Component is the health of one part.
type Component struct {
	Status string `json:"status"`
	// Detail says more than the status. Default: "", nothing.
	Detail string `json:"detail,omitempty"`
	// Details are facts for operators, by name. Default: nil; the query ?details=true asks for them,
	// with a token.
	Details map[string]any `json:"details,omitempty"`
}

// Health is the answer of the health endpoints.
type Health struct {
	Status     string               `json:"status"`
	Components map[string]Component `json:"components,omitempty"`
}

// Info says what is running.
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	GoVersion string `json:"goVersion"`
}

// liveness never depends on the store: restarting the process would not mend it.
func (s *Service) liveness(w http.ResponseWriter, r *http.Request) error {
	return problem.Answer(w, r, http.StatusOK, Health{Status: StatusUp})
}

// healthTimeout bounds the asking for the store's health. Probes of Kubernetes wait for 1s by
// default, so that a longer time would never be seen.
const healthTimeout = time.Second

// mayAskDetails reports whether a request of a health endpoint asks for details, and why it may
// not.
func (s *Service) mayAskDetails(r *http.Request) (bool, error) {
	switch text := r.URL.Query().Get("details"); text {
	case "", "false":
		return false, nil
	case "true":
		return true, s.authority.mayManage(r)
	default:
		return false, stint.Invalid("details", problem.Short(text), "true or false")
	}
}

// readiness is up while requests are answered: not when draining or before rules were read, and
// with the store unreachable only when requests are decided nevertheless. Probes read the status
// alone: 200 says to send requests, 503 not to. The components say why, to anyone; details, such as
// addresses and latencies, are for operators.
func (s *Service) readiness(w http.ResponseWriter, r *http.Request) error {
	details, err := s.mayAskDetails(r)
	if err != nil {
		return err
	}
	health, up, latency := s.health(r.Context())
	if details {
		s.addDetails(health.Components, up, latency)
	}
	status := http.StatusOK
	if health.Status == StatusDown {
		status = http.StatusServiceUnavailable
	}
	return problem.Answer(w, r, status, health)
}

// rulesDetails say more of rules that are not current.
var rulesDetails = map[follow.State]string{
	follow.Unknown:     "the rules could not be read yet; the log says why",
	follow.Cached:      "the rules are from rules_cache and may be old",
	follow.Refused:     "the new rules are refused; the current rules stay in force; the log says why",
	follow.Unreachable: "the rules' source is unreachable; the current rules stay in force",
}

// health is that of the service and its parts, with whether the store answered, and after how long.
// It is made anew for each request, and asks the store within healthTimeout. What is old but in
// force (rules from a cache, a refused configuration) leaves the service up, with a text; what was
// never there makes it down.
func (s *Service) health(ctx context.Context) (health Health, up bool, latency time.Duration) {
	health = Health{Status: StatusUp, Components: map[string]Component{
		"server": {Status: StatusUp}, "store": {Status: StatusUp},
	}}
	asked := time.Now()
	up = s.storeIsUp(ctx)
	latency = time.Since(asked)
	if !up {
		health.Components["store"] = Component{Status: StatusDown}
		if s.config.StoreRequired {
			health.Status = StatusDown
		}
	}
	if s.config.RulesState != nil {
		state, status := s.config.RulesState(), StatusUp
		if state == follow.Unknown {
			status, health.Status = StatusDown, StatusDown
		}
		health.Components["rules"] = Component{Status: status, Detail: rulesDetails[state]}
	}
	if s.config.LimitsRefused != nil {
		limits := Component{Status: StatusUp}
		if s.config.LimitsRefused() {
			limits.Detail = "the new configuration is refused; the current limits stay in force; the log says why"
		}
		health.Components["limits"] = limits
	}
	if s.rateLimit != nil {
		domains := Component{Status: StatusUp}
		if s.config.DomainsRefused != nil {
			domains.Detail = s.config.DomainsRefused()
		}
		if _, _, loaded := s.rateLimit.Loaded(); !loaded && s.config.RateLimitLoads > 0 {
			domains = Component{Status: StatusDown, Detail: "no domains could be read yet; the log says why"}
			health.Status = StatusDown
		}
		health.Components["domains"] = domains
	}
	if states := s.parts.Certificates(); len(states) > 0 {
		certificates, refused := Component{Status: StatusUp}, []string(nil)
		for _, service := range slices.Sorted(maps.Keys(states)) {
			if states[service] != follow.Current {
				refused = append(refused, service)
			}
		}
		if len(refused) > 0 {
			certificates.Detail = "the new certificates of " + strings.Join(refused, ", ") +
				" can't be used; the old ones stay in use; the log says why"
		}
		health.Components["certificates"] = certificates
	}
	if s.parts.Draining() {
		health.Components["server"] = Component{Status: StatusDown}
		health.Status = StatusDown
	}
	return health, up, latency
}

// Ready reports whether requests are answered.
func (s *Service) Ready(ctx context.Context) bool {
	health, _, _ := s.health(ctx)
	return health.Status == StatusUp
}

// addDetails adds to components what only operators are told.
func (s *Service) addDetails(components map[string]Component, up bool, latency time.Duration) {
	facts := map[string]map[string]any{}
	if s.config.HealthDetails != nil {
		maps.Copy(facts, s.config.HealthDetails())
	}
	if up && s.config.StoreHealth != nil {
		if facts["store"] == nil {
			facts["store"] = map[string]any{}
		}
		facts["store"]["latencyMicros"] = latency.Microseconds()
	}
	for name, facts := range facts {
		component, known := components[name]
		if !known {
			component.Status = StatusUp
		}
		component.Details = facts
		components[name] = component
	}
}

// storeIsUp asks the store; one in the process has nothing to ask, and is up.
func (s *Service) storeIsUp(ctx context.Context) bool {
	if s.config.StoreHealth == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return s.config.StoreHealth(ctx) == nil
}

// rulesState says where the rules stand. Those of the configuration are always current.
func (s *Service) rulesState() follow.State {
	if s.config.RulesState == nil {
		return follow.Current
	}
	return s.config.RulesState()
}

// info tells the version, for those who compare what runs where.
func (s *Service) info(w http.ResponseWriter, r *http.Request) error {
	build := s.config.Build
	return problem.Answer(
		w, r, http.StatusOK, Info{Version: build.Version, Commit: build.Commit, GoVersion: runtime.Version()},
	)
}

func (s *Service) describeAPI(w http.ResponseWriter, _ *http.Request) error {
	problem.AnswerYAML(w, openAPI)
	return nil
}

// scrapeOperations is how much work it is to answer a scrape by a page at hand, in operations: it is copied.
const scrapeOperations = 8

// scrapeMetrics answers with the metrics, which may be a second old. The work is over before the answer is sent, since
// a client may read it slowly.
func (s *Service) scrapeMetrics(w http.ResponseWriter, r *http.Request) error {
	r, work, err := s.enter(r, scrapeOperations)
	if err != nil {
		return err
	}
	page := s.scrapes.Of(r)
	work.Leave()
	w.Header()["Cache-Control"] = noStore
	page.Send(w)
	return nil
}
