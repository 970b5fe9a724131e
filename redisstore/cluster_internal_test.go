package redisstore

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// slots is the reply to CLUSTER SLOTS of a cluster of one node.
func slots(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s\r\n", len(host), host, port)
}

func newFakeCluster(t *testing.T, seeds ...string) *clusterConn {
	t.Helper()
	c, err := newCluster(&reach{location: location{network: "tcp", hosts: seeds}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A slot that takes its time to move: the one node sends a command with several keys on,
// the other asks for patience, and it gets through when the slot has moved.
func TestPatienceWhileSlotsMove(t *testing.T) {
	const rounds = 3 * maxHops
	asked, asking := 0, false
	var node *fake
	node = newFake(t, func(command []string) string {
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
			return "-ASK 1 " + node.address + "\r\n"
		}
	})
	c := newFakeCluster(t, node.address)
	reply, err := c.Eval(t.Context(), newScript("return 1"), []string{"a", "b"}, nil)
	if reply != "done" || err != nil {
		t.Errorf("after %d rounds of patience: %q, %v", rounds, reply, err)
	}
}

// A node that has left the cluster still answers, and still holds subscriptions, on
// which nothing is ever heard: the subscription ends. The node is a seed, so the
// connection to it stays.
func TestSubscriptionAtNodeThatLeft(t *testing.T) {
	const channel = "announce"
	var mu sync.Mutex
	var left bool
	var seed, other *fake
	node := func(self func() *fake) func([]string) string {
		return func(command []string) string {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case command[0] == "SUBSCRIBE":
				return fmt.Sprintf(">3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(channel), channel)
			case command[0] != "CLUSTER":
				return "+" + self().address + "\r\n"
			case !left:
				return slots(seed.address)
			case self() == seed:
				return "*0\r\n"
			default:
				return slots(other.address)
			}
		}
	}
	mu.Lock()
	seed = newFake(t, node(func() *fake { return seed }))
	other = newFake(t, node(func() *fake { return other }))
	mu.Unlock()
	c := newFakeCluster(t, seed.address, other.address)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- c.Subscribe(t.Context(), channel, func() { close(ready) }, func(string) {}) }()
	<-ready
	mu.Lock()
	left = true
	mu.Unlock()
	c.suspect()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it ends without a reason")
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it listens at a node that has left the cluster")
	}
}

// Where a command is sent on to, also by nodes that do not know their own host, or make
// no sense.
func TestRedirection(t *testing.T) {
	for reply, want := range map[string]string{
		"MOVED 3999 127.0.0.1:6381": "MOVED 127.0.0.1:6381",
		"ASK 3999 127.0.0.1:6381":   "ASK 127.0.0.1:6381",
		"MOVED 3999 ::1:6381":       "MOVED [::1]:6381",
		"MOVED 3999 [::1]:6381":     "MOVED [::1]:6381",
		"MOVED 3999 :6381":          "MOVED 10.0.0.7:6381",
		"ASK 3999 ?:6381":           "ASK 10.0.0.7:6381",
		"MOVED":                     "",
		"MOVED 3999 nowhere":        "",
		"ASKING for trouble":        "",
		"ERR no":                    "",
	} {
		address, moved, ask := redirection(errors.New(reply), "10.0.0.7:6379")
		got := address
		switch {
		case moved && !ask:
			got = "MOVED " + address
		case ask && !moved:
			got = "ASK " + address
		}
		if got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}
