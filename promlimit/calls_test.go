package promlimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/promlimit"
)

// families gathers all metrics by their names.
func families(t *testing.T, g prometheus.Gatherer) map[string]*dto.MetricFamily {
	t.Helper()
	all := must.Get(g.Gather())(t)
	named := map[string]*dto.MetricFamily{}
	for _, family := range all {
		named[family.GetName()] = family
	}
	return named
}

func TestCalls(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	calls := must.Get(promlimit.NewCalls(registry))(t)
	calls.Done(2*time.Millisecond, 40, 30, nil)
	calls.Done(4*time.Millisecond, 1, 0, nil)
	calls.Done(time.Second, 7, 3, errors.New("connection refused"))
	found := families(t, registry)
	for _, metric := range found["rate_limiter_store_round_trip_seconds"].GetMetric() {
		h, outcome := metric.GetHistogram(), metric.GetLabel()[0].GetValue()
		want := map[string]float64{"answered": 0.006, "failed": 1}[outcome]
		if got := h.GetSampleSum(); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("calls that were %s took %v s, want %v", outcome, got, want)
		}
	}
	if h := found["rate_limiter_store_batch_operations"].GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 41 {
		t.Errorf("%d calls carried %v operations, want 2 that carried 41", h.GetSampleCount(), h.GetSampleSum())
	}
	if n := found["rate_limiter_store_coalesced_operations_total"].GetMetric()[0].GetCounter().GetValue(); n != 30 {
		t.Errorf("%v operations were coalesced, want 30", n)
	}
	linted(t, registry)
	if n := testing.AllocsPerRun(100, func() { calls.Done(time.Millisecond, 8, 2, nil) }); n != 0 {
		t.Errorf("Done allocates %v times", n)
	}
}

// TestNativeHistograms: each histogram has native buckets beside the classic ones.
func TestNativeHistograms(t *testing.T) {
	m, registry := metrics(t)
	calls := must.Get(promlimit.NewCalls(registry))(t)
	calls.Done(time.Millisecond, 1, 0, nil)
	m.Checked(1, decision(true), time.Millisecond)
	histograms := 0
	for name, family := range families(t, registry) {
		if family.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		histograms++
		spans := 0
		for _, metric := range family.GetMetric() {
			h := metric.GetHistogram()
			if len(h.GetBucket()) == 0 || h.GetZeroThreshold() == 0 {
				t.Errorf("%s has %d classic buckets, and a zero threshold of %v: want both kinds", name, len(h.GetBucket()), h.GetZeroThreshold())
			}
			spans += len(h.GetPositiveSpan())
		}
		if spans == 0 {
			t.Errorf("%s has observations, and none in native buckets", name)
		}
	}
	if histograms != 3 {
		t.Errorf("%d histograms, want 3", histograms)
	}
}
