package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A row is one kind of work. start prepares it: what it does is not measured.
type row struct {
	name  string
	start func(r *rig) (*work, error)
}

// work is what is measured of a row.
type work struct {
	// callers is how many goroutines do it at the same time. Default: 0, one.
	callers int
	// op is operation i of a caller.
	op func(caller, i int) error
	// counts is how many operations a call of op is. Default: 0, one.
	counts int
	// server is the process whose time is measured. Default: 0, this one's.
	server int
	// redis is the process whose time is a row of its own, "NAME/redis". Default: 0, none.
	redis int
	// close ends what was started. Default: nil, nothing was.
	close func()
}

// rig is what rows share.
type rig struct {
	ctx      context.Context //nolint:containedctx // the program's own
	stint    string          // the program whose service is measured
	duration time.Duration   // of each row
	redis    *process        // nil until a row needs it
	limiters int             // that were made
	closing  []func()        // called in reverse order
}

func (r *rig) close() {
	for i := len(r.closing) - 1; i >= 0; i-- {
		r.closing[i]()
	}
}

// redisServer starts the server that all rows share, once.
func (r *rig) redisServer() (*process, error) {
	if r.redis != nil {
		return r.redis, nil
	}
	server, err := startRedis(r.ctx)
	if err != nil {
		return nil, err
	}
	r.redis = server
	r.closing = append(r.closing, func() { server.stop() })
	return server, nil
}

// checkEvery is how many operations a lone caller makes before it looks whether the time is over. A
// look costs nanoseconds, as decisions in memory do.
const checkEvery = 64

// measure prints a row's processor time for each operation. A quarter of the duration comes first
// and does not count: it fills caches and pools. A server's client runs in this process, so its time
// is not the server's.
func (r *rig) measure(row row) (err error) {
	procs := 1
	if strings.HasSuffix(row.name, "/procs=2") {
		procs = 2
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	w, err := row.start(r)
	if err != nil {
		return err
	}
	if w.close != nil {
		defer w.close()
	}
	debug.FreeOSMemory()
	if _, err := r.repeat(w, r.duration/4); err != nil { // until caches are warm
		return err
	}
	pid := w.server
	if pid == 0 {
		pid = os.Getpid()
	}
	pids := []int{pid}
	if w.redis != 0 {
		pids = append(pids, w.redis)
	}
	before, err := processorTimes(pids)
	if err != nil {
		return err
	}
	n, err := r.repeat(w, r.duration)
	if err != nil {
		return err
	}
	after, err := processorTimes(pids)
	if err != nil {
		return err
	}
	for i, name := range []string{row.name, row.name + "/redis"}[:len(pids)] {
		fmt.Printf("%s\t%.1f\n", name, float64(after[i]-before[i])/float64(n))
	}
	return nil
}

// repeat does the work for a time, and returns how many operations there were. The first error ends it
// for all callers. A caller that is the only one looks at the clock's flag every checkEvery operations;
// one of many looks after each, since its operations take longer.
func (r *rig) repeat(w *work, duration time.Duration) (int64, error) {
	var (
		stop  atomic.Bool
		done  atomic.Int64
		fault atomic.Pointer[error]
		group sync.WaitGroup
	)
	for caller := range max(w.callers, 1) {
		group.Go(func() {
			i := 0
			for ; !stop.Load() && r.ctx.Err() == nil; i += checkEvery {
				for j := range checkEvery {
					if err := w.op(caller, i+j); err != nil {
						first := err // err itself is not to be made on the heap
						fault.CompareAndSwap(nil, &first)
						stop.Store(true)
						return
					}
					if w.callers > 1 && stop.Load() { // one of many takes long for so many
						i += j + 1 - checkEvery
						break
					}
				}
			}
			done.Add(int64(i) * int64(max(w.counts, 1)))
		})
	}
	timer := time.AfterFunc(duration, func() { stop.Store(true) })
	defer timer.Stop()
	group.Wait()
	if err := fault.Load(); err != nil {
		return 0, *err
	}
	return done.Load(), r.ctx.Err()
}

// processorTimes are the user and system time that processes have taken, in nanoseconds. A process's
// clock has the id of clock_getcpuclockid(3): its number, complemented, above three bits, of which 2
// is the scheduler's time. That counts nanoseconds; /proc/PID/stat counts hundredths of a second.
func processorTimes(pids []int) ([]int64, error) {
	times := make([]int64, len(pids))
	var faults []error
	const scheduled = 2
	for i, pid := range pids {
		var at unix.Timespec
		faults = append(faults, unix.ClockGettime(int32(^pid<<3|scheduled), &at))
		times[i] = at.Nano()
	}
	return times, errors.Join(faults...)
}
