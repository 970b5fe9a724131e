package store

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// Follow puts every revision in force until ctx is done, as [rules.Source] says: those made
// by edits of this manager before the edit returns, others when the store notifies of them, at
// the latest after the options' Interval. While the store is unreachable, or its rules can't be
// read, the rules stay; refused is called once for each reason, until that changes, and when it is over take gets the rules
// again, though they be the same. A store that lost its rules
// gets them back if they were read from it while following, and not longer ago than a minute or
// three intervals, in a revision by [RestoredBy] that is the first of all; else they stay in force, and refused
// is told. A manager is followed once at a time.
func (m *Manager) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	switch err := m.attach(ctx, take); {
	case errors.Is(err, errFollowed):
		return err
	case err != nil:
		return nil //nolint:nilerr // ctx is done
	}
	defer m.detach()
	notified := make(chan struct{}, 1)
	ended := make(chan struct{})
	watching, cancel := context.WithCancel(ctx)
	go func() {
		defer close(ended)
		m.watch(watching, notified)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	wrong := "" // with the poll before
	var told *refusal
	refuse := func(err error) {
		m.refused = true
		refused(err)
	}
	for ctx.Err() == nil {
		status, err := m.poll(ctx)
		now := kindOf(err)
		if now != "" && (now != wrong || !status.refused) { // an edit may have been taken since it was told
			m.tell(ctx, refuse, err)
		}
		wrong = now
		if status.fault != nil && status.fault != told {
			m.tell(ctx, refuse, status.fault)
			told = status.fault
		}
		pause(ctx, m, notified)
	}
	return nil
}

// kindOf is one text for errors that need to be told once, "" for none. An unreachable store may give another
// error each time, by the port that was tried.
func kindOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, stint.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "unreachable"
	default:
		return err.Error()
	}
}

// errFollowed says that somebody follows already.
var errFollowed = errors.New("stint: the manager is followed already")

// attach lets take hear of every set, of the one in force at once.
func (m *Manager) attach(ctx context.Context, take func(*rules.Set)) error {
	end, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if m.take != nil {
		return errFollowed
	}
	m.take, m.seen = take, time.Time{}
	if m.set != nil {
		m.handOver()
	}
	return nil
}

func (m *Manager) detach() {
	m.turn <- struct{}{}
	m.take = nil
	<-m.turn
}

// tell lets one of Follow's functions hear of something, not while another one is called.
func (m *Manager) tell(ctx context.Context, hear func(error), what error) {
	end, err := m.begin(ctx)
	if err != nil {
		return // nobody follows any more
	}
	defer end()
	if ctx.Err() == nil {
		hear(what)
	}
}

// pollTimeout bounds a poll of the store.
const pollTimeout = 5 * time.Second

// A status is the result of one poll.
type status struct {
	fault   *refusal // why the newest revision is not in force; nil if it is
	refused bool     // whether refused was called since take was
}

// poll takes over what is new, or the set in force once more when nothing is refused any longer.
func (m *Manager) poll(ctx context.Context) (status, error) {
	end, err := m.begin(ctx) // which may take as long as somebody's edit
	if err != nil {
		return status{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	err = m.refresh(ctx)
	if err == nil && m.fault == nil && m.refused {
		m.handOver()
	}
	return status{m.fault, m.refused}, err
}

// pause waits for a notification, or until it is time to poll without one.
func pause(ctx context.Context, m *Manager, notified <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, m.options.Interval)
	defer cancel()
	select {
	case <-notified:
	case <-ctx.Done():
	}
}

// watch receives notifications, and subscribes again after a while when they end.
func (m *Manager) watch(ctx context.Context, notified chan<- struct{}) {
	notify := func() {
		select {
		case notified <- struct{}{}:
		default: // one is enough
		}
	}
	var cut time.Time // since when there are none
	told := false
	for ctx.Err() == nil {
		var subscribed atomic.Bool
		// A revision from before the subscription is found by the poll that ready asks for.
		err := m.store.Watch(ctx, func() { subscribed.Store(true); notify() }, notify)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return
		case subscribed.Load():
			cut, told = time.Time{}, false
		case cut.IsZero():
			cut = m.options.Now()
		case !told && m.options.Cut != nil && m.seenAfter(ctx, cut):
			told = true
			m.tell(ctx, m.options.Cut, err)
		}
		pause(ctx, m, nil)
	}
}

// seenAfter reports whether the store answered after a time.
func (m *Manager) seenAfter(ctx context.Context, when time.Time) bool {
	end, err := m.begin(ctx)
	if err != nil {
		return false
	}
	defer end()
	return m.seen.After(when)
}
