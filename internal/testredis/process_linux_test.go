package testredis

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// TestDiesWithParent runs this test program again, as a parent that is killed.
func TestDiesWithParent(t *testing.T) {
	const inner = "TESTREDIS_PARENT"
	if os.Getenv(inner) != "" {
		fmt.Println("server", shared.process.pid())
		select {} // until killed
	}
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDiesWithParent$")
	parent.Env = append(os.Environ(), inner+"=1", "TMPDIR="+t.TempDir())
	out := must.Get(parent.StdoutPipe())(t)
	must.Do(t, parent.Start())
	var pid int
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "server %d", &pid)
	}
	must.Do(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	if pid == 0 {
		t.Fatal("the inner run started no server")
	}
	if err := eventually(func() error { return dead(pid) }); err != nil {
		t.Errorf("the server outlives its parent: %v", err)
	}
}

// dead returns nil when the process is gone, or only its exit status is left.
func dead(pid int) error {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return nil
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || bytes.Contains(stat, []byte(") Z")) {
		return nil // gone meanwhile
	}
	return fmt.Errorf("process %d: %.40s", pid, stat)
}
