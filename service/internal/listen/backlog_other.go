//go:build !linux

package listen

import (
	"errors"
	"syscall"
)

// dropNew is not known here.
func dropNew(syscall.Conn) error { return errors.ErrUnsupported }

// keepAll has nothing to undo.
func keepAll(syscall.Conn) error { return errors.ErrUnsupported }

// backlog is not known here.
func backlog(syscall.Conn) (int, error) { return 0, errors.ErrUnsupported }
