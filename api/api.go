// Package api holds the REST API's wire types: what the service reads and writes,
// shared by the server and its clients. Durations come in whole seconds, rounded
// up, and in microseconds; instants in microseconds since the Unix epoch.
//
// Fields that are left out on the wire have the zero value here. The answers
// that are sent most, to checks, evaluations and reserves, are written by AppendJSON. Errors are a
// [Problem] each. openapi.yaml describes all of it for other languages.
package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
)

// Micros is a wait in microseconds; -1 for [stint.Never].
func Micros(wait time.Duration) int64 {
	if wait == stint.Never {
		return -1
	}
	return wait.Microseconds()
}

// A Request is the body of a check or a settlement, and the query of the others.
// Algorithm and Policy exclude each other. With neither, a check, a look at what
// remains and a settlement use TOKEN_BUCKET, and a reset clears everything.
type Request struct {
	// Key names the client that the limit applies to: 1 to 256 bytes of UTF-8 without control
	// characters. Default: "", the client's own address.
	Key string `json:"key,omitempty"`
	// Algorithm is the name of an algorithm, such as TOKEN_BUCKET.
	Algorithm string `json:"algorithm,omitempty"`
	// Policy is the name of a configured policy.
	Policy string `json:"policy,omitempty"`
	// Permits is the cost of a check, or of the check that a look at what remains asks about: 1 to the
	// limit's capacity. Default: 0, which is left out and means 1. For a settlement it is the amount
	// to charge (positive) or to refund (negative), and has no default. A reset has none.
	Permits int64 `json:"permits,omitempty"`
	// Keep is how many permits of each limit are left to others, who ask with a lower Keep: the request is
	// admitted as if the limit were so much lower. 0 to the limit's capacity. Default: 0. A settlement, the
	// end of a hold and a reset have none.
	Keep int64 `json:"keep,omitempty"`
}

// A CheckResponse is the answer to a check. Its limit fields are the deciding limit's.
type CheckResponse struct {
	Allowed bool `json:"allowed"`
	// Degraded says that a failure policy answered instead of the store. Then nothing
	// was counted, and Remaining is the limit itself.
	Degraded bool   `json:"degraded,omitempty"`
	Key      string `json:"key"`
	Policy   string `json:"policy,omitempty"`
	// Algorithm is the canonical name of the deciding limit's algorithm.
	Algorithm string `json:"algorithm"`
	// Limit is the capacity, of permits; Remaining what a request could still take at once, at Keep.
	// ResetAfter is how long until the limit is as if nothing had been taken.
	Limit             int64 `json:"limit"`
	Remaining         int64 `json:"remaining"`
	ResetAfterSeconds int64 `json:"resetAfterSeconds"`
	// RetryAfterSeconds and RetryAfterMicros are -1 if waiting does not help, because the cost is above
	// the limit.
	RetryAfterSeconds int64  `json:"retryAfterSeconds"`
	Message           string `json:"message"`
	ResetAfterMicros  int64  `json:"resetAfterMicros"`
	RetryAfterMicros  int64  `json:"retryAfterMicros"`
	// DelayMicros is how long to hold an admitted request so that output is even.
	DelayMicros int64 `json:"delayMicros"`
	// At is the store's time of the decision.
	At int64 `json:"at"`
	// Source is store, denial-cache, lease or failure-policy.
	Source string `json:"source"`
	// Reason is why a request is denied: limit, min_interval or never (the cost is above the limit, or
	// above what Keep leaves of it), and of an evaluation also banned, missing or default; "" of one
	// that is not.
	Reason string `json:"reason,omitempty"`
	// LimitName is the name of the deciding limit, if it has one.
	LimitName string `json:"limitName,omitempty"`
	// Details are the decisions of the single limits, in order. Default: nil; the query ?details=true
	// asks for them.
	Details []LimitDetails `json:"details,omitempty"`
}

// AppendJSON appends the response as encoding/json would write it without HTML
// escaping. It exists because checks are by far the most frequent requests.
func (c *CheckResponse) AppendJSON(text []byte) []byte {
	return append(c.appendMembers(text), '}')
}

// appendMembers appends the response without the brace at its end.
func (c *CheckResponse) appendMembers(text []byte) []byte {
	text = append(text, `{"allowed":`...)
	text = strconv.AppendBool(text, c.Allowed)
	if c.Degraded {
		text = append(text, `,"degraded":true`...)
	}
	text = appendString(append(text, `,"key":`...), c.Key)
	if c.Policy != "" {
		text = appendString(append(text, `,"policy":`...), c.Policy)
	}
	text = appendString(append(text, `,"algorithm":`...), c.Algorithm)
	text = appendInt(append(text, `,"limit":`...), c.Limit)
	text = appendInt(append(text, `,"remaining":`...), c.Remaining)
	text = appendInt(append(text, `,"resetAfterSeconds":`...), c.ResetAfterSeconds)
	text = appendInt(append(text, `,"retryAfterSeconds":`...), c.RetryAfterSeconds)
	text = appendString(append(text, `,"message":`...), c.Message)
	text = appendInt(append(text, `,"resetAfterMicros":`...), c.ResetAfterMicros)
	text = appendInt(append(text, `,"retryAfterMicros":`...), c.RetryAfterMicros)
	text = appendInt(append(text, `,"delayMicros":`...), c.DelayMicros)
	text = appendInt(append(text, `,"at":`...), c.At)
	return c.appendReason(appendString(append(text, `,"source":`...), c.Source))
}

// appendReason appends the members that are left out if they are empty, in the order of the type's
// fields.
func (c *CheckResponse) appendReason(text []byte) []byte {
	if c.Reason != "" {
		text = appendString(append(text, `,"reason":`...), c.Reason)
	}
	if c.LimitName != "" {
		text = appendString(append(text, `,"limitName":`...), c.LimitName)
	}
	if len(c.Details) > 0 {
		if details, err := json.Marshal(c.Details); err == nil { // it has no type that can fail
			text = append(append(text, `,"details":`...), details...)
		}
	}
	return text
}

// LimitDetails are one limit's part of a decision.
type LimitDetails struct {
	Name      string `json:"name,omitempty"`
	Algorithm string `json:"algorithm"`
	// Allowed says whether this limit alone would admit.
	Allowed   bool  `json:"allowed"`
	Limit     int64 `json:"limit"`
	Remaining int64 `json:"remaining"`
	// Used is Limit less Remaining: the permits that count against the limit now, rounded up, with
	// those of Keep.
	Used int64 `json:"used"`
	// QueueSize is the permits that a leaky bucket holds. Only of a leaky bucket, and not with Keep.
	QueueSize *int64 `json:"queueSize,omitempty"`
	// WindowStart is where the window of a window algorithm begins, in Unix microseconds: of a sliding
	// window counter the current one of its two, of a sliding window log a window before the decision.
	// 0 of a bucket.
	WindowStart int64 `json:"windowStart,omitempty"`
	// ResetAfterMicros and RetryAfterMicros are as in [CheckResponse]. GrowsAfterMicros is how long until Remaining
	// grows if nobody takes permits; 0 if nothing is used.
	ResetAfterMicros int64 `json:"resetAfterMicros"`
	RetryAfterMicros int64 `json:"retryAfterMicros"`
	GrowsAfterMicros int64 `json:"growsAfterMicros"`
	DelayMicros      int64 `json:"delayMicros"`
}

// An EvaluateRequest is the body of an evaluation: a request as rules see it. A field that is left
// out describes a request without it.
type EvaluateRequest struct {
	// Method is such as GET. Default: "", which only rules for any method match.
	Method string `json:"method,omitempty"`
	// Path is the path as it was sent, percent-encoded, beginning with a slash. A query is
	// ignored. Default: "", which is /.
	Path string `json:"path,omitempty"`
	// Host is the host of the request, with or without a port. Default: "", none.
	Host string `json:"host,omitempty"`
	// IP is the client's address, IPv4 or IPv6. Default: "", none; the caller's own address is not
	// used.
	IP string `json:"ip,omitempty"`
	// Headers are the header fields, in any case, each once. Default: none.
	Headers map[string]string `json:"headers,omitempty"`
	// Attributes are further facts. [AttributeUserID] and [AttributeAPIKey] identify the client, the
	// others are for rules that name them. The service reads an integer as its decimal text.
	// Default: none.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Set names the set whose rules alone decide, which needs a token. Default: "", the rules of all
	// sets.
	Set string `json:"set,omitempty"`
	// Wait says whether rules that wait hold the request. If false, they deny a request that would
	// have to wait. Default: nil, true.
	Wait *bool `json:"wait,omitempty"`
}

// The attributes that identify the client.
const (
	AttributeUserID = "userId"
	AttributeAPIKey = "apiKey"
)

// An EvaluateResponse is the answer to an evaluation. Key is the client that the rule that decided
// counts, and the limit fields are of the limit that did. If no limit was asked, Algorithm is "" and
// neither is on the wire. If a rule denies without asking its limits, RetryAfterSeconds and
// RetryAfterMicros are -1.
type EvaluateResponse struct {
	CheckResponse
	// Rule is the ID of the rule that decided; "" when none did.
	Rule string `json:"rule,omitempty"`
	// Class is the request's class, if the rule has classes.
	Class string `json:"class,omitempty"`
	// Via is by what the rule charged an admitted request: guaranteed, borrowed, limits or otherwise; "" of
	// a rule that has its own limits alone.
	Via string `json:"via,omitempty"`
	// Vias are the same of each rule that charges by one of several ways, by its ID, where Via does not say
	// all; those in shadow too. Where a rule can lend from several others it reads borrowed:ID. Default:
	// nil.
	Vias map[string]string `json:"vias,omitempty"`
	// Available is how many permits the limits have for the client, one after another, if nobody else takes any: of a
	// rule with several ways what they have together, where Remaining is of the way that was charged. Default: nil, of a
	// request without such a rule.
	Available *int64 `json:"available,omitempty"`
	// Matched are the IDs of the rules that hold for the request, by priority and ID.
	Matched []string `json:"matched"`
	// Exceeded are the limits that mark it, if it is admitted.
	Exceeded []Exceeded `json:"exceeded,omitempty"`
	// Shadowed are the IDs of the rules in shadow that would have denied it.
	Shadowed []string `json:"shadowed,omitempty"`
	// Missing are the parts of the rule's scope that the request lacks, if it is denied for that.
	Missing []string `json:"missing,omitempty"`
}

// AppendJSON appends the response. Without a limit, that is without an Algorithm, it leaves out the
// limit fields. Matched is always an array. The members are in the order of the fields of the type,
// and vias are sorted, so that equal answers are equal texts.
func (e *EvaluateResponse) AppendJSON(text []byte) []byte {
	if e.Algorithm != "" {
		text = e.appendMembers(text)
	} else {
		text = strconv.AppendBool(append(text, `{"allowed":`...), e.Allowed)
		if e.Degraded {
			text = appendString(append(text, `,"degraded":true,"source":`...), e.Source)
		}
		if !e.Allowed {
			text = appendInt(append(text, `,"retryAfterSeconds":`...), e.RetryAfterSeconds)
		}
		text = appendString(append(text, `,"message":`...), e.Message)
		if !e.Allowed {
			text = e.appendReason(appendInt(append(text, `,"retryAfterMicros":`...), e.RetryAfterMicros))
		}
	}
	if e.Rule != "" {
		text = appendString(append(text, `,"rule":`...), e.Rule)
	}
	if e.Class != "" {
		text = appendString(append(text, `,"class":`...), e.Class)
	}
	if e.Via != "" {
		text = appendString(append(text, `,"via":`...), e.Via)
	}
	if len(e.Vias) > 0 {
		text = append(text, `,"vias":{`...)
		for i, rule := range slices.Sorted(maps.Keys(e.Vias)) {
			if i > 0 {
				text = append(text, ',')
			}
			text = appendString(append(appendString(text, rule), ':'), e.Vias[rule])
		}
		text = append(text, '}')
	}
	if e.Available != nil {
		text = appendInt(append(text, `,"available":`...), *e.Available)
	}
	text = appendStrings(append(text, `,"matched":`...), e.Matched)
	if len(e.Exceeded) > 0 {
		text = append(text, `,"exceeded":[`...)
		for i := range e.Exceeded {
			if i > 0 {
				text = append(text, ',')
			}
			text = e.Exceeded[i].append(text)
		}
		text = append(text, ']')
	}
	if len(e.Shadowed) > 0 {
		text = appendStrings(append(text, `,"shadowed":`...), e.Shadowed)
	}
	if len(e.Missing) > 0 {
		text = appendStrings(append(text, `,"missing":`...), e.Missing)
	}
	return append(text, '}')
}

// MarshalJSON is AppendJSON for encoding/json.
func (e EvaluateResponse) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// Exceeded is a limit that marks an admitted request: the request does not fit it, or, with a RetryAfterMicros of 0, has
// used as much of it as its rule's mark_at says.
type Exceeded struct {
	// Rule is the ID of its rule, and LimitName what the limit is called.
	Rule      string `json:"rule"`
	LimitName string `json:"limitName,omitempty"`
	// Limit is how many permits it has.
	Limit int64 `json:"limit"`
	// RetryAfterMicros is how long until it would admit the request; -1 if it never does.
	RetryAfterMicros int64 `json:"retryAfterMicros"`
}

// append appends it as encoding/json would write it.
func (e *Exceeded) append(text []byte) []byte {
	text = appendString(append(text, `{"rule":`...), e.Rule)
	if e.LimitName != "" {
		text = appendString(append(text, `,"limitName":`...), e.LimitName)
	}
	text = appendInt(append(text, `,"limit":`...), e.Limit)
	return append(appendInt(append(text, `,"retryAfterMicros":`...), e.RetryAfterMicros), '}')
}

// A Rest is what a key has left of the limit that decides: on a denial the limit with the
// longest wait, otherwise the limit with the fewest permits left.
type Rest struct {
	Key    string `json:"key"`
	Policy string `json:"policy,omitempty"`
	// Algorithm is the canonical name of the limit's algorithm.
	Algorithm         string `json:"algorithm"`
	Limit             int64  `json:"limit"`
	Remaining         int64  `json:"remaining"`
	ResetAfterSeconds int64  `json:"resetAfterSeconds"`
	ResetAfterMicros  int64  `json:"resetAfterMicros"`
	// At is the store's time of the answer.
	At int64 `json:"at"`
}

// A RemainingResponse says what a key has left, and whether a check of the permits would be
// admitted. Nothing is taken. The fields after Rest are as in [CheckResponse].
// No failure policy answers.
type RemainingResponse struct {
	Rest
	Allowed           bool   `json:"allowed"`
	RetryAfterSeconds int64  `json:"retryAfterSeconds"`
	RetryAfterMicros  int64  `json:"retryAfterMicros"`
	DelayMicros       int64  `json:"delayMicros"`
	Source            string `json:"source"`
	// Details are as in [CheckResponse].
	Details []LimitDetails `json:"details,omitempty"`
}

// A SettleResponse says what a settlement changed and what is left after it.
type SettleResponse struct {
	Rest
	// Applied is the permits charged (positive) or refunded (negative).
	Applied int64 `json:"applied"`
}

// A SettleRulesRequest is the body of a settlement of a request that rules decided. Its Wait is not
// sent.
type SettleRulesRequest struct {
	EvaluateRequest
	// Permits are charged if positive, and refunded if negative.
	Permits int64 `json:"permits"`
	// Via and Vias are what the evaluation answered: by what rules with several ways charged the request.
	// Via is of those that Vias does not name. Default: none, for rules without ways.
	Via  string            `json:"via,omitempty"`
	Vias map[string]string `json:"vias,omitempty"`
}

// A SettleRulesResponse is the answer to a settlement of a request that rules decided. Rest is of the limit that
// changed least. Rest is nil, and Rule is "", if no limit was settled.
type SettleRulesResponse struct {
	*Rest
	Rule string `json:"rule,omitempty"`
	// Matched are the IDs of the rules that hold for the request, by priority and ID.
	Matched []string `json:"matched"`
	// Applied is the permits charged (positive) or refunded (negative).
	Applied int64 `json:"applied"`
}

// A HoldRequest is the body of a reserve, a commit or a cancel of a key. A commit and a cancel name the claim that was
// reserved.
type HoldRequest struct {
	Request
	// ID identifies the hold: 1 to 128 printable characters of ASCII, made by the caller.
	ID string `json:"id"`
	// TTL is for how long it lives, as a duration of 1s to 1h; in a commit the reserve's, which ExpiresAt
	// goes with. Default: "", a minute.
	TTL string `json:"ttl,omitempty"`
	// OnExpiry is release or keep: what becomes of what is held when the hold expires. Default: "",
	// release.
	OnExpiry string `json:"onExpiry,omitempty"`
	// ExpiresAt is, in a commit, what the last reserve answered, so that a hold that the store has lost is
	// charged. Default: 0, not known.
	ExpiresAt int64 `json:"expiresAt,omitempty"`
}

// A ReserveResponse is the answer to a reserve: of a key as to a check, of a request as to an
// evaluation.
type ReserveResponse struct {
	EvaluateResponse
	ID string `json:"id"`
	// ExpiresAt is when the hold expires unless it is renewed or ends, in Unix microseconds; 0 if
	// nothing is held.
	ExpiresAt int64 `json:"expiresAt"`
	// Replayed says that the hold was there before.
	Replayed bool `json:"replayed"`
	// Lost says of a denied one that it had expired or was reset: nothing is held any more.
	Lost bool `json:"lost"`
}

// AppendJSON appends the response: as that of a check if nothing is said of rules.
func (r *ReserveResponse) AppendJSON(text []byte) []byte {
	if r.Matched == nil {
		text = r.CheckResponse.AppendJSON(text)
	} else {
		text = r.EvaluateResponse.AppendJSON(text)
	}
	text = appendString(append(text[:len(text)-1], `,"id":`...), r.ID)
	text = appendInt(append(text, `,"expiresAt":`...), r.ExpiresAt)
	text = strconv.AppendBool(append(text, `,"replayed":`...), r.Replayed)
	text = strconv.AppendBool(append(text, `,"lost":`...), r.Lost)
	return append(text, '}')
}

// A HoldEndResponse is the answer to a commit or a cancel. Rest is of the limit with the fewest
// permits left.
type HoldEndResponse struct {
	*Rest
	// Rule and Matched are of a request that rules decided, as in [SettleRulesResponse].
	Rule    string   `json:"rule,omitempty"`
	Matched []string `json:"matched,omitempty"`
	ID      string   `json:"id"`
	// Applied is what was charged beyond what was held (positive), or came back of it (negative).
	Applied int64 `json:"applied"`
	// Late says that the hold had expired, or was lost, so that its cost was charged now.
	Late bool `json:"late"`
	// Replayed says that it had ended in the same way before.
	Replayed bool `json:"replayed"`
	// Reset says that some of what was held was reset before it expired: of that nothing moved.
	Reset bool `json:"reset"`
}

// A ResetResponse confirms a reset of the key under Policy or Algorithm, or with neither, under
// everything.
type ResetResponse struct {
	Key       string `json:"key"`
	Policy    string `json:"policy,omitempty"`
	Algorithm string `json:"algorithm,omitempty"`
	Reset     bool   `json:"reset"`
}

// A Problem says why a request was not served (RFC 9457). It is an error.
type Problem struct {
	// Type identifies the kind of problem. "about:blank" means that there is no more to know than
	// the status.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail names the parameter at fault, its value and the allowed values.
	Detail string `json:"detail"`
}

// Error reads "400 Bad Request: key is empty; …".
func (p *Problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Title, p.Detail) }
