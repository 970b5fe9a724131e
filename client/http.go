package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/watchdog"
)

// maxAnswerBytes bounds what is read of an answer. The longest, to a batch of the
// longest keys, has about 1.2 MB.
const maxAnswerBytes = 4 << 20

// idleTimeout is how long a connection is kept between requests: shorter than the service keeps it,
// so that it is the client that lets go and no request meets a connection that is being closed.
const idleTimeout = 30 * time.Second

// errSilent says why a request was given up when its context had not ended.
var errSilent = watchdog.Late(errors.New("no answer in time"))

// newTransport makes the client's own connections. They speak HTTP/1.1: net/http sends a POST whose
// body can't be had again at most once on them, while HTTP/2 has refusals after which it does.
func newTransport(o *Options) *http.Transport {
	transport := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{KeepAlive: idleTimeout}).DialContext,
		MaxIdleConns:           o.MaxIdleConns,
		MaxIdleConnsPerHost:    o.MaxIdleConns,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // an answer is shorter than what says how it is packed
		Protocols:              new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	if o.TLS != nil {
		transport.TLSClientConfig = o.TLS.Clone()
	}
	return transport
}

// A call is one request of the API. The body is encoded as JSON; a call has a query or a body,
// never both.
type call struct {
	method, path string
	query        url.Values // nil: none
	body         any        // nil: none
	denial       bool       // whether 429 is an answer
}

// do sends the call once and decodes the answer. sound reports whether a service can give it.
func do[T any](
	ctx context.Context,
	c *Client,
	q call,
	what string,
	sound func(answer *T, ok bool) bool,
) (T, http.Header, error) {
	var answer, none T
	response, err := c.send(ctx, &q, &answer)
	if err == nil && !sound(&answer, response.StatusCode == http.StatusOK) {
		err = c.notStint(what)
	}
	if err != nil {
		return none, nil, err
	}
	return answer, response.Header, nil
}

// send sends the call once and decodes the answer. The response's body is closed. The timeout is
// the client's own, from here to the last byte of the answer; the caller's context may end sooner,
// and its error is told apart from the client's.
func (c *Client) send(ctx context.Context, q *call, answer any) (*http.Response, error) {
	if err := ctx.Err(); err != nil {
		return nil, c.noAnswer(ctx, ctx, err)
	}
	bounded, cancel := context.WithTimeoutCause(ctx, c.timeout, errSilent)
	defer cancel()
	request, err := c.request(bounded, q)
	if err != nil {
		return nil, c.unavailable(err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, c.noAnswer(ctx, bounded, err)
	}
	// Read to its end, it leaves the connection for the next; one that is too long or too
	// slow doesn't.
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, c.noAnswer(ctx, bounded, err)
	}
	return response, c.decode(response, text, q.denial, answer)
}

// request encodes the call.
func (c *Client) request(ctx context.Context, q *call) (*http.Request, error) {
	target := c.base.JoinPath(q.path)
	target.RawQuery = q.query.Encode()
	var body io.Reader
	if q.body != nil {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false) // a batch of the longest keys would outgrow what is read
		if err := encoder.Encode(q.body); err != nil {
			return nil, err
		}
		body = &text
	}
	request, err := http.NewRequestWithContext(ctx, q.method, target.String(), body)
	if err != nil {
		return nil, withoutURL(err)
	}
	request.GetBody = nil // nothing can send the body a second time
	request.Header.Set("Accept", "application/json")
	if q.body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

// decode decodes an answer, or returns the error that it stands for. What is neither an answer of
// the status that was asked for nor a problem comes from something in between, such as a proxy's
// page, or from a service that is none of stint's.
func (c *Client) decode(response *http.Response, text []byte, denial bool, answer any) error {
	if len(text) > maxAnswerBytes {
		return c.unavailable(fmt.Errorf("the answer, %s, is longer than %d bytes", response.Status, maxAnswerBytes))
	}
	media, _, _ := strings.Cut(response.Header.Get("Content-Type"), ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media == apipath.ProblemType {
		var problem api.Problem
		if json.Unmarshal(text, &problem) == nil {
			return c.refused(response.StatusCode, &problem)
		}
	}
	// A denial is 429, or 401 of a rule whose missing_status is that; a token that is not known is a
	// problem.
	known := response.StatusCode == http.StatusOK ||
		denial && (response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusUnauthorized)
	if media != "application/json" || !known || json.Unmarshal(text, answer) != nil {
		return c.notStint(clip.To(maxClip, fmt.Sprintf("%s, %q", response.Status, media)))
	}
	return nil
}
