package failover

import (
	"context"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

// A Shared store is one that processes share, such as redisstore.Store.
type Shared interface {
	stint.Store
	// Ready waits until the store can make its first decision, or returns why the attempt under way has failed.
	Ready(ctx context.Context) error
	// Instances is how many processes share the store, as far as this one knows.
	Instances() int
	// Close ends what the store does.
	Close()
}

// Protect makes the store for production of one that processes share: its calls are bounded in
// time, and while it can't be reached a mode decides. The zero [Config] is right for most programs:
// it admits then. What is Local is decided in a memory store of its own, unless Config.Local is
// another, by the number of processes that the shared store counts, unless Config.Instances says
// it. Close closes the shared store, too, as Protect does when it fails.
//
// Packages rueidis and goredis have an Open that does so.
func Protect(shared Shared, config Config) (*Store, error) {
	if shared == nil {
		return New(nil, config)
	}
	if config.Local == nil {
		config.Local = memstore.New(memstore.Config{})
	}
	if config.Instances == nil {
		config.Instances = shared.Instances
	}
	s, err := New(shared, config)
	if err != nil {
		shared.Close()
		return nil, err
	}
	s.shared = shared
	return s, nil
}

// Ready waits until the shared store can make its first decision: then that takes one round trip.
// It does not wait for a server that comes later. The error
//
//   - wraps stint.ErrUnavailable as soon as an attempt to reach the store has failed, such as when the server refuses
//     connections: at once with package rueidis, after go-redis's own attempts with package goredis;
//   - is the context's if that ends before, such as when the server is silent;
//   - wraps stint.ErrInvalid if the store can't be used as it is configured, which no time mends.
//
// The first two are for the log, and no reason to end the program: the store goes on connecting in the background, and
// the mode decides until it can be reached. A store that [New] made is ready.
func (s *Store) Ready(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	return s.shared.Ready(ctx)
}
