//go:build !linux

package kernel

import (
	"errors"
	"syscall"
)

// DropNew is not known here.
func DropNew(syscall.Conn) error { return errors.ErrUnsupported }

// KeepAll has nothing to undo.
func KeepAll(syscall.Conn) error { return errors.ErrUnsupported }

// Backlog is not known here.
func Backlog(syscall.Conn) (int, error) { return 0, errors.ErrUnsupported }
