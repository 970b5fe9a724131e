package rueidis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// primaries are fakes that all say that they are the primary, and say who they are.
func primaries(t *testing.T, n int) (all []*fake, asked []*atomic.Int64) {
	t.Helper()
	for range n {
		count := &atomic.Int64{}
		all, asked = append(all, newFake(t, func(self *fake, command []string) string {
			if command[0] == "ROLE" {
				return testredis.Command("master")
			}
			count.Add(1)
			return "+" + self.address + "\r\n"
		})), append(asked, count)
	}
	return all, asked
}

// More than half of the sentinels have to agree before anybody is believed, and whoever they
// name counts, whatever another server says of itself.
func TestQuorum(t *testing.T) {
	servers, asked := primaries(t, 2)
	var mu sync.Mutex
	names := []*fake{servers[0], servers[1], nil}
	say := func(all ...*fake) {
		mu.Lock()
		defer mu.Unlock()
		names = all
	}
	d := &dialConfig{location: location{network: "tcp", primary: "name"}}
	for i := range names {
		sentinel := newFake(t, func(_ *fake, command []string) string {
			mu.Lock()
			defer mu.Unlock()
			if command[0] != "SENTINEL" || command[1] != "GET-MASTER-ADDR-BY-NAME" || names[i] == nil {
				return "*-1\r\n"
			}
			host, port, _ := net.SplitHostPort(names[i].address)
			return testredis.Command(host, port)
		})
		d.hosts = append(d.hosts, sentinel.address)
	}
	c := must.Get(newSentinelConn(d))(t)
	t.Cleanup(c.Close)
	if err := c.Ready(t.Context()); !errors.Is(err, errNoQuorum) {
		t.Errorf("one names another than the others: got %v, want %v", err, errNoQuorum)
	}
	if n := asked[0].Load() + asked[1].Load(); n != 0 {
		t.Errorf("%d commands were sent without a quorum", n)
	}
	decides := func(want *fake) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := connOf(c).Do(ctx, "WHO")
			return err == nil && got == want.address
		}
	}
	say(servers[0], nil, servers[0])
	eventually(t, "the one that two name decides", decides(servers[0]))
	say(servers[1], nil, servers[0]) // no quorum for another
	before := asked[0].Load()
	eventually(t, "it still does", func() bool {
		if !c.isUp() { // it was silent for too long on a busy machine, and without a quorum nobody connects anew
			say(servers[0], nil, servers[0])
			eventually(t, "it is connected again", c.isUp)
			say(servers[1], nil, servers[0])
		}
		decides(servers[0])()
		return asked[0].Load() > before
	})
	say(servers[1], servers[1], servers[0])
	eventually(t, "the other one decides, although the first would", decides(servers[1]))
	say(servers[0], servers[0], servers[0])
	eventually(t, "the first one decides again", decides(servers[0]))
}

// takes spends permits of a window of 10 from now on until told to stop, and returns how many
// it got.
func takes(ctx context.Context, c *sentinelConn) (admitted int) {
	const source = `if tonumber(redis.call('GET', KEYS[1]) or 0) >= 10 then return '0' end redis.call('INCR', KEYS[1]) return '1'`
	for ctx.Err() == nil {
		// A call of its own context: one that is under way when the time is over counts.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), 100*time.Millisecond)
		reply := c.send(call, arbitrary("EVAL", source, "1", "k"))
		cancel()
		if text, err := reply.ToString(); err == nil && text == "1" {
			admitted++
		}
	}
	return admitted
}

// The old primary is started again, empty, and says that it is the primary, while the new
// one is cut off: nothing is admitted by it, whatever it says.
func TestOldPrimaryIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := testredis.StartSentinel(t, testredis.GoneAfter(time.Second))
	at := must.Get((Config{URL: s.URL()}).dialConfig())(t)
	c := must.Get(newSentinelConn(at))(t)
	t.Cleanup(c.Close)
	ctx, stop := context.WithCancel(t.Context())
	total := make(chan int, 1)
	go func() { total <- takes(ctx, c) }()
	spent := func(server *testredis.Server) func() bool {
		return func() bool {
			n, err := server.Do("GET", "k")
			return err == nil && n == "10"
		}
	}
	for _, server := range s.Servers() {
		eventually(t, "10 are admitted, and known to all", spent(server))
	}
	old := s.Primary
	must.Do(t, old.Kill())
	s.Follow(t)
	eventually(t, "the new one decides", func() bool { return c.isUp() && c.Primary() == s.Primary.Addr() })
	// Cut off for the client, and the sentinels name no other, however long it takes.
	for _, sentinel := range s.Sentinels {
		must.Get(sentinel.Do("SENTINEL", "SET", testredis.MasterName, "down-after-milliseconds", 3_600_000))(t)
	}
	must.Do(t, s.Primary.Pause())
	c.up.Load().giveUp(errors.New("cut off by the test"))
	old.Restart(t)
	began := time.Now()
	eventually(t, "the time is over", func() bool { return time.Since(began) > 1500*time.Millisecond })
	must.Do(t, s.Primary.Resume())
	eventually(t, "it decides again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return ping(ctx, &c.singleConn) == nil
	})
	stop()
	// The answer to a take may be lost with the server that is killed.
	if n := <-total; n > 10 {
		t.Errorf("%d of 10 were admitted", n)
	}
	if info, err := old.Info("commandstats"); err != nil || strings.Contains(info["cmdstat_eval"], "calls") {
		t.Errorf("the old primary was asked to decide: %v, %v", info["cmdstat_eval"], err)
	}
}
