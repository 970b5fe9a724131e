//go:build !unix

package rueidis

import "syscall"

// hasUnread is not known here.
func hasUnread(syscall.Conn) bool { return false }
