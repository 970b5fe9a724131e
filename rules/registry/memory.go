package registry

import (
	"context"
	"slices"
	"sync"
)

// Memory is a backend in the process: its rules end with it. Make it with [NewMemory].
type Memory struct {
	mu       sync.Mutex
	now      Snapshot
	versions []Version        // the newest last
	watchers map[*func()]bool // of which each is called with every version
}

// NewMemory makes a backend without rules.
func NewMemory() *Memory { return &Memory{watchers: map[*func()]bool{}} }

// Head is the newest version.
func (m *Memory) Head(ctx context.Context) (Head, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now.Head, ctx.Err()
}

// Load returns all rules.
func (m *Memory) Load(ctx context.Context) (Snapshot, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, ctx.Err()
}

// Commit makes v the newest version.
func (m *Memory) Commit(ctx context.Context, before Head, v *Version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before != m.now.Head || v.Number != before.Number+1 {
		return ErrConflict
	}
	m.now = m.now.Apply(v)
	m.versions = append(m.versions, *v)
	if over := len(m.versions) - KeptVersions; over > 0 {
		m.versions = slices.Delete(m.versions, 0, over)
	}
	for notify := range m.watchers {
		go (*notify)()
	}
	return nil
}

// Versions returns versions, the newest first.
func (m *Memory) Versions(ctx context.Context, before int64, n int) ([]Version, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Version
	for i := len(m.versions) - 1; i >= 0 && len(list) < n; i-- {
		if before == 0 || m.versions[i].Number < before {
			list = append(list, m.versions[i])
		}
	}
	return list, ctx.Err()
}

// Watch notifies of each version.
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
