package main

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint/bench/internal/load"
)

// The traffic is mostly ordinary: many clients under the default token bucket. One
// request in ten is exact: it asks for one of five keys, each under a limit of
// another algorithm that neither refills nor turns while the run lasts, so that
// exactly the limit must be admitted, whichever process is asked.
const exactEvery = 10

// exact lists the five policies, with a limit's parameters other than its size.
var exact = []struct{ policy, algorithm, size, pace string }{
	{"exact-token-bucket", "token_bucket", "capacity", "refill: 1/24h"},
	{"exact-leaky-bucket", "leaky_bucket", "capacity", "leak: 1/24h"},
	{"exact-fixed-window", "fixed_window", "limit", "window: 8784h"},
	{"exact-sliding-window-log", "sliding_window_log", "limit", "window: 8784h"},
	{"exact-sliding-window-counter", "sliding_window_counter", "limit", "window: 8784h"},
}

// exactLimit is the size of the exact limits: half of what is asked of each, at
// most 500.
func (o options) exactLimit() int {
	asked := requests(o.rate, o.duration) / exactEvery / len(exact)
	return min(max(asked/2, 1), 500)
}

// config is the servers' configuration. A store that fails must not look like an
// admission.
func config(o options) string {
	var b strings.Builder
	b.WriteString("on_store_failure: closed\n" +
		"defaults:\n  token_bucket: {capacity: 100, refill: 10/s}\npolicies:\n")
	for _, e := range exact {
		fmt.Fprintf(&b, "  %s:\n    - {algorithm: %s, %s: %d, %s}\n", e.policy, e.algorithm, e.size, o.exactLimit(), e.pace)
	}
	return b.String()
}

// ordinary is the path of request i when all are ordinary. The keys are visited in
// a scattered order, each about equally often.
func (o options) ordinary(i int) string {
	const stride = 7919 // a prime, so that no client is left out unless it divides their number
	return fmt.Sprintf("/api/v1/rate-limit/check?key=user:%d&algorithm=TOKEN_BUCKET", i*stride%max(o.clients, 1))
}

// mixed is the path of request i of a measurement.
func (o options) mixed(i int) string {
	if e, ok := exactOf(i); ok {
		return "/api/v1/rate-limit/check?key=shared&policy=" + exact[e].policy
	}
	return o.ordinary(i)
}

// exactOf says under which exact limit request i falls, if any. Requests go to the
// processes in turn; the exact ones drift over them by one per round of the five.
func exactOf(i int) (int, bool) {
	block := i / exactEvery
	if i%exactEvery != block/len(exact)%exactEvery {
		return 0, false
	}
	return block % len(exact), true
}

// A tally is what came back.
type tally struct {
	statuses map[int]int // 0 is no answer
	errors   int         // neither 200 nor 429
	limit    int
	admitted []int // of each exact limit
}

func count(o options, samples []load.Sample) tally {
	t := tally{statuses: map[int]int{}, limit: o.exactLimit(), admitted: make([]int, len(exact))}
	for i, s := range samples {
		t.statuses[s.Status]++
		if s.Status != 200 && s.Status != 429 {
			t.errors++
		}
		if e, ok := exactOf(i); ok && s.Status == 200 {
			t.admitted[e]++
		}
	}
	return t
}

// inexact is by how many permits the exact limits were missed, in all.
func (t tally) inexact() int {
	missed := 0
	for _, n := range t.admitted {
		missed += max(n-t.limit, t.limit-n)
	}
	return missed
}
