package server

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// dropNew makes the kernel drop the segments that ask a listening socket for a connection. Handshakes that have begun
// end as usual, so the backlog only shrinks, and closing the socket when it is empty resets no connection. Clients
// send such a segment again after a second and learn then that nobody listens.
//
// A connection whose handshake ends later inherits the filter, which lets everything else pass.
func dropNew(socket syscall.Conn) error {
	const flags, syn, all = 13, 0x02, 0xffffffff // the byte of the flags in the header of TCP, and the one of them
	filter := [...]unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: flags},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
	}
	return control(socket, func(fd int) error {
		return unix.SetsockoptSockFprog(
			fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]},
		)
	})
}

// backlog is how many connections a listening socket has that were not accepted yet.
func backlog(socket syscall.Conn) (n int, err error) {
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
