package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/valyala/fasthttp"
)

// newClient is a client of one server, which leaves the machine's cores to the servers
// and header fields as they are spelled.
func newClient(addr string, connections int) *fasthttp.HostClient {
	const timeout = 5 * time.Second
	return &fasthttp.HostClient{
		Addr: addr, MaxConns: connections, ReadTimeout: timeout, WriteTimeout: timeout, MaxIdemponentCallAttempts: 1,
		NoDefaultUserAgentHeader: true, DisableHeaderNamesNormalizing: true, DisablePathNormalizing: true,
	}
}

// get sends one GET to the client's server, and calls use with the answer.
func get(client *fasthttp.HostClient, path string, use func(*fasthttp.Response)) error {
	request, response := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(request)
	defer fasthttp.ReleaseResponse(response)
	request.SetRequestURI("http://" + client.Addr + path)
	if err := client.Do(request, response); err != nil {
		return fmt.Errorf("GET http://%s%s: %w", client.Addr, path, err)
	}
	use(response)
	return nil
}

// fetch is get on a connection of its own.
func fetch(addr, path string) (*fasthttp.Response, error) {
	client := newClient(addr, 1)
	defer client.CloseIdleConnections()
	answer := &fasthttp.Response{}
	return answer, get(client, path, func(r *fasthttp.Response) { r.CopyTo(answer) })
}

// sameShape reports how b differs from a other than in the values: the status, the
// fields' names, and sizes. Digits of times and counts may make values differ, and their
// lengths by a little.
func sameShape(a, b *fasthttp.Response) error {
	const slack = 8
	names := func(r *fasthttp.Response) (names []byte, size int) {
		for name, value := range r.Header.All() {
			names = append(append(names, name...), ' ')
			size += len(value)
		}
		return names, size + len(r.Body())
	}
	namesA, sizeA := names(a)
	namesB, sizeB := names(b)
	switch {
	case a.StatusCode() != b.StatusCode():
		return fmt.Errorf("status %d and %d", a.StatusCode(), b.StatusCode())
	case !bytes.Equal(namesA, namesB):
		return fmt.Errorf("header fields %s and %s", namesA, namesB)
	case sizeA-sizeB > slack || sizeB-sizeA > slack:
		return fmt.Errorf("sizes of %d and %d bytes", sizeA, sizeB)
	}
	return nil
}
