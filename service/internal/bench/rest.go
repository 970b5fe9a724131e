package bench

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
)

const (
	// maxRESTAnswer bounds what is read of an answer, in bytes.
	maxRESTAnswer = 64 << 10
	// restIdle is how long a connection is kept: less than by any server, so that no request meets one
	// that is being closed.
	restIdle = time.Second
)

// A rest asks the REST API, and leaves the machine's processors to the service: a connection has no
// goroutines, a request is one write, and of an answer only what an [Answer] has is decoded.
type rest struct {
	dial    func(ctx context.Context, network, addr string) (net.Conn, error)
	addr    string
	timeout time.Duration
	rule    string   // that has to decide; "" if a policy does
	owners  sync.Map // the first key of each client of the rule

	mu   sync.Mutex
	idle []*restConn // the one that was used last is the next
}

type restConn struct {
	net.Conn

	left   io.LimitedReader // what may still be read of an answer
	reader *bufio.Reader
	used   time.Time
}

// REST asks a service's REST API for n permits under a policy of it, by HTTP/1.1 and without a
// proxy. The base is a URL of http or https. The token may be "".
func REST(base *url.URL, token, policy string, n int64, timeout time.Duration) (_ Target, closing func()) {
	return ask(base, token, apipath.Check, "", timeout, func(key string) []byte {
		text, _ := json.Marshal(api.Request{Key: key, Policy: policy, Permits: n})
		return text
	})
}

// Rule is like REST, but the service's rules decide a request that is described, in which {key}
// stands for the key. Without an IP, each key has an address of its own. An answer is an error if
// another rule decided, or if keys share a client.
func Rule(
	base *url.URL, token, rule string, described api.EvaluateRequest, timeout time.Duration,
) (_ Target, closing func()) {
	described.IP, described.Wait = cmp.Or(described.IP, "{address}"), new(bool)
	text, _ := json.Marshal(described)
	return ask(base, token, apipath.Evaluate, rule, timeout, func(key string) []byte {
		return []byte(strings.NewReplacer("{key}", key, "{address}", addressOf(key)).Replace(string(text)))
	})
}

// addressOf is an address for a key that ends in -NUMBER, in a /64 of the documentation's (RFC 3849). The /64s of a run
// follow one another from where the prefix says, so that hardly any two runs share one.
func addressOf(key string) string {
	i := strings.LastIndexByte(key, '-')
	number, _ := strconv.ParseUint(key[i+1:], 10, 32)
	network := crc32.ChecksumIEEE([]byte(key[:i+1])) + uint32(number)
	return fmt.Sprintf("2001:db8:%x:%x::1", network>>16, network&0xffff)
}

// URL asks a handler that has a limit in front, by GET of a URL in which {key} stands for the key. A
// status of 200 to 299 is an admission, and 429 a denial.
func URL(at *url.URL, timeout time.Duration) (_ Target, closing func()) {
	r := newREST(at, timeout)
	path := strings.ReplaceAll(at.RequestURI(), "%7Bkey%7D", "{key}")
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, at.Host)
	return func(ctx context.Context, key string) (Answer, error) {
		status, text, err := r.send(ctx, []byte(strings.ReplaceAll(head, "{key}", url.PathEscape(key))))
		if err == nil && status/100 != 2 && status != http.StatusTooManyRequests {
			err = fmt.Errorf("status %d, %.100q", status, text)
		}
		return Answer{Allowed: status != http.StatusTooManyRequests}, err
	}, r.close
}

// ask asks the REST API, by POST of the body of each key to a path. The head is the same in all
// requests, so it is written once.
func ask(
	base *url.URL, token, path, rule string, timeout time.Duration, bodyOf func(string) []byte,
) (_ Target, closing func()) {
	request := http.Request{Header: http.Header{
		"Host": {base.Host}, "Accept": {"application/json"}, "Content-Type": {"application/json"},
	}}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	} else if base.User != nil {
		password, _ := base.User.Password()
		request.SetBasicAuth(base.User.Username(), password)
	}
	var head strings.Builder
	_, _ = fmt.Fprintf(&head, "POST /%s HTTP/1.1\r\n", strings.TrimPrefix(base.JoinPath(path).RequestURI(), "/"))
	_ = request.Header.Write(&head)
	r := newREST(base, timeout)
	r.rule = rule
	return func(ctx context.Context, key string) (Answer, error) {
		body := bodyOf(key)
		status, text, err := r.send(ctx, fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head.String(), len(body), body))
		if err != nil {
			return Answer{}, err
		}
		return r.answer(key, status, text)
	}, r.close
}

// newREST asks the server of a URL of http or https.
func newREST(at *url.URL, timeout time.Duration) *rest {
	dialer, port := &net.Dialer{}, "80"
	r := &rest{dial: dialer.DialContext, timeout: timeout}
	if at.Scheme == "https" {
		port, r.dial = "443", (&tls.Dialer{NetDialer: dialer, Config: &tls.Config{MinVersion: tls.VersionTLS12}}).DialContext
	}
	r.addr = net.JoinHostPort(at.Hostname(), cmp.Or(at.Port(), port))
	return r
}

// send sends a request, and returns the answer's status and body.
func (r *rest) send(ctx context.Context, request []byte) (status int, text []byte, err error) {
	c, err := r.take(ctx)
	if err != nil {
		return 0, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(r.timeout)) // if it fails, so does the rest
	response, text, err := c.exchange(request)
	if err != nil {
		_ = c.Close()
		return 0, nil, fmt.Errorf("no answer: %w", err)
	}
	r.give(c, response.Close)
	return response.StatusCode, text, nil
}

// exchange sends a request, once, and reads its answer.
func (c *restConn) exchange(request []byte) (response *http.Response, text []byte, err error) {
	if _, err = c.Write(request); err != nil {
		return nil, nil, err
	}
	c.left.N = maxRESTAnswer
	for response == nil || response.StatusCode < http.StatusOK { // 103 may come before the answer
		if response, err = http.ReadResponse(c.reader, nil); err != nil {
			return nil, nil, err
		}
		// this reads nothing from elsewhere, so there is nothing to close
		if text, err = io.ReadAll(response.Body); err != nil {
			return nil, nil, err
		}
	}
	return response, text, nil
}

// A restAnswer is what is read of an answer.
type restAnswer struct {
	At                int64
	Allowed, Degraded bool
	Key, Rule, Reason string
	Matched, Missing  []string
	api.Problem
}

// answer reads the body of an answer. 401 is a denial, too, if a rule says so.
func (r *rest) answer(key string, status int, text []byte) (Answer, error) {
	var said restAnswer
	err := json.Unmarshal(text, &said)
	denied := status == http.StatusTooManyRequests || status == http.StatusUnauthorized
	decided := err == nil && said.Title == "" && (status == http.StatusOK || denied) && said.Allowed != denied
	switch {
	case decided && r.rule != "":
		if err := r.check(key, &said); err != nil {
			return Answer{}, err
		}
		fallthrough
	case decided && said.At > 0:
		return Answer{stint.Instant(said.At), said.Allowed, said.Degraded}, nil
	case err == nil && said.Title != "":
		return Answer{}, &said.Problem
	}
	return Answer{}, fmt.Errorf("it does not answer like stint: status %d, %.100q", status, text)
}

// check reports why the answer is not by the rule's limits, for a client that is this key's alone.
func (r *rest) check(key string, said *restAnswer) error {
	decided := "no rule decided"
	if said.Rule != "" {
		decided = fmt.Sprintf("rule %q decided", said.Rule)
	}
	switch {
	case said.Rule != r.rule:
		return fmt.Errorf("%s, not %q; the rules that hold for the request are %q", decided, r.rule, said.Matched)
	case said.At == 0:
		return fmt.Errorf("%s without its limits: %s", decided,
			strings.Join(append([]string{said.Reason}, said.Missing...), " "))
	}
	if owner, _ := r.owners.LoadOrStore(said.Key, key); owner != key {
		return fmt.Errorf("rule %q counts the keys %s and %s as one client, %q", r.rule, owner, key, said.Key)
	}
	return nil
}

// take is an idle connection, or a new one.
func (r *rest) take(ctx context.Context) (*restConn, error) {
	r.mu.Lock()
	if last := len(r.idle) - 1; last >= 0 {
		c := r.idle[last]
		r.idle = r.idle[:last]
		if time.Since(c.used) < restIdle {
			r.mu.Unlock()
			return c, nil
		}
		_ = c.Close()
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	conn, err := r.dial(ctx, "tcp", r.addr)
	if err != nil {
		return nil, err
	}
	c := &restConn{Conn: conn, left: io.LimitedReader{R: conn}}
	c.reader = bufio.NewReader(&c.left)
	return c, nil
}

// give takes a connection back. One with more bytes than an answer is not used again.
func (r *rest) give(c *restConn, closes bool) {
	if closes || c.reader.Buffered() > 0 {
		_ = c.Close()
		return
	}
	c.used = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
}

func (r *rest) close() {
	for _, c := range r.idle {
		_ = c.Close()
	}
}
