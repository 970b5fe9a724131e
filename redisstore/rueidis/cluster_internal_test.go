package rueidis

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/testredis"
)

// slots is the reply to CLUSTER SLOTS of a cluster of one node.
func slots(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
}

func newFakeCluster(t *testing.T, seeds ...string) conn {
	t.Helper()
	c := connOf(newClusterConn(&dialConfig{location: location{network: "tcp", hosts: seeds}}))
	t.Cleanup(c.Close)
	return c
}

// dialTo is the configuration of a connection to one address.
func dialTo(kind topology, address string) *dialConfig {
	return &dialConfig{location: location{topology: kind, network: "tcp", hosts: []string{address}, primary: "name"}}
}

// A slot that takes its time to move: the one node sends a command with several keys on,
// the other asks for patience, and it gets through when the slot has moved.
func TestPatienceWhileSlotsMove(t *testing.T) {
	t.Parallel()
	const rounds = 2 * maxRedirections
	asked, asking := 0, false
	var mu sync.Mutex
	var node, other *fake
	reply := func(_ *fake, command []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case command[0] == "CLUSTER":
			return slots(node.address)
		case command[0] == "ASKING":
			asking = true
			return "+OK\r\n"
		case asked == rounds:
			return "+done\r\n"
		case asking:
			asking = false
			asked++
			return "-TRYAGAIN Multiple keys request during rehashing of slot\r\n"
		default:
			return "-ASK 1 " + other.address + "\r\n"
		}
	}
	mu.Lock()
	node, other = newFake(t, reply), newFake(t, reply)
	mu.Unlock()
	c := newFakeCluster(t, node.address)
	got, err := c.Eval(t.Context(), &redisconn.Script{Source: "return 1", Digest: "abc"}, []string{"{k}a", "{k}b"}, nil)
	if got != "done" || err != nil {
		t.Errorf("after %d rounds of patience: %q, %v", rounds, got, err)
	}
}

// A slot moves to a node that serves none yet: rueidis has that node from when a command was sent on to it until it asks
// who serves which slots. It has not left then, and calls under way there go on.
func TestMembership(t *testing.T) {
	var client struct{ rueidis.Client }
	begun := time.Now()
	known := membership{"first": {}, "other": {}}
	for i, look := range []struct {
		after time.Duration
		nodes []string
		left  []string
	}{
		{0, []string{"first", "other"}, nil},
		{200 * time.Millisecond, []string{"first", "other", "new"}, nil},
		{1400 * time.Millisecond, []string{"first", "other"}, nil}, // it serves no slot
		{1600 * time.Millisecond, []string{"first", "new"}, []string{"other"}},
		{3700 * time.Millisecond, []string{"first", "new"}, nil},
		{3900 * time.Millisecond, []string{"first"}, []string{"new"}},
		{4100 * time.Millisecond, nil, []string{"first"}},
	} {
		nodes := map[string]rueidis.Client{}
		for _, address := range look.nodes {
			nodes[address] = client
		}
		if left := known.look(nodes, begun.Add(look.after)); !slices.Equal(left, look.left) {
			t.Errorf("look %d: %q have left, want %q", i, left, look.left)
		}
	}
}

// A node that has left the cluster still answers, and still holds subscriptions, on
// which nothing is ever heard: the subscription ends, although the node is a seed.
func TestSubscriptionAtNodeThatLeft(t *testing.T) {
	t.Parallel()
	const channel = "announce"
	var mu sync.Mutex
	var left bool
	var seed, other *fake
	reply := func(self *fake, command []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case command[0] == "SUBSCRIBE":
			return fmt.Sprintf(">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
		case command[0] != "CLUSTER":
			return "+" + self.address + "\r\n"
		case !left:
			return slots(seed.address)
		case self == seed:
			return "*0\r\n"
		default:
			return slots(other.address)
		}
	}
	mu.Lock()
	seed, other = newFake(t, reply), newFake(t, reply)
	mu.Unlock()
	c := newFakeCluster(t, seed.address, other.address)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.Subscribe(t.Context(), channel, func() { close(ready) }, func(string) {}) }()
	<-ready
	mu.Lock()
	left = true
	mu.Unlock()
	if err := <-ended; err == nil {
		t.Error("it ends without a reason")
	}
}

// A server outside of a cluster is not taken for a node of one.
func TestNoCluster(t *testing.T) {
	server := newFake(t, func(*fake, []string) string { return "-ERR This instance has cluster support disabled\r\n" })
	if err := newFakeCluster(t, server.address).Ready(t.Context()); err == nil {
		t.Error("it is ready")
	}
}

// A server that hangs up after it has received a take has received it once.
func TestTakeArrivesOnce(t *testing.T) {
	for name, kind := range map[string]topology{"single": topologySingle, "Sentinel": topologySentinel, "cluster": topologyCluster} {
		t.Run(name, func(t *testing.T) {
			var takes atomic.Int64
			node := newFake(t, func(self *fake, command []string) string {
				switch command[0] {
				case "EVALSHA", "EVAL":
					takes.Add(1)
					return ""
				case "CLUSTER":
					return slots(self.address)
				case "SENTINEL":
					host, port, _ := net.SplitHostPort(self.address)
					return testredis.Command(host, port)
				case "ROLE":
					return testredis.Command("master")
				default:
					return "+OK\r\n"
				}
			})
			c := must.Get(dialTo(kind, node.address).connect())(t)
			defer c.Close()
			if _, err := c.Eval(t.Context(), &redisconn.Script{Source: "return 1", Digest: "abc"}, []string{"k"}, nil); err == nil {
				t.Error("a decision out of nowhere")
			}
			eventually(t, "it is connected again, and would have sent it again", func() bool {
				_, err := c.Do(t.Context(), "GET", "k")
				return err == nil
			})
			if n := takes.Load(); n != 1 {
				t.Errorf("it arrived %d times", n)
			}
		})
	}
}

// A call whose context has ended leaves keys and arguments to its caller. The race detector tells.
func TestKeepsNoArguments(t *testing.T) {
	node := newFake(t, func(self *fake, command []string) string {
		if command[0] == "CLUSTER" {
			return slots(self.address)
		}
		return "+OK\r\n"
	})
	c := newFakeCluster(t, node.address)
	must.Get(c.Do(t.Context(), "GET", "k"))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	keys, args := []string{"{k}a"}, []string{"1"}
	for range 100 {
		_, _ = c.Eval(ctx, &redisconn.Script{Source: "return 1", Digest: "abc"}, keys, args) // in vain
		keys[0], args[0] = "{k}b", "2"
	}
}
