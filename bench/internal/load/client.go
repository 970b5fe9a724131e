package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// client is one kept-alive connection that speaks just enough HTTP/1.1: the
// machine's cores are for the servers.
type client struct {
	target  string
	timeout time.Duration
	conn    net.Conn
	reader  *bufio.Reader
	request []byte
}

func (c *client) dial(ctx context.Context) error {
	dialer := net.Dialer{Timeout: c.timeout}
	conn, err := dialer.DialContext(ctx, "tcp", c.target)
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

// get returns the answer's status, or 0 when there is none; then the connection is
// made anew for the next request.
func (c *client) get(ctx context.Context, path string) int {
	status, err := c.exchange(ctx, path)
	if err != nil {
		c.close()
		return 0
	}
	return status
}

func (c *client) exchange(ctx context.Context, path string) (int, error) {
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return 0, err
		}
	}
	if err := c.conn.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	c.request = append(append(c.request[:0], "GET "...), path...)
	c.request = append(append(c.request, " HTTP/1.1\r\nHost: "...), c.target...)
	c.request = append(c.request, "\r\n\r\n"...)
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	return readAnswer(c.reader)
}

// readAnswer reads one answer whose body has a stated length.
func readAnswer(r *bufio.Reader) (int, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, err
	}
	if len(line) < len("HTTP/1.1 200") || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, fmt.Errorf("not an HTTP/1.1 answer: %q", line)
	}
	status, err := strconv.Atoi(string(line[9:12]))
	if err != nil {
		return 0, err
	}
	length := -1
	for {
		line, err = r.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return 0, fmt.Errorf("the answer has no Content-Length")
	}
	_, err = r.Discard(length)
	return status, err
}
