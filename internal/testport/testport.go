// Package testport gives ports of loopback to servers that can't choose one themselves. The system gives
// the ports above to connections, and to listeners that leave the choice to it; here they are below, so
// that nobody has one meanwhile.
package testport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
)

// From lowest on there are count ports: with the bus of a node of a cluster, 10,000 above, still below the system's.
const (
	lowest = 10_000
	count  = 12_000
)

// A Port is a TCP port of 127.0.0.1 on which nobody listened. It is held by UDP sockets of the same number,
// and of those above it, for which nobody here has a use: so no other process that asks here is given it,
// until it is closed, or this process ends. Its methods are not safe for concurrent use.
type Port struct {
	Number  int
	sockets []*net.UDPConn
}

// Take takes a port, and those that are so far above it.
func Take(above ...int) (*Port, error) {
	for range 10 * count {
		p := &Port{Number: lowest + rand.IntN(count)}
		if p.hold(p.Number, above) {
			return p, nil
		}
		p.Close()
	}
	return nil, errors.New("testport: no port is free")
}

// Of takes a port until a test ends.
func Of(t testing.TB) int {
	t.Helper()
	p, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p.Number
}

// Address is 127.0.0.1 with a port of [Of].
func Address(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(Of(t)))
}

// Close gives the port back.
func (p *Port) Close() {
	for _, socket := range p.sockets {
		_ = socket.Close() // it was not used
	}
	p.sockets = nil
}

// hold reports whether it could hold a port and those above it.
func (p *Port) hold(port int, above []int) bool {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	p.sockets = append(p.sockets, socket)
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil || listener.Close() != nil {
		return false
	}
	return len(above) == 0 || p.hold(p.Number+above[0], above[1:])
}
