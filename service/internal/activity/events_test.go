package activity_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/activity"
)

// An event as it is sent.
type event struct{ id, kind, data string }

// A reader reads a stream of events, through a writer without a buffer: it blocks until it is read.
type reader struct {
	t      testing.TB
	text   *bufio.Reader
	status chan int
	stop   func()
	done   chan struct{}
}

type pipeWriter struct {
	*io.PipeWriter
	header http.Header
	status chan int
}

func (w *pipeWriter) Header() http.Header    { return w.header }
func (w *pipeWriter) WriteHeader(status int) { w.status <- status }
func (w *pipeWriter) FlushError() error      { return nil }

func (s *service) listen(lastID string) *reader {
	ctx, stop := context.WithCancel(s.t.Context())
	in, out := io.Pipe()
	r := &reader{t: s.t, text: bufio.NewReaderSize(in, 16), status: make(chan int, 1), done: make(chan struct{})}
	r.stop = func() {
		stop()
		_ = in.Close()
		<-r.done
	}
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/events", nil)
	if lastID != "" {
		request.Header.Set("Last-Event-ID", lastID)
	}
	go func() {
		defer close(r.done)
		s.ServeHTTP(&pipeWriter{out, http.Header{}, r.status}, request)
		_ = out.Close()
	}()
	return r
}

// next reads an event; ok is false at the end of the stream.
func (r *reader) next() (e event, ok bool) {
	r.t.Helper()
	for {
		line, err := r.text.ReadString('\n')
		if err != nil {
			return e, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.kind = value
		case "data":
			e.data = value
		case "":
			return e, true
		}
	}
}

// until reads to the next event of a kind.
func (r *reader) until(kind string, document any) event {
	r.t.Helper()
	for {
		e, ok := r.next()
		if !ok {
			r.t.Fatalf("the stream ends before an event %s", kind)
		}
		if e.kind != kind {
			continue
		}
		decoder := json.NewDecoder(strings.NewReader(e.data))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(document); err != nil {
			r.t.Fatalf("%s: %v", e.data, err)
		}
		return e
	}
}

// bubble runs a test of a recorder that runs, on time of its own.
func bubble(t *testing.T, test func(s *service, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &service{t: t, names: true, Recorder: activity.New(activity.Config{Process: activity.Process{Name: "a"}})}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Run(ctx)
		}()
		stop := func() {
			cancel()
			<-ended
		}
		defer stop()
		synctest.Wait()
		test(s, stop)
	})
}

// decide observes decisions at the time of the bubble.
func (s *service) decide(n int, client string, outcome activity.Outcome) {
	for range n {
		e := decisionAt(stint.Instant(time.Now().UnixMicro()), "api", client, outcome)
		s.Observe(s.t.Context(), &e)
	}
}

// A stream begins with all that is known, and tells each second what was decided in it, once.
func TestEvents(t *testing.T) {
	bubble(t, func(s *service, stop func()) {
		s.decide(5, "alice", activity.Admitted)
		time.Sleep(1500 * time.Millisecond) //nolint:forbidigo // the bubble's time
		r := s.listen("")
		defer r.stop()
		var snapshot activity.Snapshot
		if r.until("snapshot", &snapshot); sum(snapshot.Stats.Totals.Admitted) != 5 || snapshot.Shared.Top.Clients[0].Client != "alice" || len(snapshot.Shared.Processes.Processes) != 1 {
			t.Errorf("the snapshot is %+v", snapshot)
		}
		admitted, denied, rules := uint32(0), uint32(0), uint32(0)
		var from int64
		for range 5 {
			s.decide(3, "alice", activity.Admitted)
			s.decide(2, "bob", activity.Denied)
			var tick activity.Tick
			r.until("second", &tick)
			admitted, denied = admitted+sum(tick.Totals.Admitted), denied+sum(tick.Totals.Denied)
			for _, rule := range tick.Rules {
				rules += sum(rule.Seconds.Admitted)
			}
			if from != 0 && tick.Totals.From != from {
				t.Errorf("a tick begins at %d, want %d", tick.Totals.From, from)
			}
			from = tick.Totals.From + int64(len(tick.Totals.Admitted))
			if len(tick.Denials) > 2 || len(tick.Denials) > 0 && tick.Denials[0].Client != "bob" {
				t.Errorf("the tick's denials are %+v", tick.Denials)
			}
		}
		if admitted < 12 || admitted > 15 || denied*3 != admitted*2 || rules != admitted {
			t.Errorf("%d are admitted, %d by the rule, %d denied", admitted, rules, denied)
		}
		s.StoreChanged(0, "no connection")
		for tick := (activity.Tick{}); tick.Store.State != "unreachable"; {
			tick = activity.Tick{}
			r.until("second", &tick)
			if tick.Store.State == "unreachable" && (len(tick.Changes) != 1 || tick.Changes[0].Detail != "no connection") {
				t.Errorf("the changes are %+v", tick.Changes)
			}
		}
		var shared activity.Shared
		if r.until("shared", &shared); shared.Top.Denied[0].Client != "bob" || shared.Processes.Scope != activity.ScopeProcess {
			t.Errorf("what all share is %+v", shared)
		}
		go stop()
		for {
			if _, ok := r.next(); !ok {
				return
			}
		}
	})
}

// Those without a token are sent no names.
func TestEventsMasked(t *testing.T) {
	bubble(t, func(s *service, _ func()) {
		s.decide(5, "alice", activity.Denied)
		s.names = false
		r := s.listen("")
		defer r.stop()
		for range 6 {
			e, ok := r.next()
			if s.decide(1, "alice", activity.Denied); !ok || strings.Contains(e.data, "alice") || !strings.Contains(e.data, `"client":"client-`) && e.kind != "second" {
				t.Errorf("%v %s tells %s", ok, e.kind, e.data)
			}
		}
	})
}

// A slow reader is disconnected. It does not delay others, and can resume.
func TestSlowReader(t *testing.T) {
	bubble(t, func(s *service, _ func()) {
		slow, quick := s.listen(""), s.listen("")
		defer quick.stop()
		last, _ := quick.next()
		for n := 0; n < 40; n++ {
			s.decide(1, "alice", activity.Admitted)
			e, ok := quick.next()
			if !ok {
				t.Fatal("the quick reader was dropped")
			}
			last = e
		}
		read, end := 0, event{}
		for {
			e, ok := slow.next()
			if !ok {
				break
			}
			read, end = read+1, e
		}
		slow.stop()
		if read < 10 || read > 20 {
			t.Errorf("the slow reader got %d events, want those of its queue", read)
		}
		again := s.listen(end.id)
		defer again.stop()
		for number := numberOf(t, end) + 1; number <= numberOf(t, last); number++ {
			if e, ok := again.next(); !ok || numberOf(t, e) != number || e.kind == "snapshot" {
				t.Fatalf("after %s comes %s %s", end.id, e.kind, e.id)
			}
		}
		for _, unknown := range []string{"other-1", end.id + "0000", "x"} {
			r := s.listen(unknown)
			if e, _ := r.next(); e.kind != "snapshot" {
				t.Errorf("after %s comes %s", unknown, e.kind)
			}
			r.stop()
		}
	})
}

func numberOf(t *testing.T, e event) (n int) {
	t.Helper()
	_, text, _ := strings.Cut(e.id, "-")
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	return n
}

// There are so many streams, and one that ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	bubble(t, func(s *service, _ func()) {
		var open []*reader
		for range 128 {
			r := s.listen("")
			open = append(open, r)
			r.next()
		}
		refused := s.listen("")
		if status := <-refused.status; status != http.StatusServiceUnavailable {
			t.Errorf("status %d for a stream too many", status)
		}
		refused.stop()
		open[0].stop()
		open[0] = s.listen("")
		if e, ok := open[0].next(); !ok || e.kind != "snapshot" {
			t.Errorf("%v %s, want room for a stream", ok, e.kind)
		}
		for _, r := range open {
			r.stop()
		}
	})
}
