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

// talk serves a connection. What it returns sends a text, and reads the first line that is answered.
func talk(t *testing.T, config resp.Config) (server *resp.Server, answers *bufio.Reader, ask func(text string) string) {
	t.Helper()
	near, far := net.Pipe()
	listener := &pipe{conn: make(chan net.Conn, 1)}
	listener.conn <- far
	close(listener.conn)
	server, answers = resp.New(config), bufio.NewReader(near)
	if err := server.Serve(listener); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	return server, answers, func(text string) string {
		must.Get(near.Write([]byte(text)))(t)
		return must.Get(answers.ReadString('\n'))(t)
	}
}

// All from MULTI to EXEC has to come in time, also where each command does.
func TestSlowTransactions(t *testing.T) {
	for _, slow := range []string{"PING", "NOTHING"} {
		synctest.Test(t, func(t *testing.T) {
			config := fakeConfig(t, io.Discard, false, true)
			config.BodyTimeout = 10 * time.Second
			server, answers, ask := talk(t, config)
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

// A hold is ended by its id alone as long as an end may come: for twice its TTL after it has expired.
func TestHoldsAreRememberedUntilTheirEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, answers, ask := talk(t, fakeConfig(t, io.Discard, false, false))
		reserve := func(id string) {
			got := ask(command("STINT.RESERVE", id, "p", "k", "1", "1h"))
			if _, err := answers.Discard(answers.Buffered()); err != nil || got != "*28\r\n" {
				t.Fatalf("%s: %q, %v", id, got, err)
			}
		}
		reserve("a")
		for _, id := range []string{"b", "c"} {
			<-time.After(85 * time.Minute)
			reserve(id)
		}
		if got := ask(command("STINT.COMMIT", "a", "1")); got != "*16\r\n" {
			t.Errorf("an end after 2 h 50 min: %q", got)
		}
		if _, err := answers.Discard(answers.Buffered()); err != nil {
			t.Error(err)
		}
		must.Do(t, server.Shutdown(t.Context()))
	})
}
