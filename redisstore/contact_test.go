package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// asCluster is a connection to a cluster, as far as a store can tell: the keys of a script call must have one tag.
func asCluster(t *testing.T, conn redisconn.Conn) *hooked {
	return &hooked{Conn: conn, cluster: true, before: func(_ context.Context, keys []string) error {
		tags := map[string]bool{}
		for _, key := range keys {
			_, tag, _ := strings.Cut(key, "{")
			tag, _, _ = strings.Cut(tag, "}")
			tags[tag] = true
		}
		if len(tags) > 1 {
			t.Errorf("a script call of several slots: %q", keys)
		}
		return nil
	}}
}

// waited is a context that tells when somebody first waits for it.
type waited struct {
	context.Context
	tell func()
}

func (w waited) Done() <-chan struct{} {
	w.tell()
	return w.Context.Done()
}

// What is asked before the number of partitions is known is decided in those that the servers remember.
func TestAskedBeforeTheLayoutIsKnown(t *testing.T) {
	conn := newConn(t)
	policy := policyOf(t, "p", stint.FixedWindow(10, bounds.MaxPeriod))
	// Two clients in one partition of 16, and in two of 256.
	pair := []string{"0"}
	for i := 1; len(pair) < 2; i++ {
		key := strconv.Itoa(i)
		if h := layout.HashOf(key) ^ layout.HashOf("0"); h%16 == 0 && h%256 != 0 {
			pair = append(pair, key)
		}
	}
	both := op(stint.VerbTake, pair[0], policy, 1)
	both.And = []stint.Claim{{Key: pair[1], Policy: policy, Permits: 1}}
	ways := map[string]func(context.Context, *redisstore.Store) error{
		"one": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Decide(ctx, both)
			return err
		},
		"several": func(ctx context.Context, s *redisstore.Store) error {
			results := make([]stint.Result, 2)
			s.DecideAll(ctx, []stint.Op{both, op(stint.VerbTake, "k", policy, 1)}, results)
			return errors.Join(results[0].Err, results[1].Err)
		},
		"Take": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Take(ctx, policy, "k", 1)
			return err
		},
	}
	for _, partitions := range []int{1, 4, 256} {
		for name, decide := range ways {
			prefix := fmt.Sprint("asked", name, partitions)
			redis(t, "HSET", prefix+":settings", "layout", fmt.Sprint(partitions, " packed"))
			asked := make(chan struct{})
			conn := asCluster(t, conn)
			conn.layout = func(ctx context.Context, ask asking) (string, error) {
				<-asked
				return ask(ctx)
			}
			s := another(t, conn, redisstore.Options{KeyPrefix: prefix})
			ctx := waited{t.Context(), sync.OnceFunc(func() { close(asked) })}
			if err := decide(ctx, s); err != nil {
				t.Errorf("%s of %d partitions: %v", name, partitions, err)
			}
		}
	}
}

// ending is a context that does something when it is first asked whether it has ended.
type ending struct {
	context.Context
	asked func()
}

func (e ending) Err() error {
	e.asked()
	return e.Context.Err()
}

// An operation's timeout also bounds a wait for a layout that is lost when the operation has just begun.
func TestLayoutIsLostAtTheBeginning(t *testing.T) {
	policy := policyOf(t, "p", stint.FixedWindow(10, bounds.MaxPeriod))
	take := op(stint.VerbTake, "k", policy, 1)
	take.Timeout = time.Millisecond
	for name, decide := range map[string]func(context.Context, *redisstore.Store) error{
		"one": func(ctx context.Context, s *redisstore.Store) error {
			_, err := s.Decide(ctx, take)
			return err
		},
		"several": func(ctx context.Context, s *redisstore.Store) error {
			results := make([]stint.Result, 2)
			s.DecideAll(ctx, []stint.Op{take, take}, results)
			return results[1].Err
		},
	} {
		answers := make(chan struct{}) // to all questions for the layout but the first
		var again atomic.Bool
		conn := &hooked{Conn: newConn(t)}
		conn.layout = func(ctx context.Context, ask asking) (string, error) {
			if again.Swap(true) {
				<-answers
			}
			return ask(ctx)
		}
		s, prefix := storeOn(t, conn, redisstore.Options{})
		lose := sync.OnceFunc(func() {
			redis(t, "HSET", prefix+":settings", "layout", "4 packed")
			if _, err := s.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1)); !errors.Is(err, stint.ErrUnavailable) {
				t.Errorf("in another layout: %v", err)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := decide(ending{ctx, lose}, s)
		if !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) { // of a busy machine
			t.Errorf("%s: %v, want %v", name, err, stint.ErrUnavailable)
		}
		cancel()
		close(answers)
	}
}

// lingering is a connection to a cluster whose first answer about the layout arrives while the store closes.
type lingering struct {
	hooked
	closed chan struct{}
}

func (c *lingering) Close() { close(c.closed) }

// A store that is closed before it knows the layout does not begin anew with another one.
func TestCloseBeforeTheLayoutIsKnown(t *testing.T) {
	const prefix = "closed-early"
	redis(t, "HSET", prefix+":settings", "layout", "4 packed")
	asked := make(chan struct{})
	tell := sync.OnceFunc(func() { close(asked) })
	conn := &lingering{hooked{Conn: newConn(t), cluster: true}, make(chan struct{})}
	conn.layout = func(ctx context.Context, ask asking) (string, error) {
		tell()
		<-conn.closed
		return ask(context.WithoutCancel(ctx))
	}
	s := must.Get(redisstore.New(conn, redisstore.Options{KeyPrefix: prefix}))(t)
	<-asked
	s.Close()
	policy := policyOf(t, "p", stint.FixedWindow(10, bounds.MaxPeriod))
	for range 2 { // in one partition and another
		_, err := s.Decide(t.Context(), op(stint.VerbTake, "k", policy, 1))
		if !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), "closed") {
			t.Errorf("of a closed store: %v", err)
		}
	}
}

// Partitions of a cluster that remember another encoding than the key without a tag are told: after a primary with that
// key came back empty, or when it was deleted to change the encoding.
func TestPartitionsFollowTheLayout(t *testing.T) {
	const prefix = "follow"
	for _, tag := range layout.New(prefix, 16, layout.Packed).Tags {
		redis(t, "HSET", prefix+":{"+tag+"}:settings", "layout", "16 packed")
	}
	options := redisstore.Options{KeyPrefix: prefix, LogEncoding: redisstore.LogStream}
	s := another(t, asCluster(t, newConn(t)), options)
	for key := range 20 {
		agreed(t, s, strconv.Itoa(key))
	}
	if got := layoutOf(t, prefix); got != "16 stream" {
		t.Errorf("the layout is %q", got)
	}
}
