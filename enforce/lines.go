package enforce

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint/rules"
)

// A client is one whom a rule counts.
type client struct{ policy, key string }

// lines are those of the clients for whom somebody waits. The zero value has none.
type lines struct {
	mu  sync.Mutex
	all map[client][]*place // the first of each may try
}

// A place is one request's in the lines of all clients for whom it waits. It joins them at once, so that
// those who wait in several lines stand in the same order in each, and never wait for each other.
type place struct {
	lines   *lines
	clients []client
	most    []int         // how many may wait for each client
	ahead   int           // in how many lines another one is the first
	turn    chan struct{} // closed when it is the first everywhere; nil: not in the lines
}

// of makes a place for the claims of rules that wait, outside of the lines.
func (l *lines) of(claims []Claimed) *place {
	p := &place{lines: l}
	for i := range claims {
		rule, claim := claims[i].Rule, &claims[i].Claim
		if rule.OnExceed != rules.Wait {
			continue
		}
		p.clients = append(p.clients, client{claim.Policy.Name(), claim.Key})
		p.most = append(p.most, cmp.Or(rule.MaxWaiters, defaultWaiters))
	}
	return p
}

// behind reports whether somebody else waits already and is to be served before.
func (p *place) behind() bool {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	if p.turn != nil {
		return p.ahead > 0
	}
	return slices.ContainsFunc(p.clients, func(c client) bool { return len(p.lines.all[c]) > 0 })
}

// join takes the last place of the lines, unless it is in them. It reports whether there was
// room in all.
func (p *place) join() bool {
	if p.turn != nil {
		return true
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	for i, c := range p.clients {
		if len(p.lines.all[c]) >= p.most[i] {
			return false
		}
	}
	if p.lines.all == nil {
		p.lines.all = map[client][]*place{}
	}
	p.turn = make(chan struct{})
	for i := range p.clients {
		// A line may outlast the place, and with it the memory of the key.
		p.clients[i].key = strings.Clone(p.clients[i].key)
		c := p.clients[i]
		if len(p.lines.all[c]) > 0 {
			p.ahead++
		}
		p.lines.all[c] = append(p.lines.all[c], p)
	}
	if p.ahead == 0 {
		close(p.turn)
	}
	return true
}

// first reports whether the place is the first of the lines, which it joins if it can.
func (p *place) first() bool {
	if !p.join() {
		return false
	}
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// await joins the lines and waits until the place is the first. It reports false when a line is
// full, or the deadline comes before.
func (p *place) await(ctx context.Context, deadline time.Time) (bool, error) {
	if p.first() {
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

// leave gives the place up; who comes next in a line has moved on.
func (p *place) leave() {
	if p.turn == nil {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	p.turn, p.ahead = nil, 0
	for _, c := range p.clients {
		line := p.lines.all[c]
		at := slices.Index(line, p)
		line = slices.Delete(line, at, at+1)
		if len(line) == 0 {
			delete(p.lines.all, c)
			continue
		}
		p.lines.all[c] = line
		if at > 0 {
			continue
		}
		if line[0].ahead--; line[0].ahead == 0 {
			close(line[0].turn)
		}
	}
}
