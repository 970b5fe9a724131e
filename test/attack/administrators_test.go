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
			c := &crowd{}
			c.end = attackBy(t, 300, 3, func(ctx context.Context, from net.Addr) {
				over(ctx, from, s.admin, func(conn net.Conn) {
					if _, err := io.WriteString(conn, sent); err == nil {
						c.answers.Add(1)
						_, _ = io.Copy(io.Discard, conn) // until the server ends it
					}
				})
			})
			c.await(t)
			asked, refused := 0, []string{}
			for begun := time.Now(); time.Since(begun) < *lasting || asked < 4; asked++ {
				pause := []time.Duration{0, 0, 0, 50 * time.Millisecond}[asked%4]
				if err := s.administer(t.Context(), pause); err != nil {
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

// administer asks for the rules over a connection of its own, some time after it was made.
func (s *service) administer(ctx context.Context, pause time.Duration) error {
	conn, err := (&net.Dialer{LocalAddr: innocentAddress}).DialContext(ctx, "tcp", s.admin)
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
