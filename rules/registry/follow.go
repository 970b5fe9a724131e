package registry

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint/rules"
)

// Follow puts every version in force until ctx is done, as [rules.Source] says: those made
// by edits of this registry before the edit returns, others when the backend tells of them, at
// the latest after the options' Interval. While the backend is away the rules stay; refused
// hears of that once, until it is back. A registry is followed once at a time.
func (r *Registry) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	if err := r.attach(ctx, take); err != nil {
		return err
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
	away := false
	for ctx.Err() == nil {
		err := r.look(ctx)
		faulty := errors.As(err, new(*refusal))
		if err != nil && ctx.Err() == nil && (faulty || !away) {
			refused(err)
		}
		away = err != nil && !faulty
		pause(ctx, r, news)
	}
	return nil
}

// errFollowed says that somebody follows already.
var errFollowed = errors.New("registry: it is followed already")

// attach lets take hear of every set, of the one in force at once.
func (r *Registry) attach(ctx context.Context, take func(*rules.Set)) error {
	end, err := r.begin(ctx)
	if err != nil {
		return nil //nolint:nilerr // ctx is done, as Follow ends
	}
	defer end()
	if r.take != nil {
		return errFollowed
	}
	r.take = take
	if r.set != nil {
		take(r.set)
	}
	return nil
}

func (r *Registry) detach() {
	r.turn <- struct{}{}
	r.take = nil
	<-r.turn
}

// lookTimeout bounds a look at the backend.
const lookTimeout = 5 * time.Second

// look takes over what is new.
func (r *Registry) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	end, err := r.begin(ctx)
	if err != nil {
		return nil //nolint:nilerr // an edit is under way, which looks itself
	}
	defer end()
	return r.refresh(ctx)
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
	for ctx.Err() == nil {
		// What came before anybody listened shows in the look that ready asks for.
		err := r.backend.Watch(ctx, notify, notify)
		if errors.Is(err, errors.ErrUnsupported) {
			return
		}
		pause(ctx, r, nil)
	}
}
