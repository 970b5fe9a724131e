//go:build !unix

package redisstore

import "syscall"

// hasUnread is not known here.
func hasUnread(syscall.Conn) bool { return false }
