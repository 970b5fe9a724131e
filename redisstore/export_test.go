package redisstore

// Waiting is how many operations wait to be sent.
func (s *Store) Waiting() int { return s.sum(func(l *lane) int { return l.queued }) }

// UnderWay is how many script calls are under way.
func (s *Store) UnderWay() int { return s.sum(func(l *lane) int { return l.flights }) }

// Withdrawn waits until no reservation is being given back.
func (s *Store) Withdrawn() { s.withdrawals.Wait() }

// Partition is where a client's states are.
func (s *Store) Partition(client string) int { return s.partition(client) }

func (s *Store) sum(of func(*lane) int) int {
	total := 0
	for i := range s.lanes {
		l := &s.lanes[i]
		l.mu.Lock()
		total += of(l)
		l.mu.Unlock()
	}
	return total
}
