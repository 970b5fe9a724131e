package api

import (
	"encoding/json"
	"strconv"
)

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
	// above what Keep leaves of it), and of an evaluation also blocked, banned, missing or default; "" of
	// one that is not.
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
