// Package rulesource opens where the configured rules come from, and keeps the last ones in a file.
package rulesource

import (
	"cmp"
	"context"
	"log/slog"
	"strings"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
	"github.com/stint-go/stint/service/internal/rulestore/redis"
	"github.com/stint-go/stint/service/internal/states"
)

// A Source is where the configured rules come from.
type Source struct {
	// Source calls with each set, and with what is wrong with the next one.
	rules.Source
	// Place says where that is, without secrets.
	Place string
	// Manager is what they are edited by, nil where they are not.
	Manager *rulestore.Manager
	// Forgotten says that edited rules are lost when the process ends.
	Forgotten bool
	// Credentials names the settings with the server's user and password.
	Credentials string
	// Options are those of rules that stand in for the source's.
	Options rules.Options
	// Close ends its connections.
	Close func()
}

// Open opens the source of the rules. It does not ask a server for rules yet. With a nil
// logger nothing is logged. Those of the configuration's own file are read again by reload, or are
// not followed if it is nil. The place is, in this order: what rules_from says; the rules of the
// configuration itself; the store of the states.
func Open(loaded config.Config, reload func() (config.Config, error), logger *slog.Logger) (*Source, error) {
	from := loaded.RulesFrom
	if from == "" && len(loaded.Rules) == 0 {
		from = config.RulesFromStore
	}
	bits := loaded.ClientIP.IPv6Prefix
	switch {
	case from == "":
		return &Source{Source: configuredRules{loaded, reload, logger}, Place: "the configuration", Close: func() {}}, nil
	case from == config.RulesFromStore && loaded.Store.Memory():
		source, err := managed(rulestore.NewMemory(), bits, "the process, which forgets them when it ends", nil)
		if err == nil {
			source.Forgotten = true
		}
		return source, err
	case from == config.RulesFromStore || loaded.RulesInRedis() || loaded.RulesInMongo():
		at, place, credentials := states.Connection(loaded.Store), loaded.Store.URL,
			"store.username, store.password or store.password_file, or those in store.url"
		if from != config.RulesFromStore {
			at, place, credentials = rueidis.Config{URL: from}, from, "the user and password in rules_from"
		}
		opened, err := openRuleStore(at, loaded.Store.KeyPrefix)
		if err != nil {
			return nil, err
		}
		source, err := managed(opened, bits, document.RedactURL(place), logger)
		if err == nil {
			source.Credentials = credentials
		}
		return source, err
	default:
		return &Source{
			Source: rulefile.Source{Path: from, IPv6Prefix: bits, Logger: logger},
			Place:  "the files of " + from,
			Close:  func() {},
		}, nil
	}
}

// openRuleStore opens the store of rules that a URL names, by its scheme. It asks nothing of its
// server yet.
func openRuleStore(at rueidis.Config, prefix string) (rulestore.Store, error) {
	switch scheme, _, _ := strings.Cut(at.URL, "://"); scheme {
	case "mongodb", "mongodb+srv":
		return mongo.New(at.URL)
	default:
		conn, err := rueidis.Dial(at)
		if err != nil {
			return nil, err
		}
		opened, err := redis.New(conn, redis.Options{KeyPrefix: prefix})
		if err != nil {
			conn.Close()
			return nil, err
		}
		return opened, nil
	}
}

// managed is the source of a store's rules. IPv6 clients are counted by so many bits. Notifications
// of edits make them hold within milliseconds; without them they are polled.
func managed(opened rulestore.Store, bits int, place string, logger *slog.Logger) (*Source, error) {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	m, err := rulestore.NewManager(opened, rulestore.Options{
		IPv6Prefix: bits,
		Cut: func(err error) {
			logger.Warn(
				"no notifications of edited rules; the rules are polled each second", "from", place,
				"err", document.Redact(err.Error()),
			)
		},
		Restored: func(made rulestore.Info, was rulestore.ID) {
			logger.Warn("the rules were lost where they are kept, and are restored; their history is gone", "from", place,
				"restored", was.Number, "revision", made.Number, "rules", made.Count)
		},
	})
	if err != nil {
		opened.Close()
		return nil, err
	}
	return &Source{
		Source:  m,
		Place:   place,
		Manager: m,
		Options: rules.Options{IPv6Prefix: bits},
		Close:   opened.Close,
	}, nil
}

// Set returns the rules as they are now.
func (s *Source) Set(ctx context.Context) (set *rules.Set, err error) {
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
	if err == nil && set == nil {
		err = cmp.Or(refused, ctx.Err())
	}
	return set, err
}

// configuredRules are those of the configuration's own file. They are followed if there is one that
// can be read again.
type configuredRules struct {
	config config.Config
	reload func() (config.Config, error)
	logger *slog.Logger
}

// Follow implements [rules.Source].
func (c configuredRules) Follow(ctx context.Context, take func(*rules.Set), refused func(error)) error {
	var current *rules.Set
	compile := func(loaded config.Config) error {
		options := rules.Options{Previous: current, IPv6Prefix: loaded.ClientIP.IPv6Prefix}
		set, err := rules.Compile(loaded.Rules, options)
		if err == nil {
			current = set
			take(set)
		}
		return err
	}
	if err := compile(c.config); err != nil {
		return err
	}
	if c.reload == nil || c.config.File == "" {
		<-ctx.Done()
		return nil
	}
	rulefile.Follow(ctx, c.config.File, c.logger, func() error {
		loaded, err := c.reload()
		if err == nil {
			err = compile(loaded)
		}
		return err
	}, refused)
	return nil
}
