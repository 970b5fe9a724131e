// Package exact proves the store in Redis exact under load: eight processes, which are this program again, hammer one
// client and then a thousand on one server. Every answer that any of them got is held against the exact model afterwards.
package exact

import (
	"context"
	"encoding/gob"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/load"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

var (
	duration   = flag.Duration("duration", 0, "`length` of each part, of which there are two for an algorithm; 0 for 240 decisions of each process")
	algorithms = flag.String("algorithms", "all", "comma-separated `names`, or all")
	processes  = flag.Int("processes", 8, "`number` of processes that ask")
)

// childMode as the first argument makes the program one of the processes; the second
// is then where Redis listens.
const childMode = "child"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childMode {
		if err := child(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// A part is what all processes do at once.
type part struct {
	Algorithm stint.Algorithm
	Keys      int
	Callers   int
	Duration  time.Duration
	Questions int // of each process; 0: for a duration
}

// policy has a limit that is so small that what is asked for exceeds it all the time,
// and so quick that there is always something new to admit. Each part has states of its
// own.
func (p part) policy() (*stint.Policy, error) {
	l := stint.Limit{Algorithm: p.Algorithm, Capacity: 100}
	every := 100 * time.Millisecond
	switch {
	case p.Keys > 1:
		l.Capacity, every = 5, 2*time.Second
	case p.Questions > 0: // which a busy machine may not answer faster than 1,000 a second
		l.Capacity = 10
	}
	if l.IsBucket() {
		l.Rate = stint.Per(l.Capacity, every)
	} else {
		l.Window = every
	}
	return stint.NewPolicy(fmt.Sprintf("%s-%d", p.Algorithm, p.Keys), l)
}

// For each algorithm eight processes ask for one client, and then for many. Each answer is right.
func TestEightProcessesAreExact(t *testing.T) {
	redis := testredis.Start(t)
	many, asked := 1000, notation.Algorithms()
	p := part{Callers: 4, Duration: *duration}
	if p.Duration == 0 {
		many, p.Questions = 20, 240
	}
	if *algorithms != "all" {
		asked = nil
		for name := range strings.SplitSeq(*algorithms, ",") {
			algorithm := must.Get(notation.ParseAlgorithm(name))(t)
			asked = append(asked, algorithm)
		}
	}
	const columns = "%-22v %6v %11v %11v %11v %9v %9v  %v"
	t.Logf(columns, "algorithm", "keys", "decisions/s", "decisions", "from memory", "admitted", "model", "verdict")
	for _, p.Algorithm = range asked {
		for _, p.Keys = range []int{1, many} {
			all, err := hammer(t.Context(), *processes, redis.Addr(), p)
			if err != nil {
				t.Fatalf("%s, %d keys: %v", p.Algorithm, p.Keys, err)
			}
			verdict := "exact"
			if wrong := len(all.faults); wrong > 0 {
				verdict = fmt.Sprintf("WRONG: %d", wrong)
				t.Errorf("%s, %d keys: %d answers are wrong: %q", p.Algorithm, p.Keys, wrong, all.faults[:min(10, wrong)])
			}
			t.Logf(columns, p.Algorithm, p.Keys, int64(float64(all.decisions)/all.elapsed.Seconds()), all.decisions, all.remembered, all.admitted, all.model, verdict)
			if all.admitted == 0 || all.admitted == all.decisions || all.admitted != all.model || p.Questions > 0 && all.decisions != int64(*processes*p.Questions) {
				t.Errorf("%s, %d keys: %+v: want some admitted and some denied, as many as by the model", p.Algorithm, p.Keys, all)
			}
		}
	}
}

// hammer lets so many children do a part at once, and checks what they were answered.
// A child says that it is connected by an empty report, and answers its part by another.
func hammer(ctx context.Context, processes int, addr string, p part) (*total, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the children that are left when one has failed
	reports, errs := make([]report, processes), make([]error, processes)
	begin := make(chan struct{})
	var connected, ended sync.WaitGroup
	connected.Add(processes)
	for i := range processes {
		ended.Go(func() {
			command := exec.CommandContext(ctx, self, childMode, addr)
			command.Stderr = os.Stderr
			in, err1 := command.StdinPipe()
			out, err2 := command.StdoutPipe()
			err := errors.Join(err1, err2)
			if err == nil {
				err = command.Start()
			}
			answers := gob.NewDecoder(out)
			if err == nil {
				err = answers.Decode(&report{})
			}
			connected.Done()
			<-begin
			if err == nil {
				err = gob.NewEncoder(in).Encode(p)
			}
			if err == nil {
				err = answers.Decode(&reports[i])
			}
			if command.Process != nil {
				err = errors.Join(err, command.Wait())
			}
			errs[i] = err
		})
	}
	connected.Wait()
	close(begin)
	ended.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return check(p.Keys, policy, reports), nil
}

// child is one process.
func child(ctx context.Context, addr string, in io.Reader, out io.Writer) error {
	conn, err := rueidis.Dial(rueidis.Config{URL: "redis://" + addr})
	if err != nil {
		return err
	}
	store, err := redisstore.New(conn, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	if err := testredis.Answered(ctx, store.Ping); err != nil {
		return err
	}
	answers := gob.NewEncoder(out)
	if err := answers.Encode(&report{}); err != nil {
		return err
	}
	var p part
	if err := gob.NewDecoder(in).Decode(&p); err != nil {
		return err
	}
	r, err := askAll(ctx, p, store)
	if err != nil {
		return err
	}
	return answers.Encode(r)
}

// askAll lets the callers ask for one permit of a random client, again and again.
func askAll(ctx context.Context, p part, store stint.Store) (*report, error) {
	policy, err := p.policy()
	if err != nil {
		return nil, err
	}
	limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: policy})
	if err != nil {
		return nil, err
	}
	r := newReport(p.Keys)
	draws := make([]*rand.Rand, p.Callers)
	for i := range draws {
		draws[i] = rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(i)))
	}
	var mu sync.Mutex
	var failed []error
	plan := load.Plan{Callers: p.Callers, Questions: p.Questions, Length: p.Duration}
	plan.Ask = func(caller, _ int, _ time.Time) {
		client := draws[caller].IntN(p.Keys)
		d, err := limiter.Allow(ctx, "client"+strconv.Itoa(client))
		if err != nil {
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
			return
		}
		r.Clients[client].enter(&d)
	}
	start := time.Now()
	plan.Run(ctx)
	r.Elapsed = time.Since(start)
	if len(failed) > 0 {
		return nil, fmt.Errorf("%d decisions failed, so what they took is not known; one: %w", len(failed), failed[0])
	}
	return r, nil
}
