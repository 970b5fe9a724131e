package proc

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Usage is the time for which processors were busy, and of that what some processes
// took, both since they started.
type Usage struct{ Busy, Own time.Duration }

// ReadUsage reads the usage of processors, by number, and of processes, by id. Only
// Linux tells.
func ReadUsage(cpus, pids []int) (Usage, error) {
	var u Usage
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, err
	}
	for line := range strings.Lines(string(stat)) {
		fields := strings.Fields(line)
		number, isCPU := strings.CutPrefix(fields[0], "cpu")
		if cpu, err := strconv.Atoi(number); !isCPU || err != nil || !slices.Contains(cpus, cpu) {
			continue
		}
		// User, nice, system and, after idle, waiting and interrupts, stolen.
		busy, err := ticks(fields, 1, 2, 3, 8)
		if err != nil {
			return u, err
		}
		u.Busy += busy
	}
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return u, err
		}
		// The fields are counted from behind the program's name, which is in parentheses.
		_, rest, _ := strings.Cut(string(stat), ") ")
		own, err := ticks(strings.Fields(rest), 11, 12)
		if err != nil {
			return u, err
		}
		u.Own += own
	}
	return u, nil
}

// ticks adds up fields, which count hundredths of a second.
func ticks(fields []string, places ...int) (time.Duration, error) {
	var sum time.Duration
	for _, place := range places {
		if place >= len(fields) {
			return 0, fmt.Errorf("%q has no field %d", fields, place)
		}
		n, err := strconv.ParseInt(fields[place], 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}
