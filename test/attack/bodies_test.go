package attack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// TestBodies attacks with requests whose bodies do not come, from 2,000 connections that are made anew when they end. A
// client on a connection that it keeps is answered there, each time: its connection makes no room for theirs.
func TestBodies(t *testing.T) {
	const crowd = 2000
	head := func(length int) string {
		return fmt.Sprintf("POST /api/v1/rate-limit/check HTTP/1.1\r\nHost: stint\r\nContent-Length: %d\r\n\r\n", length)
	}
	for _, attack := range []struct {
		name, text string
		// hurried attackers leave a connection as soon as something was sent, and make another one.
		hurried bool
		// storm says that thousands of connections are made in a second, which takes the processors from everybody: the
		// client may hear 503.
		storm bool
	}{
		{"short bodies", head(100), false, false},
		{"half bodies", head(100_000) + strings.Repeat(" ", 50_000), false, false},
		{"long bodies", head(900_000), false, true}, // most are refused before they have come
		{"bodies of closed connections", head(900_000), true, true},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			kept := s.keepConnection(t)
			var made atomic.Int64
			end := attackBy(t, crowd, 4, func(ctx context.Context, from net.Addr) {
				over(ctx, from, s.addr, func(conn net.Conn) {
					_, err := io.WriteString(conn, attack.text)
					made.Add(1)
					if err == nil && !attack.hurried {
						_, _ = io.Copy(io.Discard, conn) // until the service ends it
					}
				})
			})
			await(t, "the attack has begun", func() bool { return made.Load() >= crowd })
			<-time.After(*lasting) // the length of the experiment, not a wait for something
			checks := kept.stop()
			end()
			t.Logf("attackers: %d connections", made.Load())
			t.Logf("innocent:  %s", checks)
			if fault := checks.inexact(); fault != "" || checks.failures > 0 {
				t.Errorf("%d of %d requests were not answered; %s", checks.failures, checks.asked, fault)
			}
			if *strict && !attack.storm && checks.decided() != checks.asked {
				t.Errorf("%d of %d requests were decided", checks.decided(), checks.asked)
			}
		})
	}
}

// keepConnection starts a client that sends its requests over one connection, and waits for each answer.
func (s *service) keepConnection(t *testing.T) *innocent {
	t.Helper()
	i, ctx := newInnocent(t)
	from := &net.Dialer{LocalAddr: innocentAddress}
	conn := must.Get(from.DialContext(ctx, "tcp", s.addr))(t)
	i.work.Go(func() {
		pace := time.NewTicker(time.Second / perSecond)
		defer pace.Stop()
		in := bufio.NewReader(conn)
		for ; ctx.Err() == nil; <-pace.C {
			if i.askOver(conn, in) {
				continue
			}
			_ = conn.Close()
			var err error
			if conn, err = from.DialContext(ctx, "tcp", s.addr); err != nil {
				return
			}
			in.Reset(conn)
		}
		_ = conn.Close()
	})
	return i
}

// askOver makes a check over a connection, and reports whether it was answered, so that another one may follow.
func (i *innocent) askOver(conn net.Conn, in *bufio.Reader) bool {
	begun := time.Now()
	status, d, err := 0, decision{}, conn.SetDeadline(begun.Add(patience))
	if err == nil {
		_, err = io.WriteString(conn, get("/api/v1/rate-limit/check?algorithm=FIXED_WINDOW", ""))
	}
	var response *http.Response
	if err == nil {
		response, err = http.ReadResponse(in, nil)
	}
	if err == nil {
		status = response.StatusCode
		err = readDecision(response, &d)
	}
	i.note(begun, status, d, err)
	return err == nil && !response.Close
}
