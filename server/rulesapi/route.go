package rulesapi

import (
	"net/http"
	"net/url"
	"strings"
)

// A Call is what a request asks for. It serves one request.
type Call struct {
	// Action is what it does, such as "create", or "list".
	Action string
	// Rule is the ID of the rule that it is about; "" is none of them, or all.
	Rule string
	// Changes says that it changes something: rules, or the state of clients.
	Changes bool

	api    *API
	serve  func(*Call) error
	client string // as overrides name it
	number int64  // of a version, 0 if none can have it

	w       http.ResponseWriter
	r       *http.Request
	query   query
	caller  Caller
	shown   string // the client as the audit names it
	version int64
	outcome string
	release func() // of the body; nil is nothing
}

// A method is what a path does when it is asked by one.
type method struct {
	name, action string
	serve        func(*Call) error
	changes      bool
}

// A path is one of the API's, of segments: {} stands for any one.
type path struct {
	segments string
	methods  []method
}

// paths are all of them. Of two that a request's path is like, the first that knows the method
// counts: a rule may be called validate.
var paths = []path{
	{"rules/validate", []method{{"POST", "validate", (*Call).validate, false}}},
	{"rules/explain", []method{{"POST", "explain", (*Call).explain, false}}},
	{"rules", []method{
		{"GET", "list", (*Call).list, false},
		{"PUT", "replace_all", (*Call).replaceAll, true},
		{"POST", "create", (*Call).create, true},
	}},
	{"rules/{rule}", []method{
		{"GET", "get", (*Call).get, false},
		{"PUT", "put", (*Call).put, true},
		{"PATCH", "patch", (*Call).patch, true},
		{"DELETE", "delete", (*Call).remove, true},
	}},
	{"rules/{rule}/overrides", []method{{"GET", "list_overrides", (*Call).listOverrides, false}}},
	{"rules/{rule}/overrides/{client}", []method{
		{"GET", "get_override", (*Call).getOverride, false},
		{"PUT", "put_override", (*Call).putOverride, true},
		{"DELETE", "delete_override", (*Call).removeOverride, true},
	}},
	{"rules/{rule}/reset", []method{{"POST", "reset", (*Call).reset, true}}},
	{"rule-versions", []method{{"GET", "list_versions", (*Call).listVersions, false}}},
	{"rule-versions/{number}", []method{{"GET", "get_version", (*Call).getVersion, false}}},
	{"rule-versions/{number}/rollback", []method{{"POST", "rollback", (*Call).rollback, true}}},
}

const prefix = "/api/v1/"

// Route finds what a request asks for. The error is a [*Refusal]: nothing is there, or not by
// the request's method.
func (a *API) Route(r *http.Request) (*Call, error) {
	rest, ours := strings.CutPrefix(r.URL.EscapedPath(), prefix)
	if !ours {
		return nil, noPath(r.URL.Path)
	}
	name := r.Method
	if name == http.MethodHead {
		name = http.MethodGet
	}
	var allowed []string
	for i := range paths {
		c := &Call{api: a}
		if !c.is(strings.Split(paths[i].segments, "/"), strings.Split(rest, "/")) {
			continue
		}
		for _, m := range paths[i].methods {
			if m.name == name {
				c.Action, c.serve, c.Changes = m.action, m.serve, m.changes
				return c, nil
			}
			if allowed = append(allowed, m.name); m.name == http.MethodGet {
				allowed = append(allowed, http.MethodHead)
			}
		}
	}
	if allowed == nil {
		return nil, noPath(r.URL.Path)
	}
	return nil, badMethod(r.Method, strings.Join(allowed, ", "))
}

// is reports whether the segments of a request's path are those of one of the API's, and takes
// what they name.
func (c *Call) is(want, came []string) bool {
	if len(want) != len(came) {
		return false
	}
	for i := range want {
		text, err := url.PathUnescape(came[i])
		if err != nil {
			return false
		}
		switch want[i] {
		case "{rule}":
			c.Rule = text
		case "{client}":
			c.client = text
		case "{number}":
			if c.number, err = parseNumber(text); err != nil {
				return false
			}
		case came[i]:
			continue
		default:
			return false
		}
		if text == "" {
			return false
		}
	}
	return true
}
