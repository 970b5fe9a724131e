package testredis

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// dieWithParent lets the kernel kill the process when the test's process is gone,
// however that ended.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// paused returns nil when the process is stopped by a signal, which it is a moment
// after the signal was sent.
func paused(pid int) error {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return permanent{fmt.Errorf("testredis: %w", err)}
	}
	// The state follows the program's name in parentheses.
	state := stat[bytes.LastIndexByte(stat, ')')+1:]
	if !bytes.HasPrefix(state, []byte(" T")) {
		return errors.New("the process is not stopped yet")
	}
	return nil
}
