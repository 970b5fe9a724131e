package enforce

// Queues are how many wait queues there are.
func (l *Limiter) Queues() int {
	l.waiting.mu.Lock()
	defer l.waiting.mu.Unlock()
	return l.waiting.queues.Len()
}
