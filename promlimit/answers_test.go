package promlimit_test

import (
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/promlimit"
)

// Answers are counted by listener, route and status; the last trace of each bucket is its exemplar.
func TestAnswers(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	answers := must.Get(promlimit.NewAnswers(registry))(t)
	check := answers.Route("http", "/check")
	check.Answered("200", 3*time.Millisecond, "")
	check.Answered("200", 4*time.Millisecond, "a")
	check.Answered("200", 5*time.Millisecond, "b") // a bound belongs to its bucket
	check.Answered("200", time.Minute, "c")
	check.Answered("503", time.Second, "")
	answers.Route("grpc", "ShouldRateLimit").Answered("OK", time.Second, "")
	gathers(t, registry, `
# HELP rate_limiter_answers_total Answers, by listener, route and status.
# TYPE rate_limiter_answers_total counter
rate_limiter_answers_total{route="/check",service="http",status="200"} 4
rate_limiter_answers_total{route="/check",service="http",status="503"} 1
rate_limiter_answers_total{route="ShouldRateLimit",service="grpc",status="OK"} 1
`, "rate_limiter_answers_total")
	linted(t, registry)
	families := must.Get(registry.Gather())(t)
	traces := map[float64]string{}
	for _, bucket := range families[0].GetMetric()[0].GetHistogram().GetBucket() {
		if exemplar := bucket.GetExemplar(); exemplar != nil {
			traces[bucket.GetUpperBound()] = exemplar.GetLabel()[0].GetValue()
		}
	}
	if len(traces) != 2 || traces[5e-3] != "b" || traces[math.Inf(1)] != "c" {
		t.Errorf("exemplars %v", traces)
	}
}

// Nothing is lost of statuses that are new to a route while others are counted and gathered.
func TestAnswersAtOnce(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	answers := must.Get(promlimit.NewAnswers(registry))(t)
	route := answers.Route("http", "/check")
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, status := range strings.Fields("200 429 503 400 404 405 413") {
				route.Answered(status, time.Millisecond, "a")
				if _, err := registry.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	families := must.Get(registry.Gather())(t)
	for _, metric := range families[1].GetMetric() {
		if metric.GetCounter().GetValue() != 4 {
			t.Errorf("%v", metric)
		}
	}
	if n := len(families[1].GetMetric()); n != 7 {
		t.Errorf("%d statuses", n)
	}
}
