package oracle

import (
	"maps"
	"slices"

	"github.com/stint-go/stint"
)

// reset clears the states of limits.
func (t *transaction) reset(places []*place) {
	for _, p := range places {
		for _, h := range p.before.holds {
			// What has expired by the time that the state records, though not by the clock, is open.
			if h.permits > h.paid && h.expires > t.now && (h.expires > p.at || !t.choose()) {
				t.lose(h.id, p.name, true)
			} else {
				t.overNow(h.id)
			}
		}
		t.states[p.name] = nil
		p.before = t.untouched(p.limit)
		t.finish(p, 0, false)
	}
}

// overNow notes that an id has expired, though the clock be set back.
func (t *transaction) overNow(id string) {
	if r := t.record(id); r != nil && r.end == holdLive {
		r.over = true
	}
}

// lose notes that what an id holds of a limit was reset before it expired, or that it was not.
func (t *transaction) lose(id string, n name, lost bool) {
	r := t.record(id)
	if r == nil || r.end != holdLive {
		return
	}
	before := r.lost
	r.lost = make([]bool, len(r.names))
	copy(r.lost, before)
	for i := range r.names {
		if r.names[i] == n && r.held[i] > r.paid[i] {
			r.lost[i] = lost
		}
	}
}

// ResetAll clears the states of a scope, as a store's ResetAll does. What is known of ids stays.
//
// A store knows a reset by its epoch, from which on what is decided comes after it. So some questions are open, for
// each id and limit, if two resets meet around an expiry, or the clock was set back:
//
//   - Was it reset, if it would have expired before the epoch, though not by the clock?
//   - Had it expired before it was reset for the first time, if it has before this reset?
//   - Was it reset, if it has expired already by a later clock?
func (o *Oracle) ResetAll(scope stint.Scope, now stint.Instant) {
	o.epoch = max(o.epoch, now) + 1
	var found worlds
	for _, w := range o.worlds {
		for t := range o.transactions(w, now) {
			if t.resetAll(scope); !found.add(t, w) {
				break
			}
		}
	}
	o.worlds = found.list
}

func (t *transaction) resetAll(scope stint.Scope) {
	for _, id := range slices.Sorted(maps.Keys(t.world.ids)) {
		r := t.world.ids[id]
		for i, n := range r.names {
			if r.end != holdLive || !scope.All && n.policy != scope.Policy || r.held[i] == r.paid[i] {
				continue
			}
			s := t.world.states[n]
			live := s != nil && s.hold(id) != nil && r.expires > t.now
			switch {
			case live && r.expires >= t.epoch:
				t.lose(id, n, true)
			case live, !r.isLost(i) && r.over && r.expires > t.now:
				if t.choose() {
					t.lose(id, n, true)
				}
			case r.isLost(i) && r.expires < t.epoch:
				if t.choose() {
					t.lose(id, n, false)
				}
			case !r.isLost(i):
				t.overNow(id)
			default: // it was reset before
			}
		}
	}
	for n := range t.world.states {
		if scope.All || n.policy == scope.Policy {
			t.states[n] = nil
		}
	}
}
