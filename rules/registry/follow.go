package registry

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// Follow puts every version in force until ctx is done, as [rules.Source] says: those made
// by edits of this registry before the edit returns, others when the backend tells of them, at
// the latest after the options' Interval. While the backend is away, or what it keeps can't be
// read, the rules stay; refused hears of each once, until that changes, and when it is over take gets the rules again, though they be the same. A backend that lost its rules
// gets them back if they were read from it while following, and not longer ago than a minute or
// three intervals, in a version by [RestoredBy] that is the first of all; else they stay in force, and refused
// hears that. A registry is followed once at a time.
func (r *Registry) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	switch err := r.attach(ctx, take); {
	case errors.Is(err, errFollowed):
		return err
	case err != nil:
		return nil //nolint:nilerr // ctx is done
	}
	defer r.detach()
	news := make(chan struct{}, 1)
	ended := make(chan struct{})
	watching, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		r.watch(watching, news)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	wrong := "" // with the look before
	var told *refusal
	refuse := func(err error) {
		r.behind = true
		refused(err)
	}
	for ctx.Err() == nil {
		seen, err := r.look(ctx)
		now := kindOf(err)
		if now != "" && (now != wrong || !seen.behind) { // an edit may have been taken since it was told
			r.tell(ctx, refuse, err)
		}
		wrong = now
		if seen.fault != nil && seen.fault != told {
			r.tell(ctx, refuse, seen.fault)
			told = seen.fault
		}
		pause(ctx, r, news)
	}
	return nil
}

// kindOf tells errors apart of which each is news, "" for none. One of a backend that is away
// may read differently each time, by the port that was tried.
func kindOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "away"
	default:
		return err.Error()
	}
}

// errFollowed says that somebody follows already.
var errFollowed = errors.New("registry: it is followed already")

// attach lets take hear of every set, of the one in force at once.
func (r *Registry) attach(ctx context.Context, take func(*rules.Set)) error {
	end, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if r.take != nil {
		return errFollowed
	}
	r.take, r.seen = take, time.Time{}
	if r.set != nil {
		r.handOver()
	}
	return nil
}

func (r *Registry) detach() {
	r.turn <- struct{}{}
	r.take = nil
	<-r.turn
}

// tell lets one of Follow's functions hear of something, not while another one is called.
func (r *Registry) tell(ctx context.Context, hear func(error), what error) {
	end, err := r.begin(ctx)
	if err != nil {
		return // nobody follows any more
	}
	defer end()
	if ctx.Err() == nil {
		hear(what)
	}
}

// lookTimeout bounds a look at the backend.
const lookTimeout = 5 * time.Second

// A sight is how a look finds the rules.
type sight struct {
	fault  *refusal // why the newest are not in force; nil if they are
	behind bool     // whether refused was called since take was
}

// look takes over what is new, or what is in force once more when nothing is refused any longer.
func (r *Registry) look(ctx context.Context) (sight, error) {
	end, err := r.begin(ctx) // which may take as long as somebody's edit
	if err != nil {
		return sight{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err = r.refresh(ctx)
	if err == nil && r.fault == nil && r.behind {
		r.handOver()
	}
	return sight{r.fault, r.behind}, err
}

// pause waits for news, or until it is time for a look without any.
func pause(ctx context.Context, r *Registry, news <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Interval)
	defer cancel()
	select {
	case <-news:
	case <-ctx.Done():
	}
}

// watch hears news, and listens again after a while when they are cut off.
func (r *Registry) watch(ctx context.Context, news chan<- struct{}) {
	notify := func() {
		select {
		case news <- struct{}{}:
		default: // one is enough
		}
	}
	var deaf time.Time // since when nothing could be heard
	told := false
	for ctx.Err() == nil {
		var heard atomic.Bool
		// What came before anybody listened shows in the look that ready asks for.
		err := r.backend.Watch(ctx, func() { heard.Store(true); notify() }, notify)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return
		case heard.Load():
			deaf, told = time.Time{}, false
		case deaf.IsZero():
			deaf = r.options.Now()
		case !told && r.options.Cut != nil && r.seenAfter(ctx, deaf):
			told = true
			r.tell(ctx, r.options.Cut, err)
		}
		pause(ctx, r, nil)
	}
}

// seenAfter reports whether the backend answered after a time.
func (r *Registry) seenAfter(ctx context.Context, when time.Time) bool {
	end, err := r.begin(ctx)
	if err != nil {
		return false
	}
	defer end()
	return r.seen.After(when)
}
