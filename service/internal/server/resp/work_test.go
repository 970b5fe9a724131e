package resp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// Each command enters with as many operations as it is, and no more than a batch's at once; what is refused costs nothing.
func TestWork(t *testing.T) {
	words := func(n int, word string) []string { return strings.Fields(strings.Repeat(word+" ", n)) }
	for _, test := range []struct {
		command     []string
		turns, work int64 // at the least
		answer      string
	}{
		{append([]string{"DEL"}, words(16383, "k")...), 128, 32766, ":0\r\n"},
		{append([]string{"EXISTS"}, words(1000, "k")...), 8, 1000, ":0\r\n"},
		{append([]string{"DEL", "k", strings.Repeat("k", 257)}, words(1000, "k")...), 0, 0, "-ERR"},
		{append([]string{"CONFIG", "GET"}, words(16, "a*")...), 1, 16, "*2\r\n"},
		{append([]string{"CONFIG", "GET"}, words(17, "a*")...), 1, 16, "-ERR too many patterns"},
		{[]string{"CONFIG", "GET", strings.Repeat("*", 65)}, 1, 1, "-ERR too many patterns"},
		{append([]string{"COMMAND", "INFO"}, words(1000, "PING")...), 1, 1000, "*1000\r\n"},
		{[]string{"INFO"}, 1, 1, "$"},
		{[]string{"TTL", "k"}, 1, 1, ":-2\r\n"},
	} {
		var turns, work, most, entered, decided int64
		config := fakeConfig(t, io.Discard, false, false)
		config.Enter = func(ctx context.Context, _ string, cost int64) (context.Context, func(), error) {
			turns, work, most, entered = turns+1, work+cost, max(most, cost), entered+cost
			return ctx, func() { entered -= cost }, nil
		}
		store := config.DecideAll
		config.DecideAll = func(ctx context.Context, ops []stint.Op, results []stint.Result) {
			if decided += int64(len(ops)); int64(len(ops)) > entered {
				t.Errorf("%.20q: %d operations at once, of which %d had a turn", test.command, len(ops), entered)
			}
			store(ctx, ops, results)
		}
		answer := converse(t, config, command(test.command...))
		if !strings.HasPrefix(answer, test.answer) {
			t.Errorf("%.20q: %.60q, want %q", test.command, answer, test.answer)
		}
		if turns != test.turns || work < test.work || entered != 0 || decided > work {
			t.Errorf("%.20q: %d turns for work of %d, of which %d are left; %d operations; want %d and %d",
				test.command, turns, work, entered, decided, test.turns, test.work)
		}
		if wide := test.command[0] == "DEL" || test.command[0] == "EXISTS"; wide && most > 256 {
			t.Errorf("%.20q: a turn of %d operations", test.command, most)
		}
	}
}

// converse sends commands, and returns all that is answered.
func converse(t *testing.T, config resp.Config, text string) string {
	t.Helper()
	near, far := net.Pipe()
	listener := &pipe{conn: make(chan net.Conn, 1)}
	listener.conn <- far
	close(listener.conn)
	server := resp.New(config)
	if err := server.Serve(listener); !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(near, text+command("QUIT")) }()
	answers, err := io.ReadAll(near)
	if err != nil {
		t.Error(err)
	}
	if err := server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	return string(answers)
}
