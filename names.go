package stint

import (
	"runtime"
	"slices"
	"sync"
	"weak"
)

// A Registrar is a Store that keeps limiters of one name and different limits apart: their clients would
// be counted together by limits of which neither holds.
type Registrar interface {
	// Register notes that the policy is in use. It returns an error that wraps ErrInvalid
	// while another policy of that name, with other limits, is in use.
	Register(policy *Policy) error
}

// Names are the policies in use on a store, by name. A store embeds them to be a [Registrar]. The zero value has none. They are safe for
// concurrent use, and keep no policy alive.
type Names struct {
	mu    sync.Mutex
	inUse map[string][]weak.Pointer[Policy]
}

// Register implements [Registrar].
func (n *Names) Register(policy *Policy) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	conflicts := n.conflicts(policy)
	if conflicts {
		runtime.GC() // the other policy may not be in use any more
		conflicts = n.conflicts(policy)
	}
	if conflicts {
		return Invalid("name", policy.name, "a name that is not in use on this store with other limits; Limiter.With changes the limits of one")
	}
	if n.inUse == nil {
		n.inUse = map[string][]weak.Pointer[Policy]{}
	}
	n.inUse[policy.name] = append(n.inUse[policy.name], weak.Make(policy))
	return nil
}

// conflicts reports whether a policy of that name with other limits is in use.
func (n *Names) conflicts(policy *Policy) bool {
	found := false
	list := slices.DeleteFunc(n.inUse[policy.name], func(p weak.Pointer[Policy]) bool {
		known := p.Value()
		found = found || known != nil && !slices.Equal(known.limits, policy.limits)
		return known == nil
	})
	if len(list) == 0 {
		delete(n.inUse, policy.name)
	} else {
		n.inUse[policy.name] = list
	}
	return found
}
