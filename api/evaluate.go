package api

import (
	"maps"
	"slices"
	"strconv"
)

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

// Exceeded is a limit that marks an admitted request: the request does not fit it, or, with a RetryAfterMicros of 0,
// has used as much of it as its rule's mark_at says.
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
