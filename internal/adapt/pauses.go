package adapt

import (
	"context"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
)

// Pauses remember until when servers asked not to be called, by key. The zero value remembers nothing. Set
// the fields before the first use. It is safe for concurrent use.
type Pauses struct {
	// Most is how many keys are remembered; of more, those whose pause ends first are forgotten.
	Most int
	// Longest is the longest pause that is granted.
	Longest time.Duration

	mu    sync.Mutex
	until map[string]time.Time
}

// Left is how long the key's pause still lasts, 0 when there is none.
func (p *Pauses) Left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, pausing := p.until[key]
	left := max(time.Until(until), 0)
	if pausing && left == 0 {
		delete(p.until, key)
	}
	return left
}

// Await waits until the key's pause is over. It returns at once, with what is left of it and an
// error that wraps stint.ErrDeadline, when the context's deadline comes before; and the context's
// error when it ends.
func (p *Pauses) Await(ctx context.Context, key string) (left time.Duration, err error) {
	for {
		if left = p.Left(key); left == 0 {
			return 0, nil
		}
		if deadline, bounded := ctx.Deadline(); bounded && left > time.Until(deadline) {
			return left, stint.ErrDeadline
		}
		if err := sleep.For(ctx, left); err != nil {
			return left, err
		}
	}
}

// Add makes the key pause so long from now on. A pause that lasts longer stays: answers come in any
// order.
func (p *Pauses) Add(key string, pause time.Duration) {
	now := time.Now()
	until := now.Add(min(pause, p.Longest))
	p.mu.Lock()
	defer p.mu.Unlock()
	earlier, pausing := p.until[key]
	if pause <= 0 || earlier.After(until) {
		return
	}
	if p.until == nil {
		p.until = map[string]time.Time{}
	}
	if !pausing && len(p.until) >= p.Most {
		p.makeRoom(now)
	}
	p.until[key] = until
}

// makeRoom forgets what is over, or else the key whose pause ends first.
func (p *Pauses) makeRoom(now time.Time) {
	var first string
	var soonest time.Time
	for key, until := range p.until {
		if !until.After(now) {
			delete(p.until, key)
		} else if soonest.IsZero() || until.Before(soonest) {
			first, soonest = key, until
		}
	}
	if len(p.until) >= p.Most {
		delete(p.until, first)
	}
}
