package store

import (
	"context"
	"sync"
)

// Memory is a Store in the process, which is lost when the process ends. Make it with [NewMemory].
type Memory struct {
	mu        sync.Mutex
	revisions []Revision // the newest last, numbered without gaps
	bytes     int64      // of all of them
	codec     Codec
	watchers  map[*func()]bool
}

var _ Store = (*Memory)(nil)

// NewMemory makes a store without revisions.
func NewMemory() *Memory { return &Memory{watchers: map[*func()]bool{}} }

// head is the newest revision, with m.mu held.
func (m *Memory) head() Revision {
	if len(m.revisions) == 0 {
		return Revision{}
	}
	return m.revisions[len(m.revisions)-1]
}

// Head returns the newest revision's ID.
func (m *Memory) Head(ctx context.Context) (ID, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.head().ID, ctx.Err()
}

// Load returns a revision, the newest with number 0.
func (m *Memory) Load(ctx context.Context, number int64) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return Revision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if number == 0 {
		return m.head(), nil
	}
	at := number - (m.head().Number - int64(len(m.revisions)) + 1)
	if at < 0 || at >= int64(len(m.revisions)) {
		return Revision{}, ErrNotKept
	}
	return m.revisions[at], nil
}

// Put makes next the newest revision.
func (m *Memory) Put(ctx context.Context, expected ID, next *Revision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := m.codec.Encode(next.Rules)
	if err != nil {
		return err
	}
	next.Count, next.Bytes = len(next.Rules), int64(len(text))
	m.mu.Lock()
	defer m.mu.Unlock()
	if expected != m.head().ID || next.Number != expected.Number+1 {
		return ErrConflict
	}
	m.codec.Known(text, next.Rules)
	m.revisions, m.bytes = append(m.revisions, *next), m.bytes+next.Bytes
	for len(m.revisions) > 1 && (len(m.revisions) > KeptRevisions || m.bytes > KeptBytes) {
		m.bytes -= m.revisions[0].Bytes
		m.revisions[0] = Revision{}
		m.revisions = m.revisions[1:]
	}
	for notify := range m.watchers {
		go (*notify)()
	}
	return nil
}

// History returns revisions without their rules, the newest first.
func (m *Memory) History(ctx context.Context, before int64, n int) ([]Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Info
	for i := len(m.revisions) - 1; i >= 0 && len(list) < n; i-- {
		if before == 0 || m.revisions[i].Number < before {
			list = append(list, m.revisions[i].Info)
		}
	}
	return list, ctx.Err()
}

// Watch notifies of each revision.
func (m *Memory) Watch(ctx context.Context, ready, notify func()) error {
	m.mu.Lock()
	m.watchers[&notify] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, &notify)
	}()
	ready()
	<-ctx.Done()
	return ctx.Err()
}

// Close does nothing.
func (m *Memory) Close() {}
