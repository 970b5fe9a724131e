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
	sizes    []int            // of the versions, as JSON
	bytes    int              // all sizes
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
	text, err := v.MarshalJSON()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before != m.now.Head || v.Number != before.Number+1 {
		return ErrConflict
	}
	m.now = m.now.Apply(v)
	m.keep(v, len(text))
	for notify := range m.watchers {
		go (*notify)()
	}
	return nil
}

// keep adds a version to those that are kept, and lets go of the oldest that don't fit.
func (m *Memory) keep(v *Version, size int) {
	m.versions, m.sizes, m.bytes = append(m.versions, *v), append(m.sizes, size), m.bytes+size
	over := 0
	for ; len(m.sizes)-over > KeptVersions || m.bytes > KeptBytes && len(m.sizes)-over > 1; over++ {
		m.bytes -= m.sizes[over]
	}
	m.versions, m.sizes = slices.Delete(m.versions, 0, over), slices.Delete(m.sizes, 0, over)
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
