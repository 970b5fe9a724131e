package docs_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/redisstore/rueidis"
)

const outgoingPage = "docs/outgoing.md"

// paces are the limits of 50 a second that the page compares.
var paces = []struct {
	name  string
	limit stint.Limit
}{
	{"TokenBucket(1, PerSecond(50))", stint.TokenBucket(1, stint.PerSecond(50))},
	{"TokenBucket(2, PerSecond(50))", stint.TokenBucket(2, stint.PerSecond(50))},
	{"LeakyBucket(1, PerSecond(50))", stint.LeakyBucket(1, stint.PerSecond(50))},
	{"LeakyBucket(2, PerSecond(50))", stint.LeakyBucket(2, stint.PerSecond(50))},
	{"LeakyBucket(8, PerSecond(50))", stint.LeakyBucket(8, stint.PerSecond(50))},
}

// A lateStore is as far away as a server: each question reaches it late.
type lateStore struct {
	stint.Store
	late time.Duration
}

func (s lateStore) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	if err := sleep.For(ctx, s.late); err != nil {
		return stint.Decision{}, err
	}
	return s.Store.Decide(ctx, op)
}

// perform has workers of each limiter wait for jobs of one key for a time, and counts the jobs of each limiter.
func perform(t *testing.T, workers []int, limiters []*stint.Limiter, lasting time.Duration) []int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lasting)
	defer cancel()
	done := make([]atomic.Int64, len(limiters))
	var group sync.WaitGroup
	for i, limiter := range limiters {
		for range workers[i] {
			group.Go(func() {
				for {
					if _, err := limiter.Wait(ctx, "smtp.example.com"); err != nil {
						return // ctx has ended
					}
					done[i].Add(1)
				}
			})
		}
	}
	group.Wait()
	counts := make([]int, len(done))
	for i := range done {
		counts[i] = int(done[i].Load())
	}
	return counts
}

// The page's table of what eight workers get when they are late.
func TestLatePaces(t *testing.T) {
	for _, pace := range paces {
		cells := []string{"`" + pace.name + "`"}
		for _, late := range []time.Duration{0, time.Millisecond, 5 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				limiter := must.Get(stint.New(lateStore{newStore(), late}, "mail", pace.limit))(t)
				cells = append(cells, fmt.Sprintf("%.1f", float64(perform(t, []int{8}, []*stint.Limiter{limiter}, 100*time.Second)[0])/100))
			})
		}
		if !strings.Contains(pages(t)[outgoingPage], "| "+strings.Join(cells, " | ")+" |") {
			t.Errorf("the page lacks %v", cells)
		}
	}
}

// Calls that are up to 100 ms late reach the other side in the second after: of 50 a second up to 55 in one, of 44 no more than 50.
func TestMargin(t *testing.T) {
	for pace, want := range map[int64]int{50: 55, 44: 49} {
		limiter := must.Get(stint.New(stillStore(), "vendor", stint.LeakyBucket(500, stint.PerSecond(pace))))(t)
		var turns []time.Duration
		for range 500 {
			decision, err := limiter.Allow(t.Context(), "vendor")
			if err != nil || !decision.Allowed {
				t.Fatal(decision, err)
			}
			turns = append(turns, decision.Delay)
		}
		most := 0
		for i, first := range turns { // the first comes 100 ms late, the last of the second after that in time
			end := first + 100*time.Millisecond + time.Second
			at, _ := slices.BinarySearch(turns[i:], end)
			most = max(most, at)
		}
		if most != want {
			t.Errorf("at %d a second %d calls arrive in one; want %d", pace, most, want)
		}
	}
}

// Two processes share a pace by the number of their workers, if the capacity has room for them.
func TestShares(t *testing.T) {
	for capacity, many := range map[int64]float64{16: 44, 8: 44, 4: 40, 2: 33} {
		hasRow(t, outgoingPage, fmt.Sprint(capacity), fmt.Sprintf("%.0f calls/s", many), fmt.Sprintf("%.0f calls/s", 50-many))
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			var limiters []*stint.Limiter
			for range 2 {
				limiter, err := stint.New(lateStore{store, time.Millisecond}, "mail", stint.LeakyBucket(capacity, stint.PerSecond(50)))
				if err != nil {
					t.Fatal(err)
				}
				limiters = append(limiters, limiter)
			}
			calls := perform(t, []int{8, 1}, limiters, 100*time.Second)
			// Which of two that ask at the same time comes first, is up to the scheduler.
			if got := float64(calls[0]) / 100; math.Abs(got-many) > 1.5 || calls[0]+calls[1] < 4990 {
				t.Errorf("of a capacity of %d they have %d calls in 100 s", capacity, calls)
			}
		})
	}
}

// Two processes on one Redis: the turns of all their workers are 20 ms apart.
func TestSharedPace(t *testing.T) {
	ctx := t.Context()
	var mu sync.Mutex
	var turns []time.Duration
	var workers sync.WaitGroup
	for range 2 {
		store, err := rueidis.Open(rueidis.Config{URL: "redis://" + server.Addr(), Failover: failover.Config{Mode: failover.Local, Timeout: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Ready(ctx); err != nil { // connected, so that the first turn takes one round trip
			log.Print(err) // and not log.Fatal: the store paces this process meanwhile, and goes on connecting
		}
		limiter, err := stint.New(store, "mail", stint.LeakyBucket(32, stint.PerSecond(50))) // four processes with eight workers each
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(store.Close)
		for range 8 {
			workers.Go(func() {
				for range 2 {
					turn, err := limiter.Wait(ctx, "smtp.example.com")
					if err != nil || turn.Degraded {
						t.Error(turn, err)
						return
					}
					mu.Lock()
					turns = append(turns, time.Duration(turn.At)*time.Microsecond+turn.Delay)
					mu.Unlock()
				}
			})
		}
	}
	workers.Wait()
	slices.Sort(turns)
	for i := range turns[1:] {
		if gap := turns[i+1] - turns[i]; gap < 20*time.Millisecond-time.Microsecond {
			t.Errorf("turn %d is %s after the one before", i+1, gap)
		}
	}
	if len(turns) != 32 {
		t.Errorf("%d turns", len(turns))
	}
}

// The page's line for cron runs its command, and the next job's turn is a second later.
func TestCron(t *testing.T) {
	program := must.Get(stintProgram())(t)
	line := strings.SplitN(strings.TrimSpace(blocks(t, outgoingPage, "crontab")[0]), " ", 6)
	command := strings.Replace(line[5], "redis://redis:6379 --store-timeout 1s", server.URL()+" --store-timeout 30s", 1)
	run := func(command string) string {
		shell := exec.CommandContext(t.Context(), "bash", "-c", command)
		shell.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
		text, err := shell.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, text)
		}
		return string(text)
	}
	if text := run(strings.Replace(command, "report.sh", "echo reported", 1)); text != "reported\n" {
		t.Errorf("the job prints %q", text)
	}
	const slow = "leak: 1/h" // so that the machine's speed does not matter
	check, _, _ := strings.Cut(strings.Replace(command, "leak: 1/s", slow, 1), " -- ")
	check = strings.Replace(check, "reports", "others", 1)
	for _, want := range []string{`"delayMicros":0,`, `"delayMicros":3[56]`} {
		if text := run(check + " --json"); !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s answers %s, want %s", check, text, want)
		}
	}
}

// The page's last column: go test ./test/docs -run '^$' -bench Pace -benchtime 1000x.
func BenchmarkPace(b *testing.B) {
	for _, pace := range paces {
		b.Run(strings.NewReplacer(", PerSecond(50)", "").Replace(pace.name), func(b *testing.B) {
			limiter := must.Get(stint.New(newStore(), "mail", pace.limit))(b)
			var left atomic.Int64
			left.Store(int64(b.N))
			var workers sync.WaitGroup
			for range 8 {
				workers.Go(func() {
					for left.Add(-1) >= 0 {
						if _, err := limiter.Wait(b.Context(), "smtp.example.com"); err != nil {
							b.Error(err)
						}
					}
				})
			}
			workers.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}
