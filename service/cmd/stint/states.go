package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/states"
)

// notOpened is why states could not be opened, with the exit code of its kind.
func notOpened(err error) error {
	switch _, silent := errors.AsType[*states.UnreachableError](err); {
	case silent:
		return unreachable(err)
	case errors.Is(err, stint.ErrInvalid):
		return misconfigured(err)
	default:
		return err
	}
}

// openStates opens where the states of a configuration live, for a command that decides by itself. What it returns has
// to be closed. The store must answer.
func openStates(ctx context.Context, loaded config.Config) (*states.Backend, error) {
	opened, err := states.Open(loaded)
	if err != nil {
		return nil, notOpened(err)
	}
	if opened.Ping != nil {
		if err := opened.Ping(ctx); err != nil {
			opened.Close()
			return nil, unreachable(states.Unreachable(loaded.Store, err))
		}
	}
	return opened, nil
}

// decideBy opens the store by which a command decides itself, before states that are open. Closing it closes both.
func decideBy(opened *states.Backend, loaded config.Config) (_ *states.Store, closing func(), err error) {
	store, err := states.OpenStore(loaded, opened, states.Hooks{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		opened.Close()
		return nil, nil, notOpened(err)
	}
	return store, func() {
		store.Close()
		opened.Close()
	}, nil
}

// openStates opens where states live.
func (s *serving) openStates(context.Context) (end func(), err error) {
	if s.states, err = states.Open(s.config); err != nil {
		return nil, notOpened(err)
	}
	return s.states.Close, nil
}

// openStore opens the store by which requests are decided, with failover, record and spans around the states, and waits
// until it can decide.
func (s *serving) openStore(ctx context.Context) (end func(), err error) {
	s.store, err = states.OpenStore(s.config, s.states, states.Hooks{
		Logger: s.logger, Calls: s.traced.Calls, Decisions: s.traced.Decisions, Changed: s.recent.storeChanged,
		Answered: s.told.log.Degraded,
	})
	if err != nil {
		return nil, notOpened(err)
	}
	s.store.Look()
	if err := s.states.Await(ctx); err != nil {
		s.store.Close()
		return nil, notOpened(err)
	}
	return s.store.Close, nil
}
