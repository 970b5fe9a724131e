// Package apipath has the paths of the service and the types of its problems, as its Go client and its handlers know
// them.
package apipath

// The paths of the API.
const (
	// Those of the limiter begin with /api/v1/rate-limit; health, info and metrics have the names that
	// monitoring of Spring Boot services looks for, and an alias where others look.
	Check     = "/api/v1/rate-limit/check"
	Remaining = "/api/v1/rate-limit/remaining"
	Reset     = "/api/v1/rate-limit/reset"
	Settle    = "/api/v1/rate-limit/settle"
	Reserve   = "/api/v1/rate-limit/reserve"
	Commit    = "/api/v1/rate-limit/commit"
	Cancel    = "/api/v1/rate-limit/cancel"
	Evaluate  = "/api/v1/rate-limit/evaluate"
	// ForwardAuth is asked by reverse proxies.
	ForwardAuth = "/forward-auth"
	Health      = "/actuator/health"
	Liveness    = "/actuator/health/liveness"
	Readiness   = "/actuator/health/readiness"
	Info        = "/actuator/info"
	Metrics     = "/actuator/prometheus"
	// MetricsAlias serves what Metrics serves.
	MetricsAlias = "/metrics"
	OpenAPI      = "/openapi.yaml"
)

// ProblemType is the media type of a problem.
const ProblemType = "application/problem+json"

// ProblemReducedCapacity is the type of a temporary problem of the service, which affects all clients
// (IETF httpapi draft of the RateLimit fields, section "Problem Types"). Retry-After says when to
// try again.
const ProblemReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// The types of a problem of a hold: it ended in another way (409), is live for another claim (409), or
// is not known (404).
const (
	ProblemHoldResolved    = "urn:stint:hold:resolved"
	ProblemHoldOtherClaims = "urn:stint:hold:other-claims"
	ProblemHoldUnknown     = "urn:stint:hold:unknown"
)
