package enforce

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/stint-go/stint"
)

// A client is one whom a rule counts.
type client struct{ policy, key string }

// lines are those of the clients for whom somebody waits. The zero value has none.
type lines struct {
	mu  sync.Mutex
	all map[client][]*place // the first of each may try
}

// A place is one request's in its line.
type place struct {
	lines  *lines
	client client
	turn   chan struct{} // closed when it is the first; nil: not in the line
}

// of makes a place for a claim, outside of the line.
func (l *lines) of(claim stint.Claim) *place {
	return &place{lines: l, client: client{claim.Policy.Name(), claim.Key}}
}

// busy reports whether somebody waits already.
func (p *place) busy() bool {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return len(p.lines.all[p.client]) > 0
}

// join takes the last place of the line, unless it is in the line. It reports whether there was
// room.
func (p *place) join(most int) bool {
	if p.turn != nil {
		return true
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	line := p.lines.all[p.client]
	if len(line) >= most {
		return false
	}
	p.turn = make(chan struct{})
	if len(line) == 0 {
		close(p.turn)
	}
	if p.lines.all == nil {
		p.lines.all = map[client][]*place{}
	}
	p.lines.all[p.client] = append(line, p)
	return true
}

// first reports whether the place is the first of the line, which it joins if it can.
func (p *place) first(most int) bool {
	if !p.join(most) {
		return false
	}
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// await joins the line and waits until the place is the first. It reports false when the line is
// full, or the deadline comes before.
func (p *place) await(ctx context.Context, most int, deadline time.Time) (bool, error) {
	if p.first(most) {
		return true, nil
	}
	if p.turn == nil {
		return false, nil
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-p.turn:
		return true, nil
	case <-timer.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// leave gives the place up; the next one in the line has its turn.
func (p *place) leave() {
	if p.turn == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	line := p.lines.all[p.client]
	p.turn = nil
	at := slices.Index(line, p)
	line = slices.Delete(line, at, at+1)
	if len(line) == 0 {
		delete(p.lines.all, p.client)
		return
	}
	p.lines.all[p.client] = line
	if at == 0 {
		close(line[0].turn)
	}
}
