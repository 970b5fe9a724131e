package capacity

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/testtls"
)

// An endless body gives its bytes and never ends.
type endless struct {
	ctx   context.Context //nolint:containedctx // a Read has none
	rest  int
	given func() // called when all are given
}

func (b *endless) Read(p []byte) (int, error) {
	if b.rest == 0 {
		b.given()
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	n := min(len(p), b.rest)
	clear(p[:n]) // no JSON begins so, which is noticed once all has come
	b.rest -= n
	return n, nil
}

// heapInUse is what lives on the heap; two collections empty the pools.
func heapInUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// from is a transport that connects from an address.
func from(addr string, i *testtls.Issuer, protocols *http.Protocols) *http.Transport {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(addr)}}
	return &http.Transport{TLSClientConfig: i.Client("client"), Protocols: protocols, DialContext: dialer.DialContext}
}

// One client that sends bodies on many streams of HTTP/2 and ends none of them uses no more memory than
// it may, is told so, and keeps no other from sending one.
func TestBodiesThatDoNotEndAreBounded(t *testing.T) {
	const streams, size, patience = 80, 1<<20 - 1, 5 * time.Minute
	const bound, room = 64 << 20, 16 << 20 // the sender's own buffers are here, too
	i := testtls.New(t, "root")
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	c := config.Default()
	c.Listen, c.TLS, c.Drain.KeepAlive = "127.0.0.1:0", i.Files("server"), 0
	c.HTTP.ReadHeaderTimeout, c.HTTP.BodyTimeout, c.HTTP.WriteTimeout = patience, patience, patience
	clients := must.Get(clientip.New(clientip.Config(c.ClientIP)))(t)
	l := must.Get(listen.New(&c, clients, logger, prometheus.NewRegistry()))(t)
	bodies, _ := must.Two(NewBodies(bound, logger, prometheus.NewRegistry()))(t)
	addr := must.Get(l.HTTP(t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := bodies.Read(w, r, clients.Key(r.RemoteAddr, nil), size+1, nil)
		if err != nil {
			problem.Write(w, err)
			return
		}
		text.Release()
	})))(t)
	l.Start()
	before := heapInUse()

	attack, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := from("127.0.0.1", i, protocols)
	var full atomic.Int64
	settled, done := make(chan struct{}, 2*streams), make(chan struct{}, streams)
	for range streams {
		go func() {
			defer func() { done <- struct{}{} }()
			given := sync.OnceFunc(func() { settled <- struct{}{} })
			body := &endless{ctx: attack, rest: size, given: given}
			status, text := post(t, attack, transport, addr, body)
			if status == http.StatusServiceUnavailable && strings.Contains(text, "#temporary-reduced-capacity") {
				full.Add(1)
			} else if status != 0 {
				t.Errorf("%d %s", status, text)
			}
			given()
		}()
	}
	for n := range streams {
		select {
		case <-settled:
		case <-time.After(patience):
			t.Fatalf("of %d streams %d have sent all or were refused", streams, n)
		}
	}
	grown := heapInUse() - before
	t.Logf("%d bodies of %d bytes, %d answered 503: the heap grows by %d bytes", streams, size, full.Load(), grown)
	if grown > bound/2+room {
		t.Errorf("the heap grows by %d bytes, want half of %d and %d at most", grown, bound, room)
	}
	// One client in 4096 shares the account of 127.0.0.1.
	account := func(address string) *atomic.Int64 {
		return bodies.accountOf(clients.Key(net.JoinHostPort(address, "1"), nil))
	}
	number, address := 2, "127.0.0.2"
	for account(address) == account("127.0.0.1") {
		number++
		address = "127.0.0." + strconv.Itoa(number)
	}
	other := from(address, i, protocols)
	if status, text := post(t, t.Context(), other, addr, strings.NewReader("{}"+strings.Repeat(" ", size-2))); status != http.StatusOK {
		t.Errorf("another client's body: %d %s", status, text)
	}
	if held := bodies.held.Load(); held > bound/2 {
		t.Errorf("%d bytes are charged, want half of %d at most", held, bound)
	}
	giveUp()
	for range streams {
		<-done
	}
	transport.CloseIdleConnections()
	other.CloseIdleConnections()
	if err := l.Stop(context.Background(), func(context.Context) {}); err != nil {
		t.Error(err)
	}
	for begun := time.Now(); bodies.held.Load() != 0; runtime.Gosched() { // until the last handlers of HTTP/2 have returned
		if time.Since(begun) > patience {
			t.Fatalf("%d bytes stay charged", bodies.held.Load())
		}
	}
	if lines := strings.Count(log.String(), "bodies use all the memory that they may"); lines != 1 {
		t.Errorf("%d lines say so:\n%s", lines, log.String())
	}
}

// post sends a body to the check; status 0 is no answer.
func post(t *testing.T, ctx context.Context, transport *http.Transport, addr net.Addr, body io.Reader) (status int, text string) { //nolint:revive // t comes first
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr.String()+apipath.Check, body)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	if e, ok := body.(*endless); ok { // a stream that a GOAWAY left unread begins anew, on another connection
		size := e.rest
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(&endless{ctx, size, e.given}), nil }
	}
	response, err := transport.RoundTrip(r)
	if err != nil {
		if ctx.Err() == nil {
			t.Error(err)
		}
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if retry := response.Header.Get("Retry-After"); response.StatusCode == http.StatusServiceUnavailable && retry != "1" {
		t.Errorf("Retry-After is %q", retry)
	}
	if err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	return response.StatusCode, string(answer)
}

// A budget gives a client as much as is left, and gets everything back.
func TestBodyBudget(t *testing.T) {
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	budget := newBodyBudget(64*bodyChunk, true, refused, slog.New(slog.DiscardHandler))
	var names []string // of clients with different accounts
	for i, known := 0, map[*atomic.Int64]bool{}; len(names) < 3; i++ {
		if name := strconv.Itoa(i); !known[budget.accountOf(name)] {
			names, known[budget.accountOf(name)] = append(names, name), true
		}
	}
	a, b, c := names[0], names[1], names[2]
	stalled := func(client string, chunks int) func() {
		t.Helper()
		reader, writer := io.Pipe()
		held := budget.held.Load()
		ended := make(chan error)
		go func() {
			read, err := budget.read(client, 0, reader)
			read.Release()
			ended <- err
		}()
		_, _ = writer.Write(make([]byte, chunks*bodyChunk-1))
		if got := budget.held.Load() - held; got != int64(chunks)*bodyChunk {
			t.Errorf("%s: %d bytes are charged for %d chunks", client, got, chunks)
		}
		return func() {
			_ = writer.CloseWithError(io.ErrUnexpectedEOF)
			if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error(err)
			}
		}
	}
	over := func(client string, size int) error {
		read, err := budget.read(client, 0, strings.NewReader(strings.Repeat("x", size)))
		if err == nil && (len(read.Text) != size || read.charged != int64(size)) {
			t.Errorf("%d bytes, %d charged, of %d", len(read.Text), read.charged, size)
		}
		read.Release()
		return err
	}
	if err := over(a, 16*bodyChunk-1); err != nil {
		t.Error("a quarter of the bound, which one body needs twice:", err)
	}
	if err := over(a, 16*bodyChunk+1); !errors.Is(err, errBodyMemory) {
		t.Error("more than a quarter:", err)
	}
	endA := stalled(a, 31)
	if err := over(a, 2*bodyChunk); !errors.Is(err, errBodyMemory) {
		t.Error("one client has half and gets more:", err)
	}
	endB := stalled(b, 15)
	if err := over(b, 2*bodyChunk); !errors.Is(err, errBodyMemory) {
		t.Error("a second one gets more than is left:", err)
	}
	if err := over(c, bodyChunk); err != nil {
		t.Error("a third one, which needs little:", err)
	}
	endA()
	endB()
	if budget.held.Load() != 0 {
		t.Errorf("%d bytes stay charged", budget.held.Load())
	}
	for i := range budget.clients {
		if own := budget.clients[i].Load(); own != 0 {
			t.Errorf("an account keeps %d bytes", own)
		}
	}
	if got := testutil.ToFloat64(refused); got != 3 {
		t.Errorf("%v refusals are counted", got)
	}
}

// Heads of HTTP/2, of which a connection has many, are charged with the body.
func TestHeadsOfStreamsAreCharged(t *testing.T) {
	budget := newBodyBudget(4*bodyChunk, true, prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}), slog.New(slog.DiscardHandler))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
	for i := range 100 {
		r.Header.Set("X-"+strconv.Itoa(i), strings.Repeat("x", 100))
	}
	if got := headOf(r); got != 0 {
		t.Errorf("a head of HTTP/1 is %d bytes", got)
	}
	r.ProtoMajor = 2
	if got := headOf(r); got < 20_000 || got > 30_000 {
		t.Errorf("a head of 100 fields of 100 bytes is %d bytes", got)
	}
	if _, err := budget.read("a", headOf(r), strings.NewReader("{}")); !errors.Is(err, errBodyMemory) {
		t.Error(err)
	}
	if held := budget.held.Load(); held != 0 {
		t.Errorf("%d bytes stay charged", held)
	}
}
