package mongo

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/service/internal/rulestore"
)

const (
	// callTimeout bounds a call whose context does not end sooner.
	callTimeout = 30 * time.Second
	// selectionTimeout bounds the search for a server, unless the URL says otherwise.
	selectionTimeout = time.Second
	// connectTimeout bounds how long connecting takes, unless the URL says otherwise.
	connectTimeout = 5 * time.Second
)

// A connection is made on first use, so the server may be unreachable before. It is safe for
// concurrent use.
type connection struct {
	place place

	mu sync.Mutex // guards what follows
	// attempt is under way or has succeeded; nil before the first, and after one that failed.
	attempt *attempt
	closed  bool
}

// An attempt to connect. Nothing can cancel it, because the driver asks DNS without a context.
// Those who call meanwhile wait for it, each no longer than its own context.
type attempt struct {
	done   chan struct{} // closed when what follows is set
	client *mongo.Client
	err    error
}

// errClosed is what calls after Close get.
var errClosed = errors.New("the store is closed")

// Close closes the connections. Calls after it fail; closing again does nothing.
func (c *connection) Close() {
	c.mu.Lock()
	again, a := c.closed, c.attempt
	c.closed = true
	c.mu.Unlock()
	if again || a == nil {
		return
	}
	<-a.done
	if a.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_ = a.client.Disconnect(ctx) // there is nothing left to lose
}

// database returns the database, and connects if necessary.
func (c *connection) database(ctx context.Context) (*mongo.Database, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errClosed
	}
	if c.attempt == nil {
		c.attempt = &attempt{done: make(chan struct{})}
		go c.connect(c.attempt)
	}
	a := c.attempt
	c.mu.Unlock()
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if a.err != nil {
		return nil, a.err
	}
	// A revision must not be in force before it is certain to survive a failover.
	return a.client.Database(c.place.database, options.Database().
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()).
		SetReadPreference(readpref.Primary())), nil
}

// connect makes the client. The driver connects in the background, so an error is one of the URL or
// of DNS.
func (c *connection) connect(a *attempt) {
	defer close(a.done)
	o := options.Client().ApplyURI(c.place.url)
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
	a.err = errors.New(hide(a.err.Error(), c.place.url))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt = nil // the next call tries again
}

// call runs one call of the store within a timeout, and converts its error. Each call has
// callTimeout even if its caller waits longer, so that a server that hangs does not keep
// goroutines.
func (c *connection) call(ctx context.Context, do func(context.Context, *mongo.Database) error) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	db, err := c.database(bounded)
	if err == nil {
		err = do(bounded, db)
	}
	return meaning(ctx, err)
}

// meaning converts an error of the driver to an error of this package. The caller's own context is
// told apart from the bound of the call: the former is the caller's error, the latter an
// unreachable server.
func meaning(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, rulestore.ErrConflict), errors.Is(err, rulestore.ErrNotKept),
		errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: MongoDB: %w", stint.ErrUnavailable, err)
	}
}

const (
	// urlForms describes the allowed URLs.
	urlForms = "mongodb://host:port,host:port/database?options or mongodb+srv://name/database?options, " +
		"with a user and a password before the host"
	// defaultDatabase is the database of a URL that names none.
	defaultDatabase = "stint"
	// maxName bounds a collection's name, in bytes. MongoDB allows 255 together with the database.
	maxName = 120
)

// A place is the parts of a URL.
type place struct {
	url        string // for the driver
	database   string
	collection string
}

// parse reads a URL. The driver reads the other options, those of mongodb+srv when it connects.
func parse(address, collection string) (place, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	if scheme != "mongodb" && scheme != "mongodb+srv" {
		return place{}, invalidURL("another scheme, or none")
	}
	rest, query, _ := strings.Cut(rest, "?")
	at := strings.LastIndexByte(rest, '@') + 1
	if _, err := url.PathUnescape(rest[:at]); err != nil {
		return place{}, invalidURL("a user or password with a bad percent-encoding")
	}
	hosts, path, _ := strings.Cut(rest[at:], "/")
	if hosts == "" {
		return place{}, invalidURL("no host")
	}
	database, err := url.PathUnescape(path)
	if err != nil {
		return place{}, invalidURL("a database with a bad percent-encoding")
	}
	if database == "" {
		database = defaultDatabase
	}
	if len(database) > 63 || strings.ContainsAny(database, "/\\. \"$*<>:|?\x00") {
		return place{}, stint.Invalid("the database of the URL", database, `1 to 63 bytes without any of /\. "$*<>:|?`)
	}
	collection, query = cutCollection(query, collection)
	if collection == "" || len(collection) > maxName || strings.ContainsAny(collection, "$\x00") ||
		strings.HasPrefix(collection, "system.") {
		return place{}, stint.Invalid("the collection of the URL", collection,
			"1 to 120 bytes without $, and not system. at the beginning")
	}
	p := place{
		url: scheme + "://" + strings.TrimSuffix(rest[:at]+hosts+"/"+path+"?"+query, "?"), database: database,
		collection: collection,
	}
	if scheme == "mongodb" {
		if err := options.Client().ApplyURI(p.url).Validate(); err != nil {
			return place{}, invalidURL(hide(err.Error(), address))
		}
	}
	return p, nil
}

// cutCollection removes the option collection from a query, because the driver does not know it.
func cutCollection(query, collection string) (name, rest string) {
	var others []string
	for option := range strings.SplitSeq(query, "&") {
		value, found := strings.CutPrefix(option, "collection=")
		if !found {
			others = append(others, option)
		} else if plain, err := url.QueryUnescape(value); err == nil {
			collection = plain
		} else {
			collection = value
		}
	}
	return collection, strings.Join(others, "&")
}

// invalidURL is the error of a URL. It does not repeat the URL, which may hold a password.
func invalidURL(fault string) error {
	return stint.Invalid("the URL", document.Verbatim(fault), urlForms)
}

// hide replaces a message that repeats a part of a URL that may be secret: the user, the password, and
// some options.
func hide(message, address string) string {
	_, rest, _ := strings.Cut(address, "://")
	rest, query, _ := strings.Cut(rest, "?")
	var secrets []string
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		secrets = append(secrets, rest[:at], user, password)
	}
	for option := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' || c == ';' }) {
		name, value, _ := strings.Cut(option, "=")
		lower := strings.ToLower(name)
		if strings.Contains(lower, "password") || strings.Contains(lower, "properties") {
			secrets = append(secrets, value)
		}
	}
	for _, secret := range secrets {
		plain, err := url.PathUnescape(secret)
		if err != nil {
			plain = secret
		}
		if secret != "" && (strings.Contains(message, secret) || strings.Contains(message, plain)) {
			return "what the driver can't read"
		}
	}
	return message
}
