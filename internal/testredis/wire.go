package testredis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A ReplyError is an error that a server replied, in its own words.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError marks it as a reply, as go-redis does.
func (ReplyError) RedisError() {}

// A Wire is one connection that speaks RESP2 (https://redis.io/docs/latest/develop/reference/protocol-spec/).
// Replies come in the order of the commands. One goroutine may send while another receives.
type Wire struct {
	conn net.Conn
	read *bufio.Reader
}

// Dial connects to a server at host:port, by TLS with a configuration, or plainly with nil. With a password it
// signs in by it.
func Dial(ctx context.Context, addr, password string, secure *tls.Config) (*Wire, error) {
	dial := new(net.Dialer).DialContext
	if secure != nil {
		dial = (&tls.Dialer{Config: secure}).DialContext
	}
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	w := &Wire{conn, bufio.NewReader(conn)}
	if password == "" {
		return w, nil
	}
	if deadline, bounded := ctx.Deadline(); bounded {
		_ = conn.SetDeadline(deadline)
	}
	if err = w.Send("AUTH", password); err == nil {
		_, err = w.Receive()
	}
	if err = errors.Join(err, conn.SetDeadline(time.Time{})); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return w, nil
}

// Close ends the connection.
func (w *Wire) Close() error { return w.conn.Close() }

// Send sends one command.
func (w *Wire) Send(args ...string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(arg), arg)
	}
	_, err := io.WriteString(w.conn, text.String())
	return err
}

// Receive returns the next reply: a string, an int64, nil, or a []any of these, in which an error
// stands as a [ReplyError]. An error in place of the whole reply is returned as the error.
func (w *Wire) Receive() (any, error) {
	reply, err := w.receive()
	if failure, failed := reply.(ReplyError); failed {
		return nil, failure
	}
	return reply, err
}

func (w *Wire) receive() (any, error) {
	line, err := w.read.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("testredis: the server sent an empty line")
	}
	kind, line := line[0], line[1:]
	switch kind {
	case '+':
		return line, nil
	case '-':
		return ReplyError(line), nil
	case ':':
		return strconv.ParseInt(line, 10, 64)
	}
	n, err := strconv.Atoi(line)
	if err != nil || n < 0 {
		return nil, err
	}
	switch kind {
	case '$':
		text := make([]byte, n+len("\r\n"))
		_, err = io.ReadFull(w.read, text)
		return string(text[:n]), err
	case '*':
		items := make([]any, n)
		for i := range items {
			if items[i], err = w.receive(); err != nil {
				return nil, err
			}
		}
		return items, nil
	default:
		return nil, fmt.Errorf("testredis: the server sent %q", string(kind)+line)
	}
}
