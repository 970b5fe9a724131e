package resp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// All from MULTI to EXEC has to come in time, also where each command does.
func TestSlowTransactions(t *testing.T) {
	for _, slow := range []string{"PING", "NOTHING"} {
		synctest.Test(t, func(t *testing.T) {
			config := fakeConfig(t, io.Discard, false, true)
			config.BodyTimeout = 10 * time.Second
			near, far := net.Pipe()
			listener := &pipe{conn: make(chan net.Conn, 1)}
			listener.conn <- far
			close(listener.conn)
			server := resp.New(config)
			if err := server.Serve(listener); !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
			answers := bufio.NewReader(near)
			ask := func(text string) string {
				must.Get(near.Write([]byte(text)))(t)
				return must.Get(answers.ReadString('\n'))(t)
			}
			for range 2 { // transactions in time, however many
				ask(command("MULTI"))
				for range 3 {
					<-time.After(3 * time.Second)
					ask(command("PING"))
				}
				if got := ask(command("EXEC")); got != "*3\r\n" {
					t.Errorf("a transaction of 9 s: %q", got)
				}
				for range 3 {
					must.Get(answers.ReadString('\n'))(t)
				}
			}
			ask(command("MULTI"))
			for range 3 {
				<-time.After(3 * time.Second)
				ask(command(slow))
			}
			<-time.After(3 * time.Second)
			got := ask(command(slow))
			if _, err := answers.ReadByte(); !strings.HasPrefix(got, "-ERR MULTI without EXEC; allowed: 10s") || !errors.Is(err, io.EOF) {
				t.Errorf("a transaction of 12 s: %q, %v", got, err)
			}
			must.Do(t, server.Shutdown(t.Context()))
		})
	}
}
