package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/rules/registry"
)

// Options say how a [Backend] works. The zero value is complete.
type Options struct {
	// KeyPrefix starts every key, as in [redisstore.Options]. Default: "", which is
	// redisstore.DefaultKeyPrefix.
	KeyPrefix string
}

// A Backend is a registry.Backend in Redis. It is safe for concurrent use; make it with [New].
type Backend struct {
	conn     redisstore.Conn
	set      string // the key of the hash with the rules
	versions string // the key of the stream with the versions
	channel  string
}

var _ registry.Backend = (*Backend)(nil)

// headField is the field of the hash with the rules that says which version they are: its number
// and when it was made. No rule can have that ID. It is where the rules are, so that it is lost
// with them.
const headField = "@head"

// New makes a backend on a connection, which Close ends. It asks nothing of it. The error is one of
// the options and wraps stint.ErrInvalid.
func New(conn redisstore.Conn, options Options) (*Backend, error) {
	if conn == nil {
		return nil, stint.Invalid("conn", "nil", "a connection such as rueidis.Dial makes")
	}
	if options.KeyPrefix == "" {
		options.KeyPrefix = redisstore.DefaultKeyPrefix
	}
	if err := redisstore.CheckKeyPrefix(options.KeyPrefix); err != nil {
		return nil, err
	}
	tagged := options.KeyPrefix + ":{rules}:"
	return &Backend{conn: conn, set: tagged + "set", versions: tagged + "versions", channel: options.KeyPrefix + ":rules"}, nil
}

// Head is the newest version.
func (b *Backend) Head(ctx context.Context) (registry.Head, error) {
	if err := ctx.Err(); err != nil {
		return registry.Head{}, err
	}
	text, err := b.conn.Do(ctx, "HGET", b.set, headField)
	if err != nil {
		return registry.Head{}, b.failure(ctx, err)
	}
	return b.parseHead(text)
}

// writeHead is a head as it is kept, the empty text that of no version.
func writeHead(head registry.Head) string {
	if head == (registry.Head{}) {
		return ""
	}
	return fmt.Sprintf("%d %d", head.Number, head.At)
}

// parseHead reads what writeHead wrote.
func (b *Backend) parseHead(text string) (registry.Head, error) {
	var head registry.Head
	if text == "" {
		return head, nil
	}
	if _, err := fmt.Sscanf(text, "%d %d", &head.Number, &head.At); err != nil || head.Number < 1 || writeHead(head) != text {
		return registry.Head{}, b.invalid(fmt.Sprintf("%s of %s", headField, b.set), text)
	}
	return head, nil
}

// Watch hears of versions by a channel, until the subscription is lost.
func (b *Backend) Watch(ctx context.Context, ready, notify func()) error {
	err := b.conn.Subscribe(ctx, b.channel, ready, func(string) { notify() })
	if err == nil {
		err = errors.New("the subscription ended")
	}
	return b.failure(ctx, err)
}

// Close ends the connection.
func (b *Backend) Close() { b.conn.Close() }

// failure is the error of a call: the context's, that what is there is not the rules', or
// that the server can't be asked.
func (b *Backend) failure(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	case strings.Contains(err.Error(), "WRONGTYPE "):
		return b.invalid("the type of a key", err.Error())
	case strings.Contains(err.Error(), "The ID specified in XADD"):
		return b.invalid("the newest ID of "+b.versions, err.Error())
	default:
		return fmt.Errorf("%w: the rules in Redis: %w", stint.ErrUnavailable, err)
	}
}

// unreadable is the error of what is wrong with what is kept.
func unreadable(err error) error { return fmt.Errorf("%w: %w", registry.ErrUnreadable, err) }

// invalid is the error of something that this package did not write.
func (b *Backend) invalid(what, value string) error {
	const most = 200
	if len(value) > most {
		value = value[:most] + "…"
	}
	return unreadable(stint.Invalid("the rules in Redis: "+what, value, fmt.Sprintf("what stint wrote; DEL %s %s begins anew without rules", b.set, b.versions)))
}
