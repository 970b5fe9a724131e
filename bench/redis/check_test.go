package redis

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/stint-go/stint/redisstore"
)

// A check is what must be right about what was admitted, however fast it was.
type check string

const (
	// books: everybody was admitted, and what a limiter says is left of a client's
	// quota is what it admitted less.
	books check = "books"
	// bound: of one client that always wants more, at most the permits plus what
	// refilled were admitted, and at least that less a slack. Where the limiter tells
	// the times of its decisions, by these too, without any tolerance.
	bound check = "bound"
	// exact: every client was admitted as often as it asked, at most its permits.
	exact check = "exact"
)

// name is the check as the output states it.
func (c check) name(contender contender) string {
	switch {
	case contender.Counter:
		return "counter"
	case c == bound && contender.TellsTime:
		return "bound_by_its_times"
	default:
		return string(c)
	}
}

// probes is how many clients of a quota are looked at to compare the books.
const probes = 100

// slack is how much of a bound's refill may be missing: a tenth, and what comes in the
// time in which a busy machine lets nobody ask. Where few ask, nothing of it has to be there.
const (
	slackShare = 0.1
	slackTime  = 100 * time.Millisecond
	few        = 10_000
)

// faults lists what is wrong after n more questions, for which the callers took a time.
func (s *session) faults(ctx context.Context, n int, elapsed time.Duration) (faults []string) {
	switch s.load.check {
	case books:
		return s.checkBooks(ctx, time.Since(s.started))
	case exact:
		for client := range s.accounts[0] {
			a := &s.accounts[0][client]
			faults = append(faults, s.boundFaults(s.names[0][client], 0, 0, true, int64(a.asked.Load()), int64(a.admitted.Load()))...)
		}
		return faults
	default: // nothing was asked before
		return s.checkBound(n < few, elapsed)
	}
}

func (s *session) checkBooks(ctx context.Context, elapsed time.Duration) (faults []string) {
	failed := s.failed.Load()
	for quota, q := range s.load.quotas {
		accounts := s.accounts[quota]
		if asked, admitted := s.sum(quota); admitted != asked && asked <= q.Permits {
			faults = append(faults, fmt.Sprintf("quota %d: %d of %d requests were denied, want none", quota, asked-admitted, asked))
		}
		for client := 0; client < len(accounts); client += max(len(accounts)/probes, 1) {
			a, err := s.subject.TakeOne(ctx, quota, s.names[quota][client])
			if err != nil {
				faults = append(faults, fmt.Sprintf("%s: what is left can't be asked: %v", s.names[quota][client], err))
				continue
			}
			s.note(quota, uint32(client), a)
			taken, admitted := q.Permits-a.Remaining, int64(accounts[client].admitted.Load())
			least, most := admitted, admitted+failed
			if !s.contender.Counter {
				// Parts of a permit are told rounded down, or to the nearest.
				least, most = least-int64(q.Refilled(elapsed))-1, most+1
			}
			if a.Allowed && (taken < least || taken > most) {
				faults = append(faults, fmt.Sprintf("%s: %d permits are gone, want %d to %d", s.names[quota][client], taken, least, most))
			}
		}
	}
	return faults
}

func (s *session) checkBound(lenient bool, elapsed time.Duration) []string {
	asked, admitted := s.sum(0)
	faults := s.boundFaults("by the caller's clock", elapsed, 1, lenient, asked, admitted)
	if s.contender.TellsTime {
		// The times it tells are Redis's; on one machine that is the same clock.
		told := time.Duration(s.last-s.first) * time.Microsecond
		if most := elapsed + time.Millisecond + s.ahead(); told > most {
			faults = append(faults, fmt.Sprintf("the decisions' times span %v, want at most %v", told, most))
		}
		faults = append(faults, s.boundFaults("by the decisions' times", told, 0, lenient, asked, admitted)...)
	}
	return faults
}

// ahead is how long before they are spent permits may be charged. By that much a lease
// may be wrong about the server's time, which it reckons from when it asked.
func (s *session) ahead() time.Duration {
	if s.load.quotas[0].Leased {
		return redisstore.DefaultLeaseTime
	}
	return 0
}

// boundFaults says what is wrong with so many admissions of what one client asked for in a time.
func (s *session) boundFaults(where string, elapsed time.Duration, tolerance float64, lenient bool, asked, admitted int64) []string {
	q, failed := s.load.quotas[0], s.failed.Load()
	most := int64(float64(q.Permits) + q.Refilled(elapsed+s.ahead()) + tolerance)
	least := float64(q.Permits)
	if !lenient {
		refilled := (1-slackShare)*q.Refilled(elapsed) - q.Refilled(slackTime)
		if s.contender.Windows {
			refilled -= float64(q.Permits) // of the window that has not come
		}
		least += math.Max(refilled, 0)
	}
	least = math.Min(least, float64(asked)) - float64(failed)
	if admitted > most || float64(admitted) < least {
		return []string{fmt.Sprintf("%d of %d requests were admitted in %v %s, want %.0f to %d", admitted, asked, elapsed, where, least, most)}
	}
	return nil
}
