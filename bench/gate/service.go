package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

const (
	checkPath    = "/api/v1/rate-limit/check?key=user:42&algorithm=TOKEN_BUCKET"
	evaluatePath = "/api/v1/rate-limit/evaluate"
	evaluateBody = `{"method":"GET","path":"/items/7","ip":"192.0.2.7"}`
)

// serviceConfig has a bucket of that size, and a rule.
func serviceConfig(bucket string) map[string]string {
	return map[string]string{
		"stint.yaml": "defaults:\n  token_bucket: " + bucket + "\nrules:\n" +
			"  - id: items\n    match: {methods: [GET], paths: [\"/items/{id}\"]}\n    scope: [per_ip]\n" +
			"    limits: [{algorithm: token_bucket, capacity: 1000000000, refill: 1000000000/1s}]\n",
	}
}

// Buckets of which every request is admitted, and of which all but the first are denied.
const (
	plenty = "{capacity: 1000000000, refill: 1000000000/1s}"
	none   = "{capacity: 1, refill: 1/24h}"
)

// check is checks of one client, on memory, by the default bucket.
func check(bucket string, status int) func(*rig) (*work, error) {
	return func(r *rig) (*work, error) {
		return r.requests(checkPath, status, serviceConfig(bucket), r.stint, serveArgs("--listen", procAddr)...)
	}
}

// serveArgs are the arguments of a service on memory, and more.
func serveArgs(more ...string) []string {
	return append([]string{"serve", "--store", "memory://", "--config", "stint.yaml"}, more...)
}

// evaluate is requests that a rule decides, on memory.
func evaluate(r *rig) (*work, error) {
	return r.requests(evaluatePath, http.StatusOK, serviceConfig(plenty), r.stint, serveArgs("--listen", procAddr)...)
}

// httpCallers is how many connections there are, each with one request at a time.
const httpCallers = 64

// requests starts a server, and is the work of asking it for a path, by GET; for evaluatePath by POST
// of evaluateBody. Each answer must have the status.
func (r *rig) requests(
	path string, status int, files map[string]string, program string, args ...string,
) (*work, error) {
	server, err := start(r.ctx, files, program, args...)
	if err != nil {
		return nil, err
	}
	request := "GET " + path + " HTTP/1.1\r\nHost: " + server.addr + "\r\n\r\n"
	if path == evaluatePath {
		request = fmt.Sprintf(
			"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, server.addr, len(evaluateBody), evaluateBody,
		)
	}
	conns, err := dial(r, server.addr, httpCallers)
	if err != nil {
		server.stop()
		return nil, err
	}
	// The client has no more than it must: what it costs is not measured, but takes from the same processors.
	w := &work{callers: httpCallers, server: server.id(), close: func() { conns.close(); server.stop() }}
	w.op = func(caller, _ int) error { return conns[caller].ask(request, status) }
	if err := conns[0].ask(request, http.StatusOK); err != nil { // which spends a bucket of one permit
		w.close()
		return nil, err
	}
	return w, nil
}

// conns are connections of callers.
type conns []conn

// A conn is one caller's connection, with one request at a time.
type conn struct {
	net.Conn
	reader *bufio.Reader
}

// dial makes n connections to an address.
func dial(r *rig, addr string, n int) (conns, error) {
	var all conns
	for range n {
		var dialer net.Dialer
		c, err := dialer.DialContext(r.ctx, "tcp", addr)
		if err != nil {
			all.close()
			return nil, err
		}
		all = append(all, conn{c, bufio.NewReader(c)})
	}
	return all, nil
}

func (c conns) close() {
	for i := range c {
		_ = c[i].Close()
	}
}

// ask sends a request and reads the answer: its status, which must be the one given, and its body by
// Content-Length. It parses no more, so that the client costs little.
func (c *conn) ask(request string, status int) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	line, err := c.reader.ReadSlice('\n')
	if err != nil {
		return err
	}
	if got := string(line[9:12]); got != fmt.Sprint(status) {
		return fmt.Errorf("answered %s, want %d", got, status)
	}
	length := 0
	for {
		line, err := c.reader.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			break
		}
		if name, value, _ := strings.Cut(string(line), ": "); strings.EqualFold(name, "Content-Length") {
			if _, err := fmt.Sscan(value, &length); err != nil {
				return err
			}
		}
	}
	_, err = c.reader.Discard(length)
	return err
}
