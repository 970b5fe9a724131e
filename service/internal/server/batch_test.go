package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server"
)

// many is a policy of so many limits, as a change of a configuration.
func many(limits int) func(*server.Config) {
	return func(c *server.Config) {
		c.Policies = map[string][]stint.Limit{"many": nil}
		for i := range limits {
			c.Policies["many"] = append(c.Policies["many"], stint.FixedWindow(10_000, time.Hour).Named(fmt.Sprint("l", i)))
		}
	}
}

func batchOf(n int) string {
	return "[" + strings.Repeat(`{"key":"k","policy":"many"},`, n-1) + `{"key":"k","policy":"many"}]`
}

// A sizing store notes how many limits come in one call at most.
type sizing struct {
	*store
	most int
}

func (s *sizing) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	limits := 0
	for i := range ops {
		limits += ops[i].Limits()
	}
	s.most = max(s.most, limits)
	s.store.DecideAll(ctx, ops, results)
}

// A batch of 64,000 limits, of which there can't be more, is decided, in calls that each have the time of a call.
func TestBatchOfManyLimits(t *testing.T) {
	var calls *sizing
	f := newFixture(t, func(c *server.Config) {
		many(64)(c)
		own, _ := c.Store.(*store)
		calls = &sizing{store: own}
		c.Store = calls
	})
	var all []api.CheckResponse
	f.post(check, batchOf(1000)).into(&all)
	if len(all) != 1000 || !all[999].Allowed || all[999].Remaining != 9000 {
		t.Fatalf("%d answers, the last one %+v", len(all), all[len(all)-1])
	}
	if calls.most > 1024 {
		t.Errorf("%d limits in one call, want 1,024 at most", calls.most)
	}
}

// A batch is as much work as it has limits: while one of as many as there may be is decided, others wait.
func TestBatchWeighsItsLimits(t *testing.T) {
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	f := newFixture(t, func(c *server.Config) {
		many(64)(c)
		c.HTTP.MaxOperations = 128
	})
	f.store.enter = func(context.Context) {
		entered <- struct{}{}
		<-leave
	}
	done := make(chan int, 1)
	go func() { done <- f.post(check, batchOf(3)).status }()
	<-entered
	for _, path := range []string{check + "?key=other", apipath.Metrics} { // metrics cost work, too
		if got := f.get(path); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "its turn did not come") {
			t.Errorf("%s: %d %s, want 503", path, got.status, got.body)
		}
	}
	close(leave)
	if status := <-done; status != http.StatusOK {
		t.Errorf("the batch: %d", status)
	}
}

// A request with both lengths, or in chunks by HTTP/1.0, is answered, then its connection closed (RFC 9112, section
// 6.1): what follows on it, which whoever passed it on may have taken for its body, is no request.
func TestBothLengths(t *testing.T) {
	const lengths = "Content-Type: application/json\r\nContent-Length: 2\r\n" + chunked
	old := strings.Replace(postHead, "HTTP/1.1", "HTTP/1.0", 1) + "Connection: keep-alive\r\n"
	for name, request := range map[string]string{
		"both":               postHead + lengths + "2\r\n{}\r\n0\r\n\r\n",
		"both, HTTP/1.0":     old + lengths + "{}",
		"in chunks HTTP/1.0": old + chunked,
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, nil)
			conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", r.server.Addr().String()))(t)
			defer func() { _ = conn.Close() }()
			must.Do(t, conn.SetDeadline(time.Now().Add(time.Minute)))
			must.Get(io.WriteString(conn, request+getHead+"Connection: close\r\n\r\n"))(t)
			answer, err := io.ReadAll(conn)
			if err != nil && !errors.Is(err, syscall.ECONNRESET) { // by what follows, which nobody reads
				t.Fatal(err)
			}
			if text := string(answer); strings.Count(text, "HTTP/1.") != 1 || !strings.Contains(text, "Connection: close\r\n") {
				t.Errorf("answered\n%s", text)
			}
		})
	}
}
