package testredis

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"
)

// A ReplyError is an error that a server replied, in its own words.
type ReplyError string

// Error implements error.
func (e ReplyError) Error() string { return string(e) }

// RedisError marks it as a reply, as go-redis does.
func (ReplyError) RedisError() {}

// A Wire is one connection of a client.
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
	size := 16
	for _, arg := range args {
		size += len(arg) + 16
	}
	_, err := w.conn.Write(appendCommand(make([]byte, 0, size), args))
	return err
}

// Receive returns the next reply: a string, an int64, nil, or a []any of these, in which an error
// stands as a [ReplyError]. An error in place of the whole reply is returned as the error.
func (w *Wire) Receive() (any, error) {
	reply, err := ReadReply(w.read)
	if err != nil {
		return nil, err
	}
	if reply.Kind == '-' {
		return nil, ReplyError(reply.Text)
	}
	return reply.value(), nil
}
