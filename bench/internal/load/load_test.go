package load

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestRunOffersEveryRequestOnceToItsTarget(t *testing.T) {
	var seen [2]atomic.Int64
	var targets []string
	for i := range seen {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if seen[i].Add(1)%2 == 0 {
				w.WriteHeader(http.StatusTooManyRequests)
			}
			_, _ = w.Write([]byte("body"))
		}))
		defer server.Close()
		targets = append(targets, strings.TrimPrefix(server.URL, "http://"))
	}
	plan := Plan{
		Targets: targets, Rate: 10_000, Requests: 101, Conns: 3, Timeout: time.Minute,
		Path: func(int) string { return "/" },
	}
	samples, err := Run(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := seen[0].Load(), seen[1].Load(); a != 51 || b != 50 {
		t.Errorf("targets saw %d and %d requests, want 51 and 50", a, b)
	}
	status := map[int]int{}
	for i, s := range samples {
		status[s.Status]++
		if s.Latency < s.Lag || s.Lag < 0 {
			t.Errorf("request %d: latency %v, lag %v", i, s.Latency, s.Lag)
		}
	}
	if status[200] != 51 || status[429] != 50 {
		t.Errorf("statuses %v, want 51 of 200 and 50 of 429", status)
	}
}

func TestQuantileIsTheLeastValueThatTheShareDoesNotExceed(t *testing.T) {
	var samples []Sample
	for i := 100; i >= 1; i-- {
		samples = append(samples, Sample{Latency: time.Duration(i)})
	}
	latency := func(s Sample) time.Duration { return s.Latency }
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 50, 0.99: 99, 0.999: 100, 1: 100} {
		if got := Quantile(samples, q, latency); got != want {
			t.Errorf("quantile %v is %d, want %d", q, got, want)
		}
	}
}

func TestPlanNamesWhatIsWrong(t *testing.T) {
	good := Plan{Targets: []string{"a"}, Path: func(int) string { return "" }, Rate: 1, Requests: 1, Conns: 1, Timeout: 1}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	bad := good
	bad.Rate = 0
	if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "rate is 0") {
		t.Errorf("error %v, want one that names the rate", err)
	}
}
