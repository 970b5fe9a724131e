// Package redisstore keeps limiter state in Redis (6.2 or later) or Valkey, for
// several processes to share.
//
// Every operation is decided inside the server, by the Lua twins of package
// algorithm and by the server's clock; a batch of operations is one script call. A
// denial writes nothing. Every key has a time to live that covers the time until
// its state no longer matters, and a margin.
//
// A key is PREFIX:{KEY}:ALGORITHM:POLICY:NAME, so that all limits of one client are
// in one slot of a cluster. Characters that would make two keys one are escaped.
package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/stint-go/stint"
)

// DefaultKeyPrefix is what keys start with unless Options say otherwise.
const DefaultKeyPrefix = "rate_limiter"

// A LogEncoding says how sliding window logs are kept. Each encoding has keys of
// its own: a change of it starts logs anew.
type LogEncoding string

// The encodings of a sliding window log.
const (
	// LogPacked is one string of fixed-width records, as narrow as the limit allows:
	// 4 to 11 bytes each. It is the smallest, as fast as any, and the default.
	LogPacked LogEncoding = "packed"
	// LogZSet is a sorted set.
	LogZSet LogEncoding = "zset"
	// LogStream is a stream.
	LogStream LogEncoding = "stream"
)

// Options say how a [Store] works. The zero value is a good choice.
type Options struct {
	// KeyPrefix starts every key; 1 to 64 printable ASCII characters without braces.
	// Default: "", which is DefaultKeyPrefix.
	KeyPrefix string
	// LogEncoding is how sliding window logs are kept. Default: "", which is
	// LogPacked.
	LogEncoding LogEncoding
	// Now, if set, is the time of every decision instead of the server's clock. It is
	// for tests. Default: nil.
	Now func() stint.Instant
}

func (o *Options) ensureDefaults() {
	if o.KeyPrefix == "" {
		o.KeyPrefix = DefaultKeyPrefix
	}
	if o.LogEncoding == "" {
		o.LogEncoding = LogPacked
	}
}

func (o *Options) validate() error {
	var faults []error
	valid := len(o.KeyPrefix) <= 64
	for _, c := range []byte(o.KeyPrefix) {
		valid = valid && c > 0x20 && c < 0x7f && c != '{' && c != '}'
	}
	if !valid {
		faults = append(faults, stint.Invalid("key_prefix", o.KeyPrefix, "1 to 64 printable ASCII characters without spaces and braces"))
	}
	if _, known := logLetters[o.LogEncoding]; !known {
		faults = append(faults, stint.Invalid("log_encoding", string(o.LogEncoding), "packed, zset or stream"))
	}
	return errors.Join(faults...)
}

// A Conn runs the store's script. [Rueidis] makes one of a rueidis client.
type Conn interface {
	// Eval runs the script with the keys and arguments and returns its reply, an array
	// of integers. It must not run it again when it may have run already, and must
	// load it when the server does not know it. All keys hash to one slot if Cluster
	// says true.
	Eval(ctx context.Context, keys, args []string) ([]int64, error)
	// Ping reports whether the server answers.
	Ping(ctx context.Context) error
	// Cluster reports whether the keys of one call must hash to one slot.
	Cluster() bool
	// Close ends the connection.
	Close()
}

// A Store is a stint.Store in Redis or Valkey. It is safe for concurrent use.
type Store struct {
	conn    Conn
	options Options
}

// New makes a store on a connection. [Open] makes one from a URL.
func New(conn Conn, options Options) (*Store, error) {
	options.ensureDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	return &Store{conn: conn, options: options}, nil
}

// Ping reports whether the server answers.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.conn.Ping(ctx); err != nil {
		return unavailable(err)
	}
	return nil
}

// Close ends the store's connections. Operations under way fail.
func (s *Store) Close() { s.conn.Close() }

// Decide implements [stint.Store]. An operation whose claims have different keys is
// refused on a cluster, where no script can reach them all.
func (s *Store) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	ops := [1]stint.Op{op}
	var results [1]stint.Result
	s.DecideAll(ctx, ops[:], results[:])
	return results[0].Decision, results[0].Err
}

// unavailable wraps a failure of the connection or the server; a context's end stays
// recognisable.
func unavailable(err error) error { return fmt.Errorf("%w: %w", stint.ErrUnavailable, err) }
