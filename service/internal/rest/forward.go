package rest

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// The header fields in which proxies say what they were asked, as http.Header keeps them. A proxy
// has one set of them: those of Traefik and Caddy, those that nginx is configured to send, or those that
// ingress-nginx has it send, where the URL has the host and the URI.
const (
	forwardedMethod = "X-Forwarded-Method"
	forwardedURI    = "X-Forwarded-Uri"
	forwardedHost   = "X-Forwarded-Host"
	originalMethod  = "X-Original-Method"
	originalURI     = "X-Original-Uri"
	originalURL     = "X-Original-Url"
)

// noCredentials is the challenge that RFC 9110, section 15.5.2, demands of a 401. No credentials
// help against a limit, and a scheme that clients know would make them ask for some; so this
// is one that none does.
var noCredentials = []string{"Stint-RateLimit"}

// deny writes the status of a denial.
func deny(w http.ResponseWriter, status int) {
	if status == http.StatusUnauthorized {
		w.Header()["Www-Authenticate"] = noCredentials
	}
	w.WriteHeader(status)
}

// forwardAuth tells a reverse proxy whether the request that it asks about is admitted by the rules
// that match it: 200, or the status of a denial, without a body. The peer has to be a trusted
// proxy: anybody else could ask in the name of any client, and take what is theirs.
func (s *Service) forwardAuth(w http.ResponseWriter, r *http.Request) error {
	if !s.clients.TrustsPeer(r.RemoteAddr) {
		return problem.Forbidden("peer %s is not in trusted_proxies; allowed: proxies whose address is there",
			problem.Short(r.RemoteAddr))
	}
	denied, err := denyStatus(r.URL.RawQuery)
	if err != nil {
		return err
	}
	size := 0
	for _, name := range []string{forwardedURI, originalURI, originalURL} {
		size += len(r.Header.Get(name))
	}
	cost := capacity.CostOf(1, size)
	return s.withEvaluation(r, cost, func(r *http.Request, e *evaluation) error {
		if err := s.readForwarded(e, r); err != nil {
			return err
		}
		if err := s.enforce(r.Context(), requestID(w), e); err != nil {
			return err
		}
		s.describe(w.Header(), e)
		adapt.WriteExceeded(w.Header(), e.verdict.Exceeded)
		if !e.verdict.Allowed {
			if e.verdict.Unauthenticated() {
				denied = http.StatusUnauthorized
			}
			deny(w, denied)
		}
		return nil
	})
}

// denyStatus reads the query, which may say with which status a request is denied. nginx's
// auth_request passes on 401 and 403 alone and makes a 500 of all else, so that there a denial has
// to be one of these two.
func denyStatus(query string) (int, error) {
	switch query {
	case "", "deny_status=429":
		return http.StatusTooManyRequests, nil
	case "deny_status=403":
		return http.StatusForbidden, nil
	case "deny_status=401":
		return http.StatusUnauthorized, nil
	default:
		return 0, problem.BadRequest("the query is %q; allowed: none, or deny_status=401, "+
			"deny_status=403 or deny_status=429", problem.Short(query))
	}
}

// readForwarded reads what the proxy was asked, and by whom. The header is the proxy's request to
// this service, which has the client's fields, too, so that rules find credentials and header
// fields where they would in a middleware.
func (s *Service) readForwarded(e *evaluation, r *http.Request) (err error) {
	q := &e.request
	if q.Method, _, err = forwardedValue(r.Header, forwardedMethod, originalMethod); err != nil {
		return err
	}
	field := ""
	if q.Host, q.Path, field, err = forwardedTarget(r); err != nil {
		return err
	}
	if err := checkPath(field, q.Path); err != nil {
		return err
	}
	q.Header, q.Address = r.Header, s.clients.Key(r.RemoteAddr, r.Header)
	return readIdentity(&s.config.Identity, e, r.Header)
}

// readIdentity takes from the header who asks. An empty field is as good as none. A field that stands twice
// is an error: a proxy that adds to what a client sent would let the client choose.
func readIdentity(i *config.Identity, e *evaluation, header http.Header) (err error) {
	if e.request.User, err = single(header, i.User); err != nil {
		return err
	}
	if e.request.APIKey, err = single(header, i.APIKey); err != nil {
		return err
	}
	for attribute, field := range i.Attributes {
		value, err := single(header, field)
		if err != nil {
			return err
		}
		if value != "" {
			e.attributes[attribute] = value
		}
	}
	e.request.Attributes = e.attributes
	return nil
}

// forwardedTarget is the host and the URI that the proxy was asked for, and which field has the URI. A URL beside
// other fields has to say the same.
func forwardedTarget(r *http.Request) (host, uri, field string, err error) {
	url, err := single(r.Header, originalURL)
	if err != nil {
		return "", "", "", err
	}
	scheme, rest, _ := strings.Cut(url, "://")
	end := max(strings.IndexByte(rest, '/'), 0)
	if url != "" && (scheme != "http" && scheme != "https" || end == 0) {
		return "", "", "", stint.Invalid(originalURL, problem.Short(url), "a URL such as https://example.com/path")
	}
	host, uri, field = rest[:end], rest[end:], originalURL
	if url == "" || len(r.Header[forwardedURI])+len(r.Header[originalURI]) > 0 {
		if uri, field, err = forwardedValue(r.Header, forwardedURI, originalURI); err != nil {
			return "", "", "", err
		}
		if host, err = hostOf(r, field); err == nil && url != "" && rest != host+uri {
			err = problem.BadRequest("%s is %q beside %s %q of host %q; allowed: one of them, or the same in both", originalURL,
				problem.Short(url), field, problem.Short(uri), problem.Short(host))
		}
	}
	return host, uri, field, err
}

// forwardedValue is the value of the first of two fields that is there, and which it is. When both are, they
// have to say the same: a proxy that sets one of them passes the other on as the client
// wrote it, and which is which is not known here.
func forwardedValue(header http.Header, first, second string) (value, name string, err error) {
	value, err = single(header, first)
	if err != nil {
		return "", "", err
	}
	other, err := single(header, second)
	if err != nil {
		return "", "", err
	}
	switch {
	case value == "" && other == "":
		return "", "", problem.BadRequest("%s and %s are missing; allowed: one of them, from the proxy", first, second)
	case value == "":
		return other, second, nil
	case other != "" && other != value:
		return "", "", problem.BadRequest("%s is %q beside %s %q; allowed: one of them, or the same in both",
			first, problem.Short(value), second, problem.Short(other))
	default:
		return value, first, nil
	}
}

// single is the value of a field that may stand once, "" when it is not there or has no name. Two
// lines of one field are two opinions, of which one may be the client's.
func single(header http.Header, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	switch lines := header[name]; len(lines) {
	case 0:
		return "", nil
	case 1:
		return lines[0], nil
	default:
		return "", stint.Invalid(name, fmt.Sprintf("%d lines", len(lines)), "one line")
	}
}

// hostOf is the host that the proxy was asked for. nginx passes it on as the request's own, and
// X-Forwarded-Host as the client wrote it, which therefore counts only from a proxy that tells the
// URI in the same way.
func hostOf(r *http.Request, uriField string) (string, error) {
	if uriField == originalURI {
		return r.Host, nil
	}
	host, err := single(r.Header, forwardedHost)
	switch {
	case err != nil:
		return "", err
	case strings.Contains(host, ","):
		return "", stint.Invalid(forwardedHost, problem.Short(host), "one host")
	case host == "":
		return "", problem.BadRequest(forwardedHost + " is missing; allowed: the host, from the proxy")
	case len(r.Header[originalURI]) > 0 && host != r.Host: // one of the two ways is the client's, and which is not known
		return "", problem.BadRequest(
			"%s and %s tell the URI, and %s is %q beside Host %q; allowed: one of the two, or one host",
			forwardedURI, originalURI, forwardedHost, problem.Short(host), problem.Short(r.Host),
		)
	default:
		return host, nil
	}
}
