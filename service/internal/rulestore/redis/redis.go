// Package redis keeps a rule set in Redis (6.2 or later) or Valkey, for several processes to share.
//
//	conn, err := rueidis.Dial(rueidis.Config{URL: "redis://localhost:6379"})
//	...
//	s, err := redis.New(conn, redis.Options{})
//
// All revisions are fields of one hash, so that they are lost together or not at all. One script
// compares the newest one, writes the next and publishes that it did. docs/internals/layout.md
// describes the fields.
package redis

import (
	"context"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// Options say how a [Store] works. The zero value is complete.
type Options struct {
	// KeyPrefix starts the key, as in [redisstore.Options]. Default: "", which is
	// redisstore.DefaultKeyPrefix.
	KeyPrefix string
}

// A Store is a store.Store in Redis. It is safe for concurrent use; make it with [New]. The key has
// a hash tag, {rules}, so that a Redis Cluster keeps it on one node. Texts are compressed by zstd.
type Store struct {
	conn    redisconn.Conn
	key     string
	channel string
	pack    *zstd.Encoder
	unpack  *zstd.Decoder
	codec   rulestore.Codec
}

var _ rulestore.Store = (*Store)(nil)

var (
	//go:embed put.lua
	putLua string
	//go:embed load.lua
	loadLua string
	//go:embed history.lua
	historyLua string

	putScript, loadScript, historyScript = redisconn.NewScript(putLua), redisconn.NewScript(loadLua),
		redisconn.NewScript(historyLua)
)

// run runs a script on the one key that there is.
func (s *Store) run(ctx context.Context, script *redisconn.Script, args ...string) (string, error) {
	return s.conn.Eval(ctx, script, []string{s.key}, args)
}

// New makes a store on a connection, which Close closes. It does not call the server. An error is about
// the options and wraps stint.ErrInvalid.
func New(conn redisconn.Conn, options Options) (*Store, error) {
	if conn == nil {
		return nil, stint.Invalid("conn", "nil", "a connection such as rueidis.Dial makes")
	}
	if options.KeyPrefix == "" {
		options.KeyPrefix = redisstore.DefaultKeyPrefix
	}
	if err := redisstore.CheckKeyPrefix(options.KeyPrefix); err != nil {
		return nil, err
	}
	s := &Store{conn: conn, key: options.KeyPrefix + ":{rules}:revisions", channel: options.KeyPrefix + ":rules"}
	var err error
	if s.pack, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
		return nil, err
	}
	s.unpack, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*rulestore.MaxBytes))
	return s, err
}

// Close ends the connection.
func (s *Store) Close() {
	s.conn.Close()
	s.unpack.Close()
}

// Head returns the newest revision's ID.
func (s *Store) Head(ctx context.Context) (rulestore.ID, error) {
	if err := ctx.Err(); err != nil {
		return rulestore.ID{}, err
	}
	text, err := s.conn.Do(ctx, "HGET", s.key, "head")
	if err != nil {
		return rulestore.ID{}, s.failure(ctx, err)
	}
	var id rulestore.ID
	if text == "" {
		return id, nil
	}
	if _, err := fmt.Sscanf(text, "%d %d", &id.Number, &id.At); err != nil || id.Number < 1 || written(id) != text {
		return rulestore.ID{}, s.unreadable("head", text)
	}
	return id, nil
}

// written is an ID in the hash's form, "" for the zero ID. The form is NUMBER AT, where AT is in
// microseconds; the script compares it as a text.
func written(id rulestore.ID) string {
	if id == (rulestore.ID{}) {
		return ""
	}
	return fmt.Sprintf("%d %d", id.Number, id.At)
}

// Put makes next the newest revision, in one script call. The comparison with expected, the writing
// and the publishing are one script, and so one step for all other clients.
func (s *Store) Put(ctx context.Context, expected rulestore.ID, next *rulestore.Revision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if next.Number != expected.Number+1 {
		return rulestore.ErrConflict
	}
	text, err := s.codec.Next(next)
	if err != nil {
		return err
	}
	about, err := json.Marshal(next.Info)
	if err != nil {
		return err
	}
	reply, err := s.run(ctx, putScript,
		written(expected), strconv.FormatInt(next.Number, 10), written(next.ID), string(about),
		string(s.pack.EncodeAll(text, nil)),
		strconv.Itoa(rulestore.KeptRevisions), strconv.Itoa(rulestore.KeptBytes), s.channel)
	switch {
	case err != nil && refused(err):
		return prefix.Errorf("%w: %w", rulestore.ErrRefused, s.failure(ctx, err))
	case err != nil:
		return s.failure(ctx, err)
	case reply == "conflict":
		return rulestore.ErrConflict
	}
	s.codec.Known(text, next.Rules)
	return nil
}

// Load returns a revision; number 0 is the newest. The reply is the revision's Info as JSON, a
// newline, and the packed text.
func (s *Store) Load(ctx context.Context, number int64) (rulestore.Revision, error) {
	var revision rulestore.Revision
	if err := ctx.Err(); err != nil {
		return revision, err
	}
	reply, err := s.run(ctx, loadScript, strconv.FormatInt(number, 10))
	switch {
	case err != nil:
		return revision, s.failure(ctx, err)
	case reply == "" && number == 0:
		return revision, nil
	case reply == "":
		return revision, rulestore.ErrNotKept
	}
	about, packed, _ := strings.Cut(reply, "\n")
	if revision.Info, err = s.parseInfo(about); err != nil {
		return revision, err
	}
	field := strconv.FormatInt(revision.Number, 10)
	if number != 0 && revision.Number != number {
		return revision, s.unreadable(strconv.FormatInt(number, 10)+":info", about)
	}
	text, err := s.unpack.DecodeAll([]byte(packed), nil)
	if err != nil {
		return revision, s.unreadable(field, err.Error())
	}
	revision.Rules, err = s.codec.Decode(fmt.Sprintf("field %s of %s", field, s.key), text)
	return revision, err
}

// History returns revisions without their rules, the newest first.
func (s *Store) History(ctx context.Context, before int64, n int) ([]rulestore.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, err := s.run(ctx, historyScript, strconv.FormatInt(before, 10), strconv.Itoa(n))
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	var list []rulestore.Info
	for line := range strings.Lines(reply) {
		about, err := s.parseInfo(line)
		if err != nil {
			return nil, err
		}
		list = append(list, about)
	}
	return list, nil
}

func (s *Store) parseInfo(text string) (info rulestore.Info, err error) {
	if err := json.Unmarshal([]byte(text), &info); err != nil || info.Number < 1 {
		return rulestore.Info{}, s.unreadable("N:info", text)
	}
	return info, nil
}

// Watch subscribes to a channel, until the subscription is lost.
func (s *Store) Watch(ctx context.Context, ready, notify func()) error {
	err := s.conn.Subscribe(ctx, s.channel, ready, func(string) { notify() })
	if err == nil {
		err = errors.New("the subscription ended")
	}
	return s.failure(ctx, err)
}

// failure turns the error of a call into the context's, ErrUnreadable if the key has another type,
// or stint.ErrUnavailable. The context's end comes first: an error of a call that was given up says
// nothing of the server.
func (s *Store) failure(ctx context.Context, err error) error {
	reply, _ := redisconn.Reply(err)
	switch {
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	case strings.Contains(err.Error(), "WRONGTYPE "):
		return s.unreadable("the type", err.Error())
	case strings.HasPrefix(reply, "WRONGPASS "), strings.HasPrefix(reply, "NOAUTH "):
		return prefix.Errorf("%w: %w: the rules in Redis: %w", stint.ErrUnavailable, rulestore.ErrCredentials, err)
	default:
		return fmt.Errorf("%w: the rules in Redis: %w", stint.ErrUnavailable, err)
	}
}

// unreadable is the error of something that this package did not write.
func (s *Store) unreadable(field, value string) error {
	const most = 200
	return prefix.Errorf("%w: %w", rulestore.ErrUnreadable,
		stint.Invalid(fmt.Sprintf("%s of %s", field, s.key), clip.To(most, value),
			fmt.Sprintf("what stint wrote; DEL %s begins anew without rules", s.key)))
}

var (
	// unsent are replies to a command that the server did not execute. They come instead of an
	// execution: the server refused the command as a whole.
	unsent = []string{
		"NOAUTH ", "WRONGPASS ", "NOPERM ", "LOADING ", "MASTERDOWN ", "CLUSTERDOWN ", "BUSY ", "MOVED ",
		"ASK ", "TRYAGAIN ",
	}
	// unwritten are replies to the first write of put.lua too, the only one that can fail. Redis 6
	// adds its own prefix. Rights are the last two: of Redis before 7.2, and of it and Valkey since.
	unwritten = []string{
		"OOM ", "READONLY ", "NOREPLICAS ", "MISCONF ", "The user executing the script can't ", "ACL failure in script: ",
	}
)

// refused reports whether the reply to a put says for certain that nothing was stored. It is for
// errors after which an edit may be tried again without asking whether it was stored.
func refused(err error) bool {
	reply, replied := redisconn.Reply(err)
	return replied && (slices.ContainsFunc(unsent, func(code string) bool { return strings.HasPrefix(reply, code) }) ||
		slices.ContainsFunc(unwritten, func(code string) bool { return strings.Contains(reply, code) }))
}
