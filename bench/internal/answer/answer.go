// Package answer reads an HTTP answer as it came over the wire, with the header
// fields spelled and ordered as the server wrote them.
package answer

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

// An Answer is one HTTP/1.1 answer.
type Answer struct {
	Status int
	Fields []Field
	Body   []byte
}

// A Field is one line of the header.
type Field struct{ Name, Value string }

// Fetch sends one GET to HOST:PORT and reads the answer, whose body must have a
// stated length.
func Fetch(ctx context.Context, addr, path string) (Answer, error) {
	const timeout = 5 * time.Second
	dialer := net.Dialer{Timeout: timeout}
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return Answer{}, err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, addr); err != nil {
		return Answer{}, err
	}
	a, err := read(bufio.NewReader(conn))
	if err != nil {
		return Answer{}, fmt.Errorf("GET http://%s%s: %w", addr, path, err)
	}
	return a, nil
}

func read(r *bufio.Reader) (Answer, error) {
	line, err := readLine(r)
	if err != nil {
		return Answer{}, err
	}
	var a Answer
	if _, err := fmt.Sscanf(line, "HTTP/1.1 %d", &a.Status); err != nil {
		return Answer{}, fmt.Errorf("status line %q: %w", line, err)
	}
	length := -1
	for {
		line, err := readLine(r)
		if err != nil {
			return Answer{}, err
		}
		if line == "" {
			break
		}
		name, value, _ := strings.Cut(line, ":")
		field := Field{Name: name, Value: strings.TrimSpace(value)}
		a.Fields = append(a.Fields, field)
		if strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(field.Value); err != nil {
				return Answer{}, err
			}
		}
	}
	if length < 0 {
		return Answer{}, fmt.Errorf("the answer has no Content-Length")
	}
	a.Body = make([]byte, length)
	_, err = io.ReadFull(r, a.Body)
	return a, err
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// SameShape reports how b differs from a other than in the values: the status, the
// names of the fields, and sizes. Digits of times and counts may make values
// differ, and their lengths by a little.
func SameShape(a, b Answer) error {
	const slack = 8
	if a.Status != b.Status {
		return fmt.Errorf("status %d and %d", a.Status, b.Status)
	}
	names, sizes := [2]map[string]bool{{}, {}}, [2]int{}
	for i, from := range []Answer{a, b} {
		sizes[i] = len(from.Body)
		for _, f := range from.Fields {
			names[i][f.Name] = true
			sizes[i] += len(f.Name) + len(f.Value)
		}
	}
	for i := range names {
		for name := range names[i] {
			if !names[1-i][name] {
				return fmt.Errorf("header field %s in one only", name)
			}
		}
	}
	if diff := sizes[0] - sizes[1]; diff > slack || diff < -slack {
		return fmt.Errorf("sizes of %d and %d bytes", sizes[0], sizes[1])
	}
	return nil
}
