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

// asCluster is a connection to a cluster, as far as a store can tell. Its answers to questions for the layout wait
// until they may come, and the keys of a script call must have one tag.
type asCluster struct {
	redisconn.Conn
	t       *testing.T
	answers <-chan struct{} // closed when answers may come
}

func (asCluster) Cluster() bool { return true }

func (c asCluster) Do(ctx context.Context, args ...string) (string, error) {
	if args[0] == "HGET" {
		<-c.answers
	}
	return c.Conn.Do(ctx, args...)
}

func (c asCluster) Eval(ctx context.Context, script *redisconn.Script, keys, args []string) (string, error) {
	tags := map[string]bool{}
	for _, key := range keys {
		_, tag, _ := strings.Cut(key, "{")
		tag, _, _ = strings.Cut(tag, "}")
		tags[tag] = true
	}
	if len(tags) > 1 {
		c.t.Errorf("a script call of several slots: %q", keys)
	}
	return c.Conn.Eval(ctx, script, keys, args)
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
	for _, partitions := range []int{1, 4, 256} {
		for name, decide := range map[string]func(context.Context, *redisstore.Store) error{
			"one": func(ctx context.Context, s *redisstore.Store) error {
				_, err := s.Decide(ctx, both)
				return err
			},
			"several": func(ctx context.Context, s *redisstore.Store) error {
				results := make([]stint.Result, 2)
				s.DecideAll(ctx, []stint.Op{both, op(stint.VerbTake, "k", policy, 1)}, results)
				for _, r := range results {
					if r.Err != nil {
						return r.Err
					}
				}
				return nil
			},
			"Take": func(ctx context.Context, s *redisstore.Store) error {
				_, err := s.Take(ctx, policy, "k", 1)
				return err
			},
		} {
			prefix := fmt.Sprint("asked", name, partitions)
			redis(t, "HSET", prefix+":settings", "layout", fmt.Sprint(partitions, " packed"))
			answers := make(chan struct{})
			s := another(t, asCluster{conn, t, answers}, redisstore.Options{KeyPrefix: prefix})
			ctx := waited{t.Context(), sync.OnceFunc(func() { close(answers) })}
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
		answers := make(chan struct{})
		s, prefix := storeOn(t, &askedAgain{Conn: newConn(t), answers: answers}, redisstore.Options{})
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

// askedAgain is a connection whose answers to all questions for the layout but the first wait until they may come.
type askedAgain struct {
	redisconn.Conn
	asked   atomic.Bool
	answers <-chan struct{} // closed when they may come
}

func (c *askedAgain) Do(ctx context.Context, args ...string) (string, error) {
	if args[0] == "HGET" && c.asked.Swap(true) {
		<-c.answers
	}
	return c.Conn.Do(ctx, args...)
}

// lingering is a connection to a cluster whose first answer about the layout arrives while the store closes.
type lingering struct {
	redisconn.Conn
	asked, closed chan struct{}
	once          *sync.Once
}

func (lingering) Cluster() bool { return true }

func (c lingering) Do(ctx context.Context, args ...string) (string, error) {
	if args[0] == "HGET" {
		c.once.Do(func() { close(c.asked) })
		<-c.closed
		ctx = context.WithoutCancel(ctx)
	}
	return c.Conn.Do(ctx, args...)
}

func (c lingering) Close() { close(c.closed) }

// A store that is closed before it knows the layout does not begin anew with another one.
func TestCloseBeforeTheLayoutIsKnown(t *testing.T) {
	const prefix = "closed-early"
	redis(t, "HSET", prefix+":settings", "layout", "4 packed")
	conn := lingering{newConn(t), make(chan struct{}), make(chan struct{}), new(sync.Once)}
	s := must.Get(redisstore.New(conn, redisstore.Options{KeyPrefix: prefix}))(t)
	<-conn.asked
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
	known := make(chan struct{})
	close(known)
	options := redisstore.Options{KeyPrefix: prefix, LogEncoding: redisstore.LogStream}
	s := another(t, asCluster{newConn(t), t, known}, options)
	policy := policyOf(t, "p", stint.FixedWindow(10, bounds.MaxPeriod))
	for key := range 20 {
		until(t, "the partition decides", func() bool {
			_, err := s.Decide(t.Context(), op(stint.VerbTake, strconv.Itoa(key), policy, 1))
			if err != nil && !errors.Is(err, stint.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	if got := layoutOf(t, prefix); got != "16 stream" {
		t.Errorf("the layout is %q", got)
	}
}
