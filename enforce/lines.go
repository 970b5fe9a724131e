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

// lines are those of the clients for whom somebody waits, each in the order of arrival at the
// limiter. A line holds those whom its rule denied, until it would admit them, and those who came
// after them. The zero value has none.
//
// Who has nobody older in any line of its rules may try. So a request waits for older ones only,
// never in a circle, in whichever lines they stand; the oldest of all waits for nobody.
type lines struct {
	mu      sync.Mutex
	arrived uint64 // how many have asked for their number
	all     map[client][]*spot
}

// A place is one request's in the lines of its rules that wait. One that is denied stands in those
// of the rules that deny it. One that is behind others stands in one line, where it is.
type place struct {
	lines  *lines
	number uint64 // of its arrival; 0 until it is compared
	spots  []spot
	until  time.Time     // when the last of the rules that deny it admits
	turn   chan struct{} // closed, and nil again, when it becomes the first where it is behind
}

// A spot is a place's in the line of one rule.
type spot struct {
	place  *place
	client client
	rule   *rules.Rule
	limit  int32     // the rule's first, counted over all claims
	limits int32     // how many it has
	until  time.Time // when the rule admits, by its last denial; zero: it did not deny
	in     bool
}

// of makes a place for the claims of rules that wait, outside of the lines.
func (l *lines) of(claims []Claimed) *place {
	p := &place{lines: l}
	first := int32(0)
	for i := range claims {
		rule, claim := claims[i].Rule, &claims[i].Claim
		n := int32(claim.Policy.Len())
		if i > 0 && claims[i-1].Rule == rule && rule.OnExceed == rules.Wait {
			p.spots[len(p.spots)-1].limits += n
		} else if rule.OnExceed == rules.Wait {
			at := client{claim.Policy.Name(), claim.Key}
			p.spots = append(p.spots, spot{place: p, client: at, rule: rule, limit: first, limits: n})
		}
		first += n
	}
	return p
}

// behind is where somebody older waits, who is to be served before; nil: nowhere.
func (p *place) behind() *spot {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	return p.ahead()
}

// ahead is behind for who holds the lock. Of several lines it is the one whose first has the longest
// to wait: nobody is to take room in a line that is about to move while another one keeps it.
func (p *place) ahead() *spot {
	if p.number == 0 {
		p.lines.arrived++
		p.number = p.lines.arrived
	}
	var slowest *spot
	var until time.Time
	for i := range p.spots {
		line := p.lines.all[p.spots[i].client]
		if len(line) == 0 || line[0].place.number >= p.number {
			continue
		}
		if slowest == nil || line[0].until.After(until) {
			slowest, until = &p.spots[i], line[0].until
		}
	}
	return slowest
}

// queue stands behind the older ones in one line and in no other, and gives what is closed when it
// is the first there. That is nil when nobody is ahead, or, with false, when the line is full.
func (p *place) queue() (turn <-chan struct{}, room bool) {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	behind := p.ahead()
	if behind == nil {
		return nil, true
	}
	if !p.fits(behind) {
		return nil, false
	}
	p.enter(behind)
	for i := range p.spots {
		s := &p.spots[i]
		s.until = time.Time{}
		if s != behind {
			p.quit(s)
		}
	}
	p.turn = make(chan struct{})
	return p.turn, true
}

// await waits until nobody older stands in the lines of the place's rules. It reports false when a
// line is full, or the deadline comes before.
func (p *place) await(ctx context.Context, deadline time.Time) (bool, error) {
	left := time.Until(deadline)
	if left <= 0 {
		return p.behind() == nil, nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	for {
		turn, room := p.queue()
		if turn == nil {
			return room, nil
		}
		select {
		case <-turn:
		case <-timer.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// join stands in the lines of the rules that deny, as the verdict tells, and in no other. It reports
// whether there was room in all.
func (p *place) join(v *Verdict) bool {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	v.denied(p)
	p.until = time.Time{}
	for i := range p.spots {
		s := &p.spots[i]
		if s.until.IsZero() {
			continue
		}
		if !p.fits(s) {
			return false
		}
		if s.until.After(p.until) {
			p.until = s.until
		}
	}
	for i := range p.spots {
		if s := &p.spots[i]; s.until.IsZero() {
			p.quit(s)
		} else {
			p.enter(s)
		}
	}
	return true
}

// next leaves the lines of rules that admit by now, where others do not yet, and tells when the
// next one will.
func (p *place) next(now time.Time) time.Time {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	next := p.until
	for i := range p.spots {
		s := &p.spots[i]
		switch {
		case !s.in:
		case !s.until.After(now):
			p.quit(s)
		case s.until.Before(next):
			next = s.until
		}
	}
	return next
}

// leave gives the place up in all lines.
func (p *place) leave() {
	if !slices.ContainsFunc(p.spots, func(s spot) bool { return s.in }) {
		return
	}
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	p.turn = nil
	for i := range p.spots {
		p.quit(&p.spots[i])
	}
}

// fits reports whether the line of a spot has it, or has room for it.
func (p *place) fits(s *spot) bool {
	return s.in || len(p.lines.all[s.client]) < cmp.Or(s.rule.MaxWaiters, defaultWaiters)
}

// enter takes the spot in its line, before those who came later.
func (p *place) enter(s *spot) {
	if s.in {
		return
	}
	if p.lines.all == nil {
		p.lines.all = map[client][]*spot{}
	}
	// The line may outlast the place, and with it the memory of the key.
	s.client.key = strings.Clone(s.client.key)
	line := p.lines.all[s.client]
	at, _ := slices.BinarySearchFunc(line, p.number, (*spot).compare)
	p.lines.all[s.client], s.in = slices.Insert(line, at, s), true
}

// quit gives the spot up; who is the first of its line then has its turn.
func (p *place) quit(s *spot) {
	if !s.in {
		return
	}
	line := p.lines.all[s.client]
	at, _ := slices.BinarySearchFunc(line, p.number, (*spot).compare)
	line, s.in = slices.Delete(line, at, at+1), false
	if len(line) == 0 {
		delete(p.lines.all, s.client)
		return
	}
	p.lines.all[s.client] = line
	if first := line[0].place; at == 0 && first.turn != nil {
		close(first.turn)
		first.turn = nil
	}
}

// compare orders spots by arrival.
func (s *spot) compare(number uint64) int { return cmp.Compare(s.place.number, number) }
