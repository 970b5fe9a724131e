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

// A client that closes its half of the connection behind a question about a domain is told that, and not of a log. What
// fails inside stands in the log.
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

	asked <- struct{}{}
	conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", d.server.AdminAddr().String()))(t)
	defer func() { _ = conn.Close() }()
	must.Get(fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, len(question), question))(t)
	must.Do(t, conn.(*net.TCPConn).CloseWrite())
	response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "the client has gone") {
		t.Errorf("a half-closed connection: %d %s, %v", response.StatusCode, body, err)
	}
	if log := d.log.String(); strings.Contains(log, "a request failed") {
		t.Errorf("the log:\n%s", log)
	}

	d.store.fail(errors.New("the cable is loose"))
	d.ask("POST", path, question).problem(500, "log says more")
	if log := d.log.String(); strings.Count(log, "the cable is loose") != 1 || !strings.Contains(log, "POST "+path) {
		t.Errorf("the log:\n%s", log)
	}
}
