package activity

import "github.com/stint-go/stint"

// The paths of the admin API.
const (
	PathStats     = "/api/v1/stats"
	PathTop       = "/api/v1/top"
	PathDenials   = "/api/v1/denials"
	PathTimeline  = "/api/v1/timeline"
	PathProcesses = "/api/v1/processes"
	PathEvents    = "/api/v1/events"
)

// The scopes of figures.
const (
	ScopeProcess = "process" // of the process that answers
	ScopeAll     = "all"     // of all processes that share a Redis
)

// A Series counts requests in steps of Step seconds, the first of which begins at From, in Unix
// seconds.
type Series struct {
	From         int64    `json:"from"`
	Step         int64    `json:"step"`
	Admitted     []uint32 `json:"admitted"`
	Denied       []uint32 `json:"denied"`
	ShadowDenied []uint32 `json:"shadowDenied"`
}

// Totals count all requests of a process.
type Totals struct {
	Series

	Degraded []uint32 `json:"degraded"`
	// how long the store took on average
	StoreMicros []uint32 `json:"storeMicros"`
}

// A TotalSeries counts all requests of processes.
type TotalSeries struct {
	Series

	Degraded []uint32 `json:"degraded"`
}

// A RuleSeries counts the requests that a rule decided. Of a rule in shadow, Admitted are those
// that it would admit.
type RuleSeries struct {
	Rule    string `json:"rule"`
	Seconds Series `json:"seconds"`
	// Near counts, for each of the Seconds, requests that were admitted and left a client little of the limit; nil is
	// none.
	Near    []uint32 `json:"near,omitempty"`
	Minutes *Series  `json:"minutes,omitempty"`
}

// Stats answer PathStats.
type Stats struct {
	// that of Totals, Rules and Changes, which is the process
	Scope   string        `json:"scope"`
	Process string        `json:"process"`
	At      stint.Instant `json:"at"`
	Totals  Totals        `json:"totals"`
	Rules   []RuleSeries  `json:"rules"`
	// Others are the rules together that are not counted apart, as others are busier.
	Others  RuleSeries `json:"others"`
	Store   Store      `json:"store"`
	Changes []Change   `json:"changes"`
	All     Rates      `json:"all"` // of all processes
}

// Rates are requests per second, on average over the last 10 seconds.
type Rates struct {
	Scope     string  `json:"scope"`
	Processes int     `json:"processes"`
	Admitted  float64 `json:"admitted"`
	Denied    float64 `json:"denied"`
	Degraded  float64 `json:"degraded"`
}

// A Store says whether the process reaches its store.
type Store struct {
	State             string        `json:"state"` // up or unreachable
	Since             stint.Instant `json:"since,omitempty"`
	UnreachableShards int           `json:"unreachableShards,omitempty"`
	// Figures are told by the process that answers, of itself only.
	Figures *StoreFigures `json:"figures,omitempty"`
}

// StoreFigures tell how the store does. Counts are since the process, or the server, started.
type StoreFigures struct {
	// Scope is that of UsedBytes, MaxBytes and Evictions: all, of a Redis that processes share, or process, of its own
	// memory.
	Scope     string `json:"scope"`
	UsedBytes int64  `json:"usedBytes"` // 0 is not known
	MaxBytes  int64  `json:"maxBytes"`  // 0 is no bound
	Evictions int64  `json:"evictions"`
	// Calls are this process's script calls, which decided Operations; DenialHits were denied without a call. A store in
	// memory has none.
	Calls      uint64 `json:"calls"`
	Operations uint64 `json:"operations"`
	DenialHits uint64 `json:"denialHits"`
}

// A Change is one of the store's state, up or unreachable, or of the rules, whose State is their
// revision.
type Change struct {
	Seq    uint64        `json:"seq"`
	At     stint.Instant `json:"at"`
	Kind   string        `json:"kind"` // store or rules
	State  string        `json:"state"`
	Shard  int           `json:"shard,omitempty"`
	Detail string        `json:"detail,omitempty"`
}

// A TopItem is a client of a rule with its requests: at most Count, and at least Count - Error.
type TopItem struct {
	Rule   string `json:"rule"`
	Client string `json:"client"`
	Count  int64  `json:"count"`
	Error  int64  `json:"error"`
}

// Counts are of requests. Degraded ones, which the failure policy decided, are among the others.
type Counts struct {
	Admitted     int64 `json:"admitted"`
	Denied       int64 `json:"denied"`
	ShadowDenied int64 `json:"shadowDenied"`
	Degraded     int64 `json:"degraded"`
}

// add adds others.
func (c *Counts) add(other Counts) {
	c.Admitted, c.Denied = c.Admitted+other.Admitted, c.Denied+other.Denied
	c.ShadowDenied, c.Degraded = c.ShadowDenied+other.ShadowDenied, c.Degraded+other.Degraded
}

// RuleCounts are of the requests that a rule decided. Its Degraded is 0.
type RuleCounts struct {
	Counts

	Rule string `json:"rule"`
	// Near is how many were admitted and left a client little of the limit.
	Near int64 `json:"near"`
	// DeniedClients is how many different clients were denied, at least: of each process, 100 of all rules are known.
	DeniedClients int64 `json:"deniedClients"`
}

// Top answers PathTop.
type Top struct {
	Scope     string `json:"scope"`
	Processes int    `json:"processes"`
	// the beginning and the end of what is counted
	From  stint.Instant `json:"from"`
	At    stint.Instant `json:"at"`
	Total Counts        `json:"total"`
	// Series are the requests of the last hour, in steps of 15 seconds that have ended in all processes.
	Series TotalSeries `json:"series"`
	// Rules are the 100 that denied most, of those that are among the 100 of a process that decided most.
	Rules   []RuleCounts `json:"rules"`
	Clients []TopItem    `json:"clients"`
	Denied  []TopItem    `json:"denied"`
	// ShadowDenied are those that rules in shadow would have denied most; Denied has none of it.
	ShadowDenied []TopItem `json:"shadowDenied"`
}

// A Denial is what a rule denied a client, and the last request that it denied. Seq numbers that one among those of its
// process, with those of rules in shadow.
type Denial struct {
	Process string        `json:"process"` // of the last
	Seq     uint64        `json:"seq"`
	First   stint.Instant `json:"first"`
	At      stint.Instant `json:"at"` // of the last
	Count   int64         `json:"count"`
	Rule    string        `json:"rule,omitempty"`
	Client  string        `json:"client,omitempty"`
	// of the last request, if the rule has classes
	Class  string `json:"class,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Limit is how many permits the limit has that denied the last request; 0 if it was none.
	Limit     int64  `json:"limit,omitempty"`
	LimitName string `json:"limitName,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	// Method, Path and RequestID are those of the last request, the path without its query.
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"`
	RequestID string `json:"requestId,omitempty"`
	// Attributes are those of the last request that rules name, up to 256 bytes of them, without API keys. Only for those
	// who are shown names.
	Attributes map[string]string `json:"attributes,omitempty"`
	// a rule in shadow would have denied
	Shadow bool `json:"shadow,omitempty"`
}

// Denials answer PathDenials: the pairs of rule and client that were denied, the last denial first.
type Denials struct {
	Scope     string `json:"scope"`
	Processes int    `json:"processes"` // that were asked
	// Silent are the names of those among them that did not answer in time.
	Silent []string `json:"silent,omitempty"`
	// Unasked says that only this process was asked, since the Redis that the processes share does not answer.
	Unasked bool `json:"unasked,omitempty"`
	// Kept is how many pairs the processes that answered have, whether or not they were wanted. Of what was denied after
	// From none is missing.
	Kept int64         `json:"kept"`
	From stint.Instant `json:"from"`

	Denials []Denial `json:"denials"`
	// More says that there are older ones. Counts of several processes may then be too low.
	More bool `json:"more"`
	// Next is what before has to be for those that follow; of one process only.
	Next uint64 `json:"next,omitempty"`
}

// Timeline answers PathTimeline.
type Timeline struct {
	Scope  string `json:"scope"` // the process
	Client string `json:"client"`
	// whether Decisions are all that the client did since Sample.From; else there are none
	Sampled bool   `json:"sampled"`
	Sample  Sample `json:"sample"`
	// Decisions are the last ones, the newest first.
	Decisions []Decision `json:"decisions"`
}

// Processes answer PathProcesses.
type Processes struct {
	Scope     string          `json:"scope"`
	Processes []ProcessStatus `json:"processes"`
}

// A ProcessStatus is a process with its rates.
type ProcessStatus struct {
	Process

	Self     bool          `json:"self"`
	At       stint.Instant `json:"at"` // when it said so
	Revision string        `json:"revision"`
	Store    Store         `json:"store"`
	Rates    Rates         `json:"rates"` // its own
}

// A Tick is the event "second" of PathEvents: what this process has done in the seconds that ended since the one
// before.
type Tick struct {
	Scope  string        `json:"scope"`
	At     stint.Instant `json:"at"`
	Totals Totals        `json:"totals"`
	Rules  []RuleSeries  `json:"rules"` // that decided something
	Store  Store         `json:"store"`
	// Denials are the pairs of rule and client that were denied meanwhile, as they are then, the newest; MoreDenials says
	// that there were more.
	Denials     []Denial `json:"denials"`
	MoreDenials bool     `json:"moreDenials"`
	Changes     []Change `json:"changes"`
}

// A Shared is the event "shared": what all processes know, each 2 seconds.
type Shared struct {
	Processes Processes     `json:"processes"`
	Top       Top           `json:"top"`
	Denials   SharedDenials `json:"denials"`
}

// SharedDenials are the last ones of all processes, the newest first.
type SharedDenials struct {
	Scope     string   `json:"scope"`
	Processes int      `json:"processes"`
	Denials   []Denial `json:"denials"`
}

// A Snapshot is the first event, "snapshot": all that the later ones add to.
type Snapshot struct {
	Stats   Stats    `json:"stats"`
	Denials []Denial `json:"denials"` // of this process
	Shared  Shared   `json:"shared"`
}
