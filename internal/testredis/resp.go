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

// timeout bounds one command, from dialling to its reply.
const timeout = 5 * time.Second

// An Error is an error that the server replied, such as "NOSCRIPT No matching
// script.".
type Error string

// Error is the reply as it came.
func (e Error) Error() string { return string(e) }

// Do sends one command over a connection of its own and returns the reply: a
// string, an int64, nil, or a []any of these, in which an error reply stands as an
// [Error]. An error reply to the command itself is returned as the error.
// Arguments are sent as fmt.Sprint writes them, byte slices as they are.
func (s *Server) Do(args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("testredis: no command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, fmt.Errorf("testredis: %w", err)
		}
	}
	replies := bufio.NewReader(conn)
	if s.password != "" {
		if _, err := roundTrip(conn, replies, []any{"AUTH", s.password}); err != nil {
			return nil, err
		}
	}
	return roundTrip(conn, replies, args)
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	if s.tls == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Addr())
	}
	return (&tls.Dialer{Config: s.tls.client()}).DialContext(ctx, "tcp", s.Addr())
}

// Info returns one section of INFO, or all of them when section is "", by name.
func (s *Server) Info(section string) (map[string]string, error) {
	args := []any{"INFO"}
	if section != "" {
		args = append(args, section)
	}
	return s.fields(args...)
}

// fields sends a command that replies with lines of name:value.
func (s *Server) fields(args ...any) (map[string]string, error) {
	reply, err := s.Do(args...)
	if err != nil {
		return nil, err
	}
	text, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("testredis: %v replied %v, not text", args, reply)
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields, nil
}

func roundTrip(conn io.Writer, replies *bufio.Reader, args []any) (any, error) {
	if _, err := conn.Write(encode(args)); err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	reply, err := decode(replies)
	if err != nil {
		return nil, fmt.Errorf("testredis: %w", err)
	}
	if failure, ok := reply.(Error); ok {
		return nil, failure
	}
	return reply, nil
}

// encode writes a command as an array of bulk strings (RESP2).
func encode(args []any) []byte {
	command := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		text, ok := arg.([]byte)
		if !ok {
			text = fmt.Append(nil, arg)
		}
		command = fmt.Appendf(command, "$%d\r\n%s\r\n", len(text), text)
	}
	return command
}

// decode reads one reply (RESP2).
func decode(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return nil, errors.New("an empty reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+':
		return rest, nil
	case '-':
		return Error(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("reply %q: %w", line, err)
	}
	switch {
	case kind == ':':
		return n, nil
	case kind != '$' && kind != '*':
		return nil, fmt.Errorf("reply %q is of an unknown kind", line)
	case n < 0:
		return nil, nil
	case kind == '$':
		text := make([]byte, n+int64(len("\r\n")))
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		return string(text[:n]), nil
	}
	items := make([]any, n)
	for i := range items {
		if items[i], err = decode(r); err != nil {
			return nil, err
		}
	}
	return items, nil
}
