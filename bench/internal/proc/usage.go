package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// CPUTime is the user and system time that processes have taken; 0 for what the system
// does not tell, as only Linux does.
func CPUTime(pids ...int) (sum time.Duration) {
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The fields are counted from behind the program's name, which is in parentheses.
		_, rest, _ := strings.Cut(string(stat), ") ")
		sum += ticks(strings.Fields(rest), 11, 12)
	}
	return sum
}

// Busy is the time for which processors were busy, whoever kept them so; 0 for what the
// system does not tell.
func Busy(cpus ...int) (sum time.Duration) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(stat)) {
		fields := strings.Fields(line)
		number, isCPU := strings.CutPrefix(fields[0], "cpu")
		if cpu, err := strconv.Atoi(number); isCPU && err == nil && slices.Contains(cpus, cpu) {
			// User, nice, system and, after idle, waiting and interrupts, stolen.
			sum += ticks(fields, 1, 2, 3, 8)
		}
	}
	return sum
}

// ticks adds up fields, which count hundredths of a second.
func ticks(fields []string, indexes ...int) (sum time.Duration) {
	for _, i := range indexes {
		if i < len(fields) {
			n, _ := strconv.ParseInt(fields[i], 10, 64) // 0 if it is no number
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}
