package redisstore

// Waiting is how many operations wait to be sent.
func (s *Store) Waiting() int { return s.sum(func(l *lane) int { return l.queued }) }

// UnderWay is how many script calls are under way.
func (s *Store) UnderWay() int { return s.sum(func(l *lane) int { return l.flights }) }

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
