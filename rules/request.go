package rules

import (
	"maps"
	"net/http"
	"net/url"
)

// A Request is what rules know of a request. Its strings are compared as they are, but for
// Host and Path. The zero value is a request for / that lacks everything.
type Request struct {
	// Method is such as GET.
	Method string
	// Host is the name that was asked for, with or without a port.
	Host string
	// Path is the path as it was sent, percent-encoded; a query is left out of account.
	// Default: "", which is /.
	Path string
	// Header is the request's header, with canonical names. Default: none.
	Header http.Header
	// Address is the client's address as a key, as clientip.Resolver.Key returns it: overrides and
	// resets know clients by address in that form only. A value of another form, such as the name of a
	// network, is an attribute. Default: "", which is none.
	Address string
	// User is the authenticated user. Default: "", unknown.
	User string
	// APIKey is the key that the request showed. Default: "", none.
	APIKey string
	// Attributes are further facts by name. Default: none.
	Attributes map[string]string
}

// SetDefault gives the request an attribute, unless it has one of that name. It replaces the map of attributes by a copy,
// since other requests may share it.
func (r *Request) SetDefault(attribute, value string) {
	if _, there := r.Attributes[attribute]; there {
		return
	}
	attributes := map[string]string{attribute: value}
	maps.Copy(attributes, r.Attributes)
	r.Attributes = attributes
}

// FromHTTP describes a request to an HTTP server, without the client.
func FromHTTP(r *http.Request) Request {
	return Request{Method: r.Method, Host: r.Host, Path: sentPath(r.URL), Header: r.Header}
}

// sentPath is the path as it was sent: URL.EscapedPath writes one anew in which a byte should have been encoded, and
// %2F in it becomes a slash, which it is not to a router that reads URL.RawPath.
func sentPath(u *url.URL) string {
	if u.RawPath != "" {
		if path, err := url.PathUnescape(u.RawPath); err == nil && path == u.Path {
			return u.RawPath
		}
	}
	return u.EscapedPath()
}
