package main

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/activity"
)

// serveAdmin runs a service with an admin listener until it is stopped, and returns the URLs of both.
func serveAdmin(t *testing.T, args ...string) (url, admin string, stop func()) {
	t.Helper()
	url, log, stop := startIn(t, nil, append([]string{"--admin-listen", "127.0.0.1:0"}, args...)...)
	return url, "http://" + awaitMatch(t, log, `service=admin addr=(\S+)\n`), stop
}

// read reads a document of the admin API, perhaps with a token.
func read[T any](t *testing.T, url string, token ...string) (document T) {
	t.Helper()
	var fields []string
	for _, each := range token {
		fields = append(fields, "Authorization: Bearer "+each)
	}
	status, text := fetch(t, http.MethodGet, url, "", fields...)
	if err := json.Unmarshal([]byte(text), &document); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s, %v", url, status, text, err)
	}
	return document
}

// Two services on one Redis: what either decides is seen through both, and one that ends is gone. A stream of events that is open
// does not keep a service from ending. No rule matches the evaluations.
func TestTwoServices(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	url1, admin1, stop1 := serveAdmin(t, "--store", redis.URL(), "--store-timeout=1m")
	url2, admin2, stop2 := serveAdmin(t, "--store", redis.URL(), "--store-timeout=1m")
	for _, url := range []string{url1, url1, url2} { // two are denied, perhaps one by each process
		_, _ = evaluated(t, url, login)
		eventually(t, "a decision of "+url, func() bool { // which a process that is too busy does not make
			status, _ := get(t, url+apipath.Check+"?key=alice&algorithm=SLIDING_WINDOW_LOG&permits=60")
			return status == http.StatusOK || status == http.StatusTooManyRequests
		})
	}
	for _, admin := range []string{admin1, admin2} {
		eventually(t, "the other process in "+admin, func() bool {
			top := read[activity.Top](t, admin+activity.PathTop)
			return top.Processes == 2 && top.Scope == activity.ScopeAll && len(top.Clients) == 1 && top.Clients[0].Count == 3
		})
		eventually(t, "the denials of both in "+admin, func() bool { // a process that is too busy to answer is silent
			denials := read[activity.Denials](t, admin+activity.PathDenials)
			return len(denials.Denials) == 1 && denials.Denials[0].Count == 2 && denials.Processes == 2 && len(denials.Silent) == 0
		})
		if f := read[activity.Stats](t, admin+activity.PathStats).Store.Figures; f == nil || f.Scope != activity.ScopeAll || f.Calls == 0 || f.Operations < f.Calls {
			t.Errorf("the store's figures are %+v", f)
		}
		eventually(t, "both processes in "+admin, func() bool {
			processes := read[activity.Processes](t, admin+activity.PathProcesses).Processes
			return len(processes) == 2 && processes[0].Revision == processes[1].Revision && processes[0].Self
		})
	}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, admin2+activity.PathEvents, nil))(t)
	events := must.Get(http.DefaultClient.Do(request))(t)
	defer func() { _ = events.Body.Close() }()
	stop2()
	if text, err := io.ReadAll(events.Body); err != nil || len(text) == 0 {
		t.Errorf("the stream ends with %v after %d bytes", err, len(text))
	}
	eventually(t, "the end of the other process", func() bool {
		return len(read[activity.Processes](t, admin1+activity.PathProcesses).Processes) == 1
	})
	stop1()
}
