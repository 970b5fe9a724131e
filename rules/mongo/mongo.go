package mongo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/registry"
)

// The collections.
const (
	rulesName    = "rate_limit_rules"
	versionsName = "rate_limit_rule_versions"
	statesName   = "rate_limit_rule_states"
	appliedName  = "rate_limit_rule_applied"
)

// Options say how a backend works. The zero value is complete.
type Options struct {
	// LookInterval is how often at least rate_limit_rules is looked through for edits by people,
	// while the backend is asked for its head: 100ms to 24h. With change streams an edit is seen at once.
	// Default: 0, which is 30s.
	LookInterval time.Duration
	// IPv6Prefix is by how many bits IPv6 clients are counted, as in registry.Options, by which edits
	// by people are checked. Default: 0, which is 64.
	IPv6Prefix int
	// Refused hears why edits by people are not taken over, once until that changes. It is
	// called by who asks for the head, and must not ask the backend anything. Default: nil, nobody hears.
	Refused func(error)
	// Mended hears, in the same way, that what Refused heard of is over. Default: nil, nobody hears.
	Mended func()
	// Now is the clock that edits by people are dated by, and looks are timed by. Default: nil, time.Now.
	Now func() time.Time
}

// A Backend keeps rules in a database of MongoDB. It is a [registry.Backend]; make it with [New].
type Backend struct {
	url      string
	name     string // of the database
	options  Options
	searched search

	mu      sync.Mutex // guards what follows
	attempt *attempt   // to connect; nil before the first, and after one that failed
	closed  bool
}

var _ registry.Backend = (*Backend)(nil)

// New makes a backend of the database that a URL names, stint if it names none. TLS, credentials
// and more are options of the URL as the driver has them. Nothing is asked yet: the server
// may be away. The error wraps stint.ErrInvalid, and does not show the URL.
func New(url string, options Options) (*Backend, error) {
	if options.LookInterval == 0 {
		options.LookInterval = 30 * time.Second
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Refused == nil {
		options.Refused = func(error) {}
	}
	if options.Mended == nil {
		options.Mended = func() {}
	}
	name, err := parse(url)
	faults := []error{err}
	if options.LookInterval < 100*time.Millisecond || options.LookInterval > 24*time.Hour {
		faults = append(faults, stint.Invalid("LookInterval", options.LookInterval, "100ms to 24h"))
	}
	if options.IPv6Prefix < 0 || options.IPv6Prefix > 128 {
		faults = append(faults, stint.Invalid("IPv6Prefix", options.IPv6Prefix, "1 to 128"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Backend{url: url, name: name, options: options}, nil
}

// Close lets go of the connections. Calls after it fail; closing again does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	again, a := b.closed, b.attempt
	b.closed = true
	b.mu.Unlock()
	if again || a == nil {
		return nil
	}
	<-a.done
	if a.err != nil {
		return nil //nolint:nilerr // there is nothing to let go of
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	return a.client.Disconnect(ctx)
}

// An attempt to connect. It never ends but by its result, as DNS is asked without a context.
type attempt struct {
	done   chan struct{} // closed when what follows is set
	client *mongo.Client
	err    error
}

// errClosed says that Close was called.
var errClosed = errors.New("the backend is closed")

const (
	// callTimeout bounds a call whose context does not end sooner.
	callTimeout = 30 * time.Second
	// selectionTimeout bounds how long a server is looked for, unless the URL says so.
	selectionTimeout = time.Second
	// connectTimeout bounds how long one may be silent while connecting or being checked, unless the URL says so.
	connectTimeout = 5 * time.Second
)

// database is the database, once the URL was read: for mongodb+srv by asking DNS.
func (b *Backend) database(ctx context.Context) (*mongo.Database, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, errClosed
	}
	if b.attempt == nil {
		b.attempt = &attempt{done: make(chan struct{})}
		go b.connect(b.attempt)
	}
	a := b.attempt
	b.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	// A version that was made must not be lost when another server becomes the primary, nor be
	// seen before that is sure.
	return a.client.Database(b.name, options.Database().
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())), nil
}

func (b *Backend) connect(a *attempt) {
	defer close(a.done)
	o := options.Client().ApplyURI(b.url)
	if o.ServerSelectionTimeout == nil {
		o.SetServerSelectionTimeout(selectionTimeout)
	}
	if o.ConnectTimeout == nil {
		o.SetConnectTimeout(connectTimeout)
	}
	if o.AppName == nil {
		o.SetAppName("stint")
	}
	a.client, a.err = mongo.Connect(o)
	if a.err == nil {
		return
	}
	a.err = errors.New(hide(a.err.Error(), b.url))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.attempt = nil // the next call tries again
}

// call runs one call of the backend, bounded in time, and says what its error means.
func (b *Backend) call(ctx context.Context, do func(context.Context, *mongo.Database) error) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	db, err := b.database(bounded)
	if err == nil {
		err = do(bounded, db)
	}
	return meaning(ctx, err)
}

// meaning is what an error means to who asked.
func meaning(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, registry.ErrConflict), errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: MongoDB: %w", stint.ErrUnavailable, err)
	}
}

// silent reports whether an error is that nobody answered.
func silent(err error) bool {
	var server mongo.ServerError
	return errors.Is(err, stint.ErrUnavailable) && !errors.As(err, &server)
}
