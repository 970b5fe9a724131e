package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The load: so many callers, each asking again a pace after it was answered, for one of
// so many clients by turns. The limit is far below what they ask for, so that a permit
// too many would be admitted at once.
const (
	fewCallers  = 32
	manyCallers = 512
	clients     = 8
	pace        = 2 * time.Millisecond

	capacity = 50
	perSec   = 200 // permits refilled to each client
)

// deadline is what a call of the store may take, and scheduling what a busy machine may
// add to it.
const (
	deadline   = 100 * time.Millisecond
	scheduling = 50 * time.Millisecond
)

// answer is one call as its caller saw it.
type answer struct {
	client   int
	start    time.Duration // since the load began
	took     time.Duration
	decision stint.Decision
	err      error
}

// exact reports whether the store decided, or what is remembered of it.
func (a *answer) exact() bool { return a.err == nil && !a.decision.Degraded }

// served reports whether the server decided.
func (a *answer) served() bool { return a.exact() && a.decision.Source == stint.SourceStore }

// load is the callers at work.
type load struct {
	began time.Time
	stop  context.CancelFunc
	work  sync.WaitGroup

	mu      sync.Mutex
	answers [][]answer // by caller
	late    []time.Duration
	exact   time.Duration // when the last question was asked that the store decided
}

// startLoad starts the callers.
func startLoad(t testing.TB, limiter *stint.Limiter, callers int) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{began: time.Now(), stop: cancel, answers: make([][]answer, callers)}
	for caller := range callers {
		l.work.Go(func() {
			tick := time.NewTicker(pace)
			defer tick.Stop()
			for turn := caller; ; turn++ {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				l.ask(limiter, caller, turn%clients)
			}
		})
	}
	l.work.Go(func() { watchScheduler(ctx, &l.mu, &l.late) })
	return l
}

func (l *load) ask(limiter *stint.Limiter, caller, client int) {
	start := time.Now()
	d, err := limiter.Allow(context.Background(), fmt.Sprintf("user:%d", client))
	a := answer{client: client, start: start.Sub(l.began), took: time.Since(start), decision: d, err: err}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[caller] = append(l.answers[caller], a)
	if a.exact() {
		l.exact = max(l.exact, a.start)
	}
}

// watchScheduler notes by how much a goroutine that wants to run every pace runs late:
// what is asked of calls is not asked of the machine.
func watchScheduler(ctx context.Context, mu sync.Locker, late *[]time.Duration) {
	for ctx.Err() == nil {
		start := time.Now()
		timer := time.NewTimer(pace)
		<-timer.C
		mu.Lock()
		*late = append(*late, max(0, time.Since(start)-pace))
		mu.Unlock()
	}
}

// now is the load's time.
func (l *load) now() time.Duration { return time.Since(l.began) }

// exactSince reports whether a call that began after a time was decided by the store.
func (l *load) exactSince(at time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exact >= at
}

// mostByMode reports whether the mode answered more of the calls that began after a time than the store.
func (l *load) mostByMode(since time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	more := 0
	for _, answers := range l.answers {
		for i := len(answers) - 1; i >= 0 && answers[i].start >= since; i-- {
			if answers[i].exact() {
				more--
			} else {
				more++
			}
		}
	}
	return more > 0
}

// all ends the load and returns the answers by the time of the question.
func (l *load) all() []answer {
	l.stop()
	l.work.Wait()
	answers := slices.Concat(l.answers...)
	slices.SortFunc(answers, func(a, b answer) int { return int(a.start - b.start) })
	return answers
}

// quantile sorts times, and returns the given share's quantile; 1 is the longest.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[int(share*float64(len(times)-1))]
}

// took are the answers' times.
func took(answers []answer) (times []time.Duration) {
	for i := range answers {
		times = append(times, answers[i].took)
	}
	return times
}

// between selects the answers to questions of [from, to).
func between(answers []answer, from, to time.Duration) []answer {
	low, _ := slices.BinarySearchFunc(answers, from, func(a answer, t time.Duration) int { return int(a.start - t) })
	high, _ := slices.BinarySearchFunc(answers, to, func(a answer, t time.Duration) int { return int(a.start - t) })
	return answers[low:max(low, high)]
}

// A tally is what became of some answers.
type tally struct {
	exact, degraded, refused, overloaded, other int
	err                                         error // one of the others
}

func count(answers []answer) (n tally) {
	for i := range answers {
		switch a := &answers[i]; {
		case errors.Is(a.err, stint.ErrUnavailable):
			n.refused++
		case errors.Is(a.err, stint.ErrOverloaded):
			n.overloaded++
		case a.err != nil:
			n.other, n.err = n.other+1, a.err
		case a.decision.Degraded:
			n.degraded++
		default:
			n.exact++
		}
	}
	return n
}

// excess is by how many permits the store admitted a client more than its limit lets,
// in the worst case; below 0 it is less.
func excess(answers []answer) float64 {
	worst := -1e9
	for client := range clients {
		admitted, first, last := 0, time.Duration(-1), time.Duration(0)
		for i := range answers {
			a := &answers[i]
			if a.client != client || !a.exact() || !a.decision.Allowed {
				continue
			}
			admitted++
			if first < 0 {
				first = a.start
			}
			last = max(last, a.start+a.took)
		}
		worst = max(worst, float64(admitted)-capacity-perSec*(last-first).Seconds())
	}
	return worst
}
