package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// A client that closes its half of the connection behind a question about a domain, or within, is told that, and not of
// a log or a length. What fails inside stands in the log.
func TestExplainDomainFails(t *testing.T) {
	const path = "/api/v1/domains/explain"
	const question = `{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "ann"}]}]}`
	asked := make(chan struct{}, 1)
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.GRPCListen = "127.0.0.1:0"
		c.Store.(*store).enter = func(ctx context.Context) {
			select {
			case <-asked:
				<-ctx.Done() // net/http notices the end of what the client sends
			default:
			}
		}
	})
	d.load()
	d.ask("POST", path, question).is(200)

	halfClosed := func(length int) (status int, body string) { // the question of that length
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", d.server.AdminAddr().String()))(t)
		defer func() { _ = conn.Close() }()
		must.Get(fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			path, length, question))(t)
		must.Do(t, conn.(*net.TCPConn).CloseWrite())
		response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode, string(must.Get(io.ReadAll(response.Body))(t))
	}
	if status, body := halfClosed(len(question) + 1); status != http.StatusBadRequest || !strings.Contains(body, "the body ended early") {
		t.Errorf("a body that ends early: %d %s", status, body)
	}
	asked <- struct{}{}
	if status, body := halfClosed(len(question)); status != http.StatusServiceUnavailable || !strings.Contains(body, "the client has gone") {
		t.Errorf("a half-closed connection: %d %s", status, body)
	}
	if log := d.log.String(); strings.Contains(log, "a request failed") {
		t.Errorf("the log:\n%s", log)
	}

	d.store.fail(errors.New("the cable is loose"))
	d.ask("POST", path, question).problem(500, "log says more")
	if log := d.log.String(); strings.Count(log, "the cable is loose") != 1 || !strings.Contains(log, "POST "+path) {
		t.Errorf("the log:\n%s", log)
	}
	says(t, d.get("/metrics").body, "rate_limiter_body_bytes{service=\"admin\"} 0\n") // all memory was given back
}
