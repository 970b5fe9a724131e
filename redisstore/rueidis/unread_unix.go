//go:build unix

package rueidis

import "syscall"

// hasUnread reports whether a socket has received what was not read yet, the end of the
// connection included.
func hasUnread(socket syscall.Conn) (unread bool) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		unread = err == nil
	})
	return unread && err == nil
}
