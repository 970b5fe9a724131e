package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// FuzzConnection sends any bytes to the server. It answers, or closes the connection;
// every error is a problem document, except for what net/http
// does not take for a request.
func FuzzConnection(f *testing.F) {
	for _, path := range []string{
		apipath.Check, apipath.Remaining, apipath.Health, apipath.Liveness, apipath.Readiness, apipath.Info,
		apipath.Metrics, apipath.MetricsAlias, apipath.OpenAPI,
	} {
		f.Add([]byte("GET " + path + " HTTP/1.1\r\nHost: h\r\n\r\n"))
	}
	for _, seed := range []string{
		"DELETE " + apipath.Reset + "?key=k HTTP/1.1\r\nHost: h\r\n\r\n",
		"POST " + apipath.Settle + " HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\n{\"permits\":1}",
		"POST " + apipath.Check + " HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"POST " + apipath.Check + " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
		"POST " + apipath.Check + " HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
		"HEAD " + apipath.Health + " HTTP/1.0\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"GET http://h/metrics HTTP/1.1\r\nHost: other\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
		"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "\x16\x03\x01\x00\x05hello", "\r\n\r\n", "GET / HTTP/3.0\r\n\r\n", "",
	} {
		f.Add([]byte(seed))
	}
	var log bytes.Buffer
	config := DefaultConfig()
	config.Store, config.Logger = memstore.New(memstore.Config{}), slog.New(slog.NewTextHandler(&log, nil))
	config.HTTP.MaxHeaderBytes, config.HTTP.BodyTimeout, config.Drain.KeepAlive = 1<<10, time.Second, 0
	s := must.Get(New(config))(f)
	dir := must.Get(os.MkdirTemp("", ""))(f) // f.TempDir is too long for a socket's name
	f.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	ln := must.Get(new(net.ListenConfig).Listen(f.Context(), "unix", socket))(f)
	s.listeners.Listen = func(context.Context, string, string) (net.Listener, error) { return ln, nil }
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			f.Error(err)
		}
		if strings.Contains(log.String(), "panic") {
			f.Errorf("the log:\n%s", &log)
		}
	})
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := must.Get(new(net.Dialer).DialContext(t.Context(), "unix", socket))(t)
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(time.Minute))
		go func() {
			_, _ = conn.Write(sent) // the server may have heard enough
			_ = conn.(*net.UnixConn).CloseWrite()
		}()
		got, err := io.ReadAll(conn)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("the server neither answers nor closes; so far %.300q", got)
		}
		checkAnswer(t, got, bytes.HasPrefix(sent, []byte("HEAD ")))
	})
}

// checkAnswer looks at the first of the answers.
func checkAnswer(t *testing.T, got []byte, head bool) {
	t.Helper()
	if len(got) == 0 {
		return
	}
	request := &http.Request{Method: http.MethodGet}
	if head {
		request.Method = http.MethodHead
	}
	reader := bufio.NewReader(bytes.NewReader(got))
	response, err := http.ReadResponse(reader, request)
	if err == nil && response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(reader, request)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return // nothing followed, and the client had hung up
		}
	}
	if err != nil {
		t.Fatalf("not an answer: %v: %.300q", err, got)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("not an answer: %v: %.300q", err, got)
	}
	media := response.Header.Get("Content-Type")
	switch status := response.StatusCode; {
	case status < 400 || status == http.StatusTooManyRequests:
	case media == apipath.ProblemType:
		var problem api.Problem
		if !head && json.Unmarshal(body, &problem) != nil || status >= 500 && !strings.Contains(problem.Detail, "the client has gone") {
			t.Fatalf("%d %s", status, body)
		}
	case status == http.StatusBadRequest || status == http.StatusExpectationFailed || status == http.StatusRequestHeaderFieldsTooLarge ||
		status == http.StatusNotImplemented || status == http.StatusHTTPVersionNotSupported:
		if !response.Close { // it is net/http's own
			t.Fatalf("%.300q", got)
		}
	default:
		t.Fatalf("%.300q", got)
	}
}
