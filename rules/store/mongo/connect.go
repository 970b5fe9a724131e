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
	"github.com/stint-go/stint/rules/store"
)

const (
	// callTimeout bounds a call whose context does not end sooner.
	callTimeout = 30 * time.Second
	// selectionTimeout bounds how long a server is looked for, unless the URL says otherwise.
	selectionTimeout = time.Second
	// connectTimeout bounds how long connecting takes, unless the URL says otherwise.
	connectTimeout = 5 * time.Second
)

// A connection connects when it is first used, so that the server may be unreachable before.
type connection struct {
	place place

	mu      sync.Mutex // guards what follows
	attempt *attempt   // to connect; nil before the first, and after one that failed
	closed  bool
}

// An attempt to connect. Nothing can cancel it, because the driver asks DNS without a context.
type attempt struct {
	done   chan struct{} // closed when what follows is set
	client *mongo.Client
	err    error
}

var errClosed = errors.New("the store is closed")

// Close ends the connections. Calls after it fail; closing again does nothing.
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

// database connects if need be.
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
	// A revision must not be lost when another server becomes the primary, nor be in force before that is certain.
	return a.client.Database(c.place.database, options.Database().
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()).SetReadPreference(readpref.Primary())), nil
}

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

// call runs one call of the store, bounded in time, and says what its error means.
func (c *connection) call(ctx context.Context, do func(context.Context, *mongo.Database) error) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	db, err := c.database(bounded)
	if err == nil {
		err = do(bounded, db)
	}
	return meaning(ctx, err)
}

// meaning is what an error means to the caller.
func meaning(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, stint.ErrInvalid), errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotKept), errors.Is(err, errors.ErrUnsupported):
		return err
	default:
		return fmt.Errorf("%w: MongoDB: %w", stint.ErrUnavailable, err)
	}
}
