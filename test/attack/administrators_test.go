package attack_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestAdministrators has strangers take the admin listener's connections, each again as soon as it is displaced, while an
// administrator asks on connections of its own, whose requests come at once or later.
func TestAdministrators(t *testing.T) {
	signIn := "POST /session HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n"
	for name, sent := range map[string]string{"sign-ins without a body": signIn, "silence": "", "half a head": "GET / HTTP/1.1\r\nHost:"} {
		t.Run(name, func(t *testing.T) {
			s := startService(t)
			ctx, end := context.WithCancel(t.Context())
			c := &crowd{end: end, statuses: map[int]int{}}
			for i := range 300 {
				from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 1, 0, byte(1+i%3))}}
				c.work.Go(func() {
					for ctx.Err() == nil {
						c.hold(ctx, from, s.admin, sent)
					}
				})
			}
			c.await(t)
			asked, refused := 0, []string{}
			for begun := time.Now(); time.Since(begun) < *lasting || asked < 4; asked++ {
				pause := []time.Duration{0, 0, 0, 50 * time.Millisecond}[asked%4]
				if err := s.administer(ctx, pause); err != nil {
					refused = append(refused, fmt.Sprintf("%v after the connection: %v", pause, err))
				}
			}
			t.Logf("the administrator: %d of %d calls refused; strangers: %d connections", len(refused), asked, c.stop().answers)
			if *strict && len(refused) > 0 {
				t.Errorf("%d of %d calls were refused: %s", len(refused), asked, strings.Join(refused, "; "))
			}
		})
	}
}

// hold makes a connection, sends what it is given, and keeps it until the server ends it.
func (c *crowd) hold(ctx context.Context, from *net.Dialer, addr, sent string) {
	conn, err := from.DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, sent); err != nil {
		return
	}
	c.answers.Add(1)
	_, _ = io.Copy(io.Discard, conn) // until the server ends it
}

// administer asks for the rules over a connection of its own, some time after it was made.
func (s *service) administer(ctx context.Context, pause time.Duration) error {
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext(ctx, "tcp", s.admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	<-time.After(pause) // a slow network
	if _, err := fmt.Fprintf(conn, "GET /api/v1/rules HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n", token); err != nil {
		return err
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the answer is %s", response.Status)
	}
	return nil
}
