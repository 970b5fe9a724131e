package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/stint-go/stint/bench/internal/redislimit"
	"github.com/stint-go/stint/redisstore"
)

// A check is what must be right about what was admitted, however fast it was.
type check string

const (
	// books: everybody was admitted, and what a limiter says is left of a client's
	// quota is what it admitted less.
	books check = "books"
	// none: nobody was admitted.
	none check = "none"
	// bound: of one client that always wants more, at most the permits plus what
	// refilled were admitted, and at least that less a slack. Where the limiter tells
	// the times of its decisions, by these too, without any tolerance.
	bound check = "bound"
	// exact: every client was admitted as often as it asked, at most its permits.
	exact check = "exact"
)

// name is the check as the output states it.
func (c check) name(contender redislimit.Contender) string {
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
// time in which a busy machine lets nobody ask.
const (
	slackShare = 0.1
	slackTime  = 100 * time.Millisecond
)

// faults lists what is wrong. elapsed is the time since the ledger was empty.
func (s *session) faults(ctx context.Context, turns int, elapsed time.Duration) ([]string, error) {
	switch s.load.check {
	case books:
		return s.checkBooks(ctx, elapsed)
	case none:
		return s.checkNone(), nil
	case bound:
		return s.checkBound(turns > 0, elapsed), nil
	default:
		return s.checkExact(), nil
	}
}

func (s *session) checkBooks(ctx context.Context, elapsed time.Duration) ([]string, error) {
	var faults []string
	failed := s.ledger.failed.Load()
	for quota, q := range s.load.quotas {
		accounts := s.ledger.accounts[quota]
		if asked, admitted := s.ledger.sum(quota); admitted != asked && asked <= q.Permits {
			faults = append(faults, fmt.Sprintf("quota %d: %d of %d requests were denied, want none", quota, asked-admitted, asked))
		}
		for client := 0; client < len(accounts); client += max(len(accounts)/probes, 1) {
			a, err := s.subject.TakeOne(ctx, quota, s.names[quota][client])
			if err != nil {
				return nil, err
			}
			s.ledger.note(quota, uint32(client), a)
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
	return faults, nil
}

func (s *session) checkNone() []string {
	asked, admitted := s.ledger.sum(0)
	if admitted == 1 { // the one of the fill
		return nil
	}
	return []string{fmt.Sprintf("%d of %d requests were admitted, want 1", admitted, asked)}
}

func (s *session) checkBound(turns bool, elapsed time.Duration) []string {
	asked, admitted := s.ledger.sum(0)
	faults := s.boundFaults("by the caller's clock", elapsed, 1, turns, asked, admitted)
	if s.contender.TellsTime {
		// The times it tells are Redis's; on one machine that is the same clock.
		told := time.Duration(s.ledger.last-s.ledger.first) * time.Microsecond
		if most := elapsed + time.Millisecond + s.ahead(); told > most {
			faults = append(faults, fmt.Sprintf("the decisions' times span %v, want at most %v", told, most))
		}
		faults = append(faults, s.boundFaults("by the decisions' times", told, 0, turns, asked, admitted)...)
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

func (s *session) boundFaults(
	clock string,
	elapsed time.Duration,
	tolerance float64,
	turns bool,
	asked, admitted int64,
) []string {
	q, failed := s.load.quotas[0], s.ledger.failed.Load()
	most := int64(float64(q.Permits) + q.Refilled(elapsed+s.ahead()) + tolerance)
	least := float64(q.Permits)
	if !turns {
		refilled := (1-slackShare)*q.Refilled(elapsed) - q.Refilled(slackTime)
		if s.contender.Windows {
			refilled -= float64(q.Permits) // of the window that has not come
		}
		least += math.Max(refilled, 0)
	}
	least = math.Min(least, float64(asked)) - float64(failed)
	if admitted > most || float64(admitted) < least {
		return []string{fmt.Sprintf("%d of %d requests were admitted in %v %s, want %.0f to %d", admitted, asked, elapsed, clock, least, most)}
	}
	return nil
}

func (s *session) checkExact() []string {
	var faults []string
	failed := s.ledger.failed.Load()
	for client := range s.ledger.accounts[0] {
		account := &s.ledger.accounts[0][client]
		want := min(int64(account.asked.Load()), s.load.quotas[0].Permits)
		if got := int64(account.admitted.Load()); got > want || got < want-failed {
			faults = append(faults, fmt.Sprintf("%s was admitted %d times, want %d", s.names[0][client], got, want))
		}
	}
	return faults
}
