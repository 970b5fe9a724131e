package main

import (
	"sync"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/bench/internal/redislimit"
)

// A ledger counts what each client of a load asked for and was admitted, from an empty
// Redis on.
type ledger struct {
	accounts [][]account // of each quota and client
	failed   atomic.Int64

	mu          sync.Mutex
	first, last stint.Instant // of all admissions, where their time is told
	timed       bool          // whether to note it
}

type account struct{ asked, admitted atomic.Uint32 }

func newLedger(names [][]string) *ledger {
	l := &ledger{accounts: make([][]account, len(names))}
	for quota := range names {
		l.accounts[quota] = make([]account, len(names[quota]))
	}
	return l
}

// filled notes that every client of a quota took a permit.
func (l *ledger) filled(quota int) {
	for i := range l.accounts[quota] {
		l.accounts[quota][i].asked.Add(1)
		l.accounts[quota][i].admitted.Add(1)
	}
}

// note notes an answer for a client of one quota.
func (l *ledger) note(quota int, client uint32, a redislimit.Answer) {
	account := &l.accounts[quota][client]
	account.asked.Add(1)
	if !a.Allowed {
		return
	}
	account.admitted.Add(1)
	if l.timed {
		l.noteTime(a.At)
	}
}

func (l *ledger) noteTime(at stint.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == 0 || at < l.first {
		l.first = at
	}
	l.last = max(l.last, at)
}

// sum is what all clients of a quota asked for and were admitted.
func (l *ledger) sum(quota int) (asked, admitted int64) {
	for i := range l.accounts[quota] {
		asked += int64(l.accounts[quota][i].asked.Load())
		admitted += int64(l.accounts[quota][i].admitted.Load())
	}
	return asked, admitted
}
