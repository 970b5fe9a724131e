// Package kernel asks the system for what net does not know of sockets: what waits to be accepted, and to let nothing
// more come; and for how many files the process may open. Where a system does not know it, that is an error.
package kernel

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxTTL is the largest time to live of a packet. Systems send with 64 or 128, and routers count it down.
const maxTTL = 255

// DropNew makes the kernel drop the packets that ask a listening socket for a connection, since their time to live is
// too short. Handshakes that have begun end as usual, so the backlog only shrinks, and closing the socket when it is
// empty resets no connection. Clients send such a packet again after a second and learn then that nobody listens.
//
// A filter (SO_ATTACH_FILTER) would do the same, but some kernels refuse it to everybody but root.
//
// A connection whose handshake ends later inherits the bound; [KeepAll] takes it away. A neighbour that sends with 255
// still connects.
func DropNew(socket syscall.Conn) error { return minTTL(socket, maxTTL) }

// KeepAll makes the kernel keep all packets of a connection that was accepted after DropNew. Until then it drops them,
// and the client sends them again.
func KeepAll(socket syscall.Conn) error { return minTTL(socket, 0) }

// minTTL sets the least time to live of the packets that a socket takes. A socket of IPv6 takes those of IPv4, too.
func minTTL(socket syscall.Conn, ttl int) error {
	return control(socket, func(fd int) error {
		family, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err == nil && family == unix.AF_INET6 {
			err = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_MINHOPCOUNT, ttl)
		}
		return errors.Join(err, unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_MINTTL, ttl))
	})
}

// Backlog is how many connections a listening socket has that were not accepted yet.
func Backlog(socket syscall.Conn) (n int, err error) {
	err = control(socket, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
		if err == nil {
			n = int(info.Unacked) // which means this while a socket listens
		}
		return err
	})
	return n, err
}

func control(socket syscall.Conn, do func(fd int) error) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
