// Package proc starts the programs that are measured, and says what they use.
package proc

import (
	"context"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds how long a program may take until it listens.
const patience = 5 * time.Minute

// Start starts a program with more of an environment, waits until it listens at an address, and returns its number. It
// ends with the benchmark.
func Start(tb testing.TB, listens string, env []string, program string, args ...string) (pid int) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	said, err := os.Create(filepath.Join(tb.TempDir(), "log"))
	if err != nil {
		tb.Fatal(err)
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	command.Env, command.Stdout, command.Stderr = append(os.Environ(), env...), said, said
	if err := command.Start(); err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // how it ends is not what is measured
		close(ended)
	}()
	tb.Cleanup(func() {
		cancel()
		<-ended
		_ = said.Close()
	})
	fail := func(what string) {
		text, _ := os.ReadFile(said.Name())
		tb.Fatalf("%s %s: %s", program, what, text)
	}
	for deadline := time.After(patience); ; {
		if conn, err := new(net.Dialer).DialContext(ctx, "tcp", listens); err == nil {
			_ = conn.Close()
			return command.Process.Pid
		}
		select {
		case <-ended:
			fail("ended before it listened")
		case <-deadline:
			fail("does not listen at " + listens)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// CPUs lists the processors that this process may run on; none where the system does not
// tell, as only Linux does.
func CPUs() (cpus []int) {
	status, _ := os.ReadFile("/proc/self/status")
	_, mask, _ := strings.Cut(string(status), "\nCpus_allowed:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	bits, _ := new(big.Int).SetString(strings.ReplaceAll(mask, ",", ""), 16)
	for cpu := 0; bits != nil && cpu < bits.BitLen(); cpu++ {
		if bits.Bit(cpu) == 1 {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

// Pin keeps all threads of a process on some processors, those it starts later, too.
func Pin(tb testing.TB, pid int, cpus ...int) {
	tb.Helper()
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
	text, err := exec.CommandContext(tb.Context(), "taskset", "-acp", list, strconv.Itoa(pid)).CombinedOutput()
	if err != nil {
		tb.Fatalf("taskset: %v: %s", err, text)
	}
}
