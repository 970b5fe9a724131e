package fiberlimit

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/gofiber/fiber/v3"

	"github.com/stint-go/stint/httplimit"
)

// An exchange is a request in net/http's form, and the way back of its answer. One that is used
// again saves its allocations.
type exchange struct {
	header http.Header // of the request
	text   []byte      // of the header
	ends   []int       // of the names and values in it
	lines  []string    // the values
	answer answer
}

func newExchange() *exchange {
	return &exchange{header: http.Header{}, answer: answer{header: http.Header{}}}
}

// begin asks the limit, and writes what it has to say into the response. The rest is as of
// [httplimit.Middleware.Begin]. The admitted request's fields are written into fiber's response
// before its handlers run, which may then replace them.
func (e *exchange) begin(
	limit *httplimit.Middleware, c fiber.Ctx,
) (r *http.Request, end func(status int), admitted bool) {
	e.answer.c = c
	r, end, admitted = limit.Begin(&e.answer, e.request(c))
	if !e.answer.written {
		e.answer.writeFields() // fiber has the status and the body already
	}
	return r, end, admitted
}

// request is what net/http would say of fiber's request. Nothing of it is fiber's memory, which is
// used again when the request is over.
func (e *exchange) request(c fiber.Ctx) *http.Request {
	e.readHeader(c)
	r := &http.Request{
		Method:     strings.Clone(c.Method()),
		URL:        pathOf(c),
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     e.header,
		Body:       http.NoBody,
		Host:       string(c.Request().Host()),
		RequestURI: string(c.Request().RequestURI()),
	}
	if peer := c.RequestCtx().RemoteAddr(); peer != nil {
		r.RemoteAddr = peer.String()
	}
	return r.WithContext(withContext(c))
}

// pathOf is the path as fiber routes it, and the query. A path that can't be unescaped stays as it
// is, for rules to judge.
func pathOf(c fiber.Ctx) *url.URL {
	config := c.App().Config()
	u := &url.URL{Path: strings.Clone(c.Path()), RawQuery: string(c.Request().URI().QueryString())}
	if !config.UnescapePath {
		if path, err := url.PathUnescape(u.Path); err == nil {
			u.RawPath, u.Path = u.Path, path
		}
	}
	if !config.CaseSensitive {
		u.RawPath, u.Path = strings.ToLower(u.RawPath), strings.ToLower(u.Path)
	}
	return u
}

// readHeader copies the header, all of its text at once. fasthttp hands out memory that it will
// overwrite, so that all of it is copied: into one string, of which names and values are parts.
func (e *exchange) readHeader(c fiber.Ctx) {
	for name, value := range c.Request().Header.All() {
		e.text = append(append(e.text, name...), value...)
		e.ends = append(e.ends, len(e.text)-len(value), len(e.text))
	}
	text, start := string(e.text), 0
	for i := 0; i < len(e.ends); i += 2 {
		name, value := text[start:e.ends[i]], text[e.ends[i]:e.ends[i+1]]
		start = e.ends[i+1]
		name = http.CanonicalHeaderKey(name)
		if name == "Host" { // which net/http keeps apart
			continue
		}
		if lines, again := e.header[name]; again {
			e.header[name] = append(lines, value)
			continue
		}
		e.lines = append(e.lines, value)
		n := len(e.lines)
		e.header[name] = e.lines[n-1 : n : n]
	}
}

// forget prepares the exchange for the next request. Maps and slices keep their memory; what they
// refer to is let go.
func (e *exchange) forget() {
	clear(e.header)
	clear(e.lines)
	clear(e.answer.header)
	e.text, e.ends, e.lines = e.text[:0], e.ends[:0], e.lines[:0]
	e.answer.c, e.answer.written = nil, false
}

// An answer is fiber's response as net/http writes it.
type answer struct {
	c       fiber.Ctx
	header  http.Header
	written bool // whether the status is
}

// Header is what will be in the response beside what fiber has there.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader writes the status and the fields, once.
func (a *answer) WriteHeader(status int) {
	if a.written || status < http.StatusOK {
		return
	}
	a.written = true
	a.writeFields()
	a.c.Response().ResetBody()
	a.c.Status(status)
}

// Write appends to the body.
func (a *answer) Write(text []byte) (int, error) {
	if !a.written {
		a.WriteHeader(http.StatusOK)
	}
	a.c.Response().AppendBody(text)
	return len(text), nil
}

// writeFields puts the header into fiber's, where it replaces fields of the same names.
func (a *answer) writeFields() {
	header := &a.c.Response().Header
	for name, lines := range a.header {
		for i, line := range lines {
			if i == 0 {
				header.Set(name, line)
			} else {
				header.Add(name, line)
			}
		}
	}
}
