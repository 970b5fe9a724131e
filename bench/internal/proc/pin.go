package proc

import (
	"context"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

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

// Pin keeps all threads of this process on one processor, those it starts later too.
func Pin(ctx context.Context, cpu int) error {
	text, err := exec.CommandContext(ctx, "taskset", "-acp", strconv.Itoa(cpu), strconv.Itoa(os.Getpid())).CombinedOutput()
	if err != nil {
		return fmt.Errorf("taskset: %w: %s", err, text)
	}
	return nil
}
