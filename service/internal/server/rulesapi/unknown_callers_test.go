package rulesapi

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/logsampler"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// Unknown callers can't fill the log; callers with a token are recorded each time.
func TestStrangersCannotFillTheLog(t *testing.T) {
	var log strings.Builder
	m := must.Get(newMetrics(prometheus.NewRegistry()))(t)
	now := stint.Instant(1_790_000_050_500_000)
	a := &API{
		config: Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, metrics: m,
		unknownCallers: logsampler.New(10, time.Second, func() stint.Instant { return now }),
	}
	refuse := func(times int, name string, status int) (lines string) {
		log.Reset()
		for range times {
			a.Refused(t.Context(), Caller{Name: name}, problem.New(status, "no"))
		}
		return log.String()
	}
	records := func(lines string, want int) {
		t.Helper()
		if got := strings.Count(lines, "msg=audit"); got != want {
			t.Errorf("%d records, want %d", got, want)
		}
	}
	lines := refuse(1000, "", http.StatusUnauthorized)
	records(lines, 10)
	if strings.Contains(lines, "left_out") {
		t.Errorf("something is left out before the first: %s", lines)
	}
	records(refuse(100, "", http.StatusForbidden), 0) // a page's, for one
	records(refuse(100, "ann", http.StatusForbidden), 100)
	now += 999_999
	records(refuse(1, "", http.StatusUnauthorized), 0)
	now++
	lines = refuse(50, "", http.StatusUnauthorized)
	records(lines, 1)
	if !strings.Contains(lines, " left_out=1091\n") {
		t.Errorf("of 990+100+1 that were left out it is said: %s", lines)
	}
	now += 60_000_000
	records(refuse(50, "", http.StatusUnauthorized), 10)
	for outcome, want := range map[string]float64{"unauthenticated": 1101, "forbidden": 200} {
		if got := testutil.ToFloat64(m.refusals.WithLabelValues(outcome)); got != want {
			t.Errorf("%v %s are counted, want %v", got, outcome, want)
		}
	}
}
