//go:build unix

package resp

import (
	"errors"
	"syscall"
)

// tryWrite writes as much as the kernel takes at once.
func tryWrite(conn syscall.RawConn, text []byte) (n int, err error) {
	failed := conn.Write(func(fd uintptr) bool {
		for {
			if n, err = syscall.Write(int(fd), text); !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	})
	switch {
	case failed != nil:
		return 0, failed
	case errors.Is(err, syscall.EAGAIN):
		return 0, nil
	}
	return max(n, 0), err
}
