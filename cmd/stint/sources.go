package main

import (
	"context"
	"log/slog"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/mongo"
	"github.com/stint-go/stint/rules/redis"
	"github.com/stint-go/stint/rules/registry"
)

// A ruleSource is where the configured rules come from.
type ruleSource struct {
	rules.Source
	// place says where that is, without secrets.
	place string
	// registry is what they are edited by, nil where they are not.
	registry *registry.Registry
	close    func()
}

// edits hear of edits past the service: why they can't be taken over, and that this is over. Nil functions hear nothing.
type edits struct {
	refused func(error)
	mended  func()
}

// openRules opens the source of the rules. What is kept in a server is not asked for yet. A nil logger
// is told nothing.
func openRules(loaded config.Config, logger *slog.Logger, heard edits) (*ruleSource, error) {
	from := loaded.RulesFrom
	if from == "" && len(loaded.Rules) == 0 {
		from = config.RulesFromStore
	}
	bits := loaded.ClientIP.IPv6Prefix
	switch {
	case from == "":
		set, err := file.Compile(loaded.Rules, loaded.RulesAt, rules.Options{IPv6Prefix: bits})
		if err != nil {
			return nil, misconfigured(err)
		}
		return &ruleSource{Source: fixed{set}, place: "the configuration", close: func() {}}, nil
	case from == config.RulesFromStore && loaded.Store.Memory():
		return registered(registry.NewMemory(), bits, "the process, which forgets them when it ends", nil, func() {})
	case from == config.RulesFromStore:
		return redisRules(connection(loaded.Store), loaded.Store.KeyPrefix, bits, logger)
	case loaded.RulesInRedis():
		return redisRules(rueidis.Connection{URL: from}, loaded.Store.KeyPrefix, bits, logger)
	case loaded.RulesInMongo():
		return mongoRules(from, bits, logger, heard)
	default:
		return &ruleSource{Source: file.Source{Path: from, IPv6Prefix: bits, Logger: logger}, place: "the files of " + from, close: func() {}}, nil
	}
}

// redisRules are rules in a Redis.
func redisRules(at rueidis.Connection, prefix string, bits int, logger *slog.Logger) (*ruleSource, error) {
	conn, err := rueidis.Dial(at)
	if err != nil {
		return nil, misconfigured(err)
	}
	backend, err := redis.New(conn, redis.Options{KeyPrefix: prefix})
	if err != nil {
		conn.Close()
		return nil, misconfigured(err)
	}
	return registered(backend, bits, config.RedactURL(at.URL), logger, backend.Close)
}

// mongoRules are rules in a MongoDB.
func mongoRules(url string, bits int, logger *slog.Logger, heard edits) (*ruleSource, error) {
	backend, err := mongo.New(url, mongo.Options{IPv6Prefix: bits, Refused: heard.refused, Mended: heard.mended})
	if err != nil {
		return nil, misconfigured(err)
	}
	return registered(backend, bits, config.RedactURL(url), logger, func() { _ = backend.Close() }) // which has nothing to lose
}

// registered is the source of a backend's rules. IPv6 clients are counted by so many bits.
func registered(backend registry.Backend, bits int, place string, logger *slog.Logger, closeBackend func()) (*ruleSource, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r, err := registry.New(backend, registry.Options{
		IPv6Prefix: bits,
		Cut: func(err error) {
			logger.Warn("edits of rules are not heard of; they are looked for each second", "from", place, "err", config.Redact(err.Error()))
		},
		Restored: func(made registry.Version, was registry.Head) {
			logger.Warn("the rules were lost where they are kept, and are restored; their history is gone", "from", place,
				"restored", was.Number, "version", made.Number, "rules", len(made.Changes))
		},
	})
	if err != nil {
		closeBackend()
		return nil, misconfigured(err)
	}
	return &ruleSource{Source: r, place: place, registry: r, close: closeBackend}, nil
}

// Set returns the rules as they are now.
func (s *ruleSource) Set(ctx context.Context) (set *rules.Set, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused error
	err = s.Follow(ctx, func(first *rules.Set) {
		set = first
		cancel()
	}, func(fault error) {
		refused = fault
		cancel()
	})
	switch {
	case err != nil:
		return nil, err
	case set != nil:
		return set, nil
	case refused != nil:
		return nil, refused
	default:
		return nil, ctx.Err()
	}
}

// fixed rules never change.
type fixed struct{ set *rules.Set }

// Follow hands them over.
func (f fixed) Follow(ctx context.Context, take func(*rules.Set), _ func(error)) error {
	take(f.set)
	<-ctx.Done()
	return nil
}
