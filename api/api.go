// Package api holds the REST API's wire types: what the service reads and writes,
// shared by the server and its clients. Durations come in whole seconds, rounded
// up, and in microseconds; instants in microseconds since the Unix epoch.
//
// Fields that are left out on the wire have the zero value here. The answers
// that are sent most, to checks, evaluations and reserves, are written by AppendJSON. Errors are a
// [Problem] each. openapi.yaml describes all of it for other languages.
package api

import (
	"fmt"
	"strconv"
)

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
