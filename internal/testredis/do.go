package testredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// How long one command may take, from dialling to its reply.
	allowed = time.Minute
	// The same where the command is repeated until it succeeds, and another server may be the one to ask by then.
	glance = 5 * time.Second
)

// Do sends one command over a connection of its own and returns the reply: a
// string, an int64, nil, or a []any of these, in which an error reply stands as an
// error. An error reply to the command itself is returned as the error.
// Arguments are sent as fmt.Sprint writes them, byte slices as they are.
func (s *Server) Do(args ...any) (any, error) { return s.within(allowed, args...) }

// within is Do with so much time.
func (s *Server) within(timeout time.Duration, args ...any) (any, error) {
	if len(args) == 0 {
		return nil, errors.New("testredis: no command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var secure *tls.Config
	if s.tls != nil {
		secure = s.tls.client
	}
	w, err := Dial(ctx, s.Addr(), s.password, secure)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Close() }()
	if err := w.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	command := make([]string, len(args))
	for i, arg := range args {
		if text, raw := arg.([]byte); raw {
			command[i] = string(text)
		} else {
			command[i] = fmt.Sprint(arg)
		}
	}
	if err := w.Send(command...); err != nil {
		return nil, err
	}
	return w.Receive()
}

// Info returns one section of INFO, or all of them when section is "", by name.
func (s *Server) Info(section string) (map[string]string, error) {
	if section == "" {
		section = "default"
	}
	return s.fields(allowed, "INFO", section)
}

// fields sends a command that replies with lines of name:value.
func (s *Server) fields(timeout time.Duration, args ...any) (map[string]string, error) {
	reply, err := s.within(timeout, args...)
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(fmt.Sprint(reply)) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			fields[name] = value
		}
	}
	return fields, nil
}
