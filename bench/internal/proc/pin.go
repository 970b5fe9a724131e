package proc

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// CPUs lists the processors that this process may run on, as taskset tells them.
func CPUs(ctx context.Context) ([]int, error) {
	text, err := exec.CommandContext(ctx, "taskset", "-cp", strconv.Itoa(os.Getpid())).Output()
	if err != nil {
		return nil, fmt.Errorf("taskset: %w", err)
	}
	_, list, found := strings.Cut(string(text), "list:")
	if !found {
		return nil, fmt.Errorf("taskset said %q, which has no list of processors", text)
	}
	return parseCPUs(strings.TrimSpace(list))
}

// parseCPUs reads a list such as 0-3,8.
func parseCPUs(list string) ([]int, error) {
	var cpus []int
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		if err != nil {
			return nil, fmt.Errorf("processors are %q; allowed: a list such as 0-3,8", list)
		}
		to, err := strconv.Atoi(last)
		if err != nil || to < from {
			return nil, fmt.Errorf("processors are %q; allowed: a list such as 0-3,8", list)
		}
		for cpu := from; cpu <= to; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// Pin keeps all threads of this process on one processor, those it starts later too.
func Pin(ctx context.Context, cpu int) error {
	text, err := exec.CommandContext(ctx, "taskset", "-acp", strconv.Itoa(cpu), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, text)
	}
	return nil
}
