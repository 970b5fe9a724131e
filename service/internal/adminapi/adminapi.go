// Package adminapi has the wire types of the administration of rules: what the admin listener answers
// and the command line reads. openapi.yaml of package admin describes them for others.
//
// Field names are in camel case, as in the API for checks; documents of rules within them have the
// names of files, in snake case, and are kept as raw JSON, so that neither side has to know all of
// a rule's parameters. Times are RFC 3339.
package adminapi

import (
	"encoding/json"
	"time"
)

// The paths of the administration of rules, on the admin listener.
const (
	PathResetAll      = "/api/v1/reset"
	PathRules         = "/api/v1/rules"
	PathRuleRevisions = "/api/v1/rule-revisions"
)

// HeaderRevision is the header field with the rules' revision that an answer is about.
const HeaderRevision = "X-Stint-Revision"

// A RuleList is some of the rules of a revision, by ID.
type RuleList struct {
	// Revision counts the edits from 1. It is 0 before the first edit, and if rules can't be edited
	// here.
	Revision int64 `json:"revision"`
	// At is the time of the revision. It is left out if Revision is 0.
	At    time.Time         `json:"at,omitzero"`
	Rules []json.RawMessage `json:"rules"`
	// Next is the last ID of a page after which more follow.
	Next string `json:"next,omitempty"`
}

// RuleStatistics counts the rules of a revision.
type RuleStatistics struct {
	// Revision is as in RuleList.
	Revision int64 `json:"revision"`
	// Total is Enabled and Disabled together.
	Total    int `json:"total"`
	Enabled  int `json:"enabled"`
	Disabled int `json:"disabled"`
	// Shadow is how many of the enabled rules are in shadow by their on_exceed.
	Shadow int `json:"shadow"`
	// Sets is how many different sets rules name.
	Sets int `json:"sets"`
	// LastChange is left out if there was none: before the first revision, and before rules were read.
	LastChange *RuleChangeTime `json:"lastChange,omitempty"`
}

// A RuleChangeTime says when rules changed.
type RuleChangeTime struct {
	// At is the time of the newest revision. Of rules that are not kept in a store, it is the time when this process
	// last loaded them, whether or not they differed.
	At time.Time `json:"at"`
	// By is the author of the revision. Default: "", unknown, or there are no revisions.
	By string `json:"by,omitempty"`
}

// An OverrideList is the overrides of a rule, in the rule's order.
type OverrideList struct {
	Revision  int64             `json:"revision"`
	Rule      string            `json:"rule"`
	Overrides []json.RawMessage `json:"overrides"`
}

// RuleChanges are the IDs of the rules that differ. Each list is sorted.
type RuleChanges struct {
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Changed []string `json:"changed"`
}

// An Edited is the answer to an edit of all rules.
type Edited struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at,omitzero"`
	RuleChanges
}

// A Validation says whether rules could be enforced, and what they would change.
type Validation struct {
	Valid bool `json:"valid"`
	// Rules is how many there are, and Enabled how many of them are enabled.
	Rules   int         `json:"rules"`
	Enabled int         `json:"enabled"`
	Faults  []RuleFault `json:"faults,omitempty"`
	// Warnings tell of valid rules what has no effect, or another than may be meant.
	Warnings []string `json:"warnings,omitempty"`
	// RuleChanges compare valid rules with those in force.
	*RuleChanges
}

// A RuleFault is one thing that is wrong with a document of rules.
type RuleFault struct {
	// Line and Column count from 1. 0 is the document as a whole.
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Rule   string `json:"rule,omitempty"`
	Detail string `json:"detail"`
}

// An Explanation shows how the rules would decide a request. Nothing is taken.
type Explanation struct {
	// Path is the request's path as it was matched.
	Path string `json:"path"`
	// Allowed, Rule and Why are the verdict, the rule that decides and the reason in words.
	Allowed  bool   `json:"allowed"`
	Degraded bool   `json:"degraded,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Why      string `json:"why"`
	// Reason is as in api.CheckResponse.
	Reason string `json:"reason,omitempty"`
	// RetryAfterSeconds and RetryAfterMicros are as in api.CheckResponse.
	RetryAfterSeconds int64           `json:"retryAfterSeconds"`
	RetryAfterMicros  int64           `json:"retryAfterMicros"`
	Rules             []ExplainedRule `json:"rules"`
}

// A ClientExplanation says what a client has left under each rule that can count it.
type ClientExplanation struct {
	// Client is the client as overrides name it.
	Client string          `json:"client"`
	Rules  []ExplainedRule `json:"rules"`
}

// An ExplainedRule is a rule that matches, and its own decision about the request.
type ExplainedRule struct {
	Rule string `json:"rule"`
	// Outcome is limited, skipped, unlimited, banned, lacking or included.
	Outcome string `json:"outcome"`
	// By is the rule that decides within this one's limits. Only if Outcome is included.
	By string `json:"by,omitempty"`
	// Class is the request's class, if the rule has classes.
	Class string `json:"class,omitempty"`
	// OnExceed is reject, wait, shadow or mark.
	OnExceed string `json:"onExceed"`
	// Allowed says whether the rule alone would admit the request.
	Allowed bool `json:"allowed"`
	// Key is the client that the rule counts, and Cost the permits that it takes. Only if Outcome is
	// limited.
	Key    string           `json:"key,omitempty"`
	Cost   int64            `json:"cost,omitempty"`
	Limits []ExplainedLimit `json:"limits,omitempty"`
	// Ways are the ways to charge the request, in the order in which they are tried: the first that is allowed is charged.
	// Default: none, all limits have to admit.
	Ways []ExplainedWay `json:"ways,omitempty"`
	// Available is how many permits all ways have together, for requests of one permit each. Default: nil, of a rule with
	// one way.
	Available *int64 `json:"available,omitempty"`
	// Holds is what is held of the client's permits, the next to expire first; at most 100 of each
	// limit.
	Holds []LiveHold `json:"holds,omitempty"`
	// ByReserve says that only a reserve is decided by the rule, as it has a concurrency limit or count.
	ByReserve bool `json:"byReserve,omitempty"`
	// Error is the fault of the cost that the request names. Only of a rule in shadow.
	Error string `json:"error,omitempty"`
}

// An ExplainedWay is one way to charge a request by a rule.
type ExplainedWay struct {
	// Via is guaranteed, borrowed, limits or otherwise; "" of the rule's own limits where there is no
	// other way.
	Via string `json:"via,omitempty"`
	// Allowed says whether all of its limits admit, which are those with its number.
	Allowed bool `json:"allowed"`
	// Why says in words why it denies.
	Why string `json:"why,omitempty"`
}

// An ExplainedLimit is one limit of a rule, and the client's state under it.
type ExplainedLimit struct {
	Name string `json:"name,omitempty"`
	// Way is the number of its way, from 1; 0 if the rule has none.
	Way int `json:"way,omitempty"`
	// Via is by what a request is charged that takes of it, of a client and of a way.
	Via string `json:"via,omitempty"`
	// Rule is the rule whose limit it is, and Key the client that it counts, where they are others
	// than the rule's.
	Rule string `json:"rule,omitempty"`
	Key  string `json:"key,omitempty"`
	// Keep is how many permits of it the request leaves to others.
	Keep              int64  `json:"keep,omitempty"`
	Algorithm         string `json:"algorithm"`
	Allowed           bool   `json:"allowed"`
	Limit             int64  `json:"limit"`
	Remaining         int64  `json:"remaining"`
	ResetAfterSeconds int64  `json:"resetAfterSeconds"`
	ResetAfterMicros  int64  `json:"resetAfterMicros"`
	// RetryAfterSeconds and RetryAfterMicros are -1 if waiting does not help.
	RetryAfterSeconds int64 `json:"retryAfterSeconds"`
	RetryAfterMicros  int64 `json:"retryAfterMicros"`
}

// A LiveHold is what a hold has under one limit.
type LiveHold struct {
	ID string `json:"id"`
	// Limit is its place in Limits, from 0.
	Limit   int   `json:"limit"`
	Permits int64 `json:"permits"`
	// ExpiresAt is in microseconds since the Unix epoch.
	ExpiresAt int64 `json:"expiresAt"`
}

// A DroppedHold is the answer to ending a hold that is stuck.
type DroppedHold struct {
	ID string `json:"id"`
	// Rules and Policies are those of which it held anything. The policies of defaults are their
	// algorithms.
	Rules    []string `json:"rules,omitempty"`
	Policies []string `json:"policies,omitempty"`
}

// A RuleRevisionList is some of the revisions of the rules, the newest first.
type RuleRevisionList struct {
	Revisions []RuleRevision `json:"revisions"`
	// Next is the value of before= for the next page. 0 is none.
	Next int64 `json:"next,omitempty"`
	// RulesFrom says where rules come from that have no revisions, such as "the files of /etc/stint/rules". Default: "",
	// they have.
	RulesFrom string `json:"rulesFrom,omitempty"`
}

// A RuleRevision describes a revision without its rules.
type RuleRevision struct {
	Revision int64 `json:"revision"`
	// At is the time of the edit.
	At      time.Time `json:"at"`
	By      string    `json:"by,omitempty"`
	Action  string    `json:"action,omitempty"`
	Comment string    `json:"comment,omitempty"`
	// Rules is how many rules it has, and Bytes their size as the store writes them before it
	// compresses them.
	Rules int   `json:"rules"`
	Bytes int64 `json:"bytes"`
}

// A RuleRevisionDiff is a revision with the rules that it changed.
type RuleRevisionDiff struct {
	RuleRevision
	// Since is the revision that it is compared with, 0 for none.
	Since int64 `json:"since"`
	// Changes are by ID.
	Changes []RuleChange `json:"changes"`
}

// A RuleChange is one rule that differs.
type RuleChange struct {
	ID string `json:"id"`
	// Before and After are the rule before and after. Before is left out of an added rule, After of a
	// removed one.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// A ClientReset is the answer to the reset of one client of a rule.
type ClientReset struct {
	Rule string `json:"rule"`
	// Key is the client as the rule counts it. An API key is hashed.
	Key   string `json:"key"`
	Reset bool   `json:"reset"`
}

// ResetDone is the state of a [RuleReset] that was carried out.
const ResetDone = "done"

// A RuleReset is the answer to the reset of all clients of a rule, or of everything.
type RuleReset struct {
	// Rule is "" of everything.
	Rule string `json:"rule,omitempty"`
	By   string `json:"by,omitempty"`
	// State is [ResetDone]. A reset that was not carried out is a problem instead.
	State     string    `json:"state"`
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt"`
}
