//go:build unix

// Package measure lets a test count what a program runs through, in a build with -cover. Only programs
// that are built to be measured import it.
//
// SIGUSR1 clears the counters and SIGUSR2 writes them, so that those of one request can be told from
// those of starting up.
package measure

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/coverage"
	"syscall"
)

// Listen has the counters of coverage cleared by SIGUSR1 and written by SIGUSR2, each time to a folder
// of $MEASURE, which is named by the number of the clearing. It returns true, so that a program may call
// it before main.
func Listen() bool {
	dir := os.Getenv("MEASURE")
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for n := 0; ; {
			if <-signals == syscall.SIGUSR1 {
				n++
				must(coverage.ClearCounters())
				must(os.Mkdir(filepath.Join(dir, fmt.Sprint(n, ".cleared")), 0o700))
				continue
			}
			written := filepath.Join(dir, fmt.Sprint(n, ".writing"))
			must(os.Mkdir(written, 0o700))
			must(coverage.WriteMetaDir(written))
			must(coverage.WriteCountersDir(written))
			must(os.Rename(written, filepath.Join(dir, fmt.Sprint(n))))
		}
	}()
	return true
}

// must ends the program with an error: a measurement with parts missing is worse than none.
func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
