//go:build !unix

package resp

import "syscall"

// tryWrite writes nothing: another goroutine does.
func tryWrite(syscall.RawConn, []byte) (int, error) { return 0, nil }
