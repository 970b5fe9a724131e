//go:build unix && !linux

package testredis

import "syscall"

// dieWithParent does nothing: only Linux can.
func dieWithParent() *syscall.SysProcAttr { return nil }

// paused takes the signal's word for it.
func paused(int) error { return nil }
