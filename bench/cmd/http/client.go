package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// An answer is one HTTP/1.1 answer as it came over the wire, with the header fields
// spelled and ordered as the server wrote them.
type answer struct {
	status int
	fields []field
	body   []byte
}

// A field is one line of the header.
type field struct{ name, value string }

// timeout bounds one exchange.
const timeout = 5 * time.Second

// client is one kept-alive connection that speaks just enough HTTP/1.1: the
// machine's cores are for the servers.
type client struct {
	addr    string // HOST:PORT
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func (c *client) dial(ctx context.Context) error {
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn, c.reader = conn, bufio.NewReader(conn)
	return nil
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// fetch sends one GET on a connection of its own.
func fetch(ctx context.Context, addr, path string) (*answer, error) {
	c := &client{addr: addr}
	defer c.close()
	a := &answer{}
	if _, err := c.get(ctx, path, a); err != nil {
		return nil, fmt.Errorf("GET http://%s%s: %w", addr, path, err)
	}
	return a, nil
}

// get sends one GET and returns the answer's status; what else it says goes to a, if that
// is not nil. After an error the connection is made anew.
func (c *client) get(ctx context.Context, path string, a *answer) (status int, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return 0, err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return 0, err
	}
	c.request = fmt.Appendf(c.request[:0], "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, c.addr)
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	return readAnswer(c.reader, a)
}

// readAnswer reads one answer whose body has a stated length.
func readAnswer(r *bufio.Reader, a *answer) (status int, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	code, isHTTP := strings.CutPrefix(string(line), "HTTP/1.1 ")
	if status, err = strconv.Atoi(code[:min(len(code), 3)]); err != nil || !isHTTP {
		return 0, fmt.Errorf("not an HTTP/1.1 answer: %q", line)
	}
	length := -1
	var fields []field
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		name, value, _ := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(value); err != nil {
				return 0, err
			}
		}
		if a != nil {
			fields = append(fields, field{name, value})
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("the answer has no Content-Length")
	}
	if a == nil {
		_, err = r.Discard(length)
		return status, err
	}
	*a = answer{status, fields, make([]byte, length)}
	_, err = io.ReadFull(r, a.body)
	return status, err
}

// sameShape reports how b differs from a other than in the values: the status, the
// fields' names, and sizes. Digits of times and counts may make values differ, and their
// lengths by a little.
func sameShape(a, b *answer) error {
	const slack = 8
	names := func(a *answer) (names string, size int) {
		for _, f := range a.fields {
			names += f.name + " "
			size += len(f.value)
		}
		return names, size + len(a.body)
	}
	namesA, sizeA := names(a)
	namesB, sizeB := names(b)
	switch {
	case a.status != b.status:
		return fmt.Errorf("status %d and %d", a.status, b.status)
	case namesA != namesB:
		return fmt.Errorf("header fields %s and %s", namesA, namesB)
	case sizeA-sizeB > slack || sizeB-sizeA > slack:
		return fmt.Errorf("sizes of %d and %d bytes", sizeA, sizeB)
	}
	return nil
}
