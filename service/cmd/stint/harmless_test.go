package main

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// hostile is a text that turns a terminal red, names its window, and begins a line that looks like one of the program's.
const hostile = "\x1b[31mred\x1b]0;title\x07\u009b31m\xff\x7f\r"

// tame fails the test if a text holds anything that a terminal obeys, or nothing of the hostile one.
func tame(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); i >= 0 {
		t.Errorf("%s: %q", what, text)
	}
	if strings.Contains(text, "\xff") || !strings.Contains(text, `\u001b[31mred\u001b]0;title\u0007\u009b31m`) {
		t.Errorf("%s: %q", what, text)
	}
}

// What a server of Redis, or of stint, sends is printed without what a terminal obeys.
func TestServersTextIsHarmless(t *testing.T) {
	ln := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewReader(conn); ; {
					if _, err := testredis.ReadReply(in); err != nil {
						return
					}
					if _, err := conn.Write([]byte("-NOPERM " + strings.TrimSuffix(hostile, "\r") + "\r\n")); err != nil {
						return
					}
				}
			}()
		}
	}()
	for _, args := range [][]string{{}, {"--json"}} {
		_, stdout, stderr := do(t, nil, append([]string{"doctor", "--store", "redis://" + ln.Addr().String(), "--store-timeout=1m"}, args...)...)
		tame(t, "doctor", stdout+stderr)
	}

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"title":"no","status":409,"detail":"\u001b[31mred\u001b]0;title\u0007\u009b31m\u007f\r"}`))
	}))
	t.Cleanup(server.Close)
	_, stdout, stderr := do(t, nil, "rules", "list", "--admin", server.URL)
	tame(t, "rules list", stdout+stderr)
}
