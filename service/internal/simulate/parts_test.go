package simulate_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/simulate"
)

// The parts of random traffic have, in every step and in all, what the candidate has, and each what was decided of its
// requests. Those with the most requests are told, in the order in which their values came.
func TestParts(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		values := 1 + rng.IntN(140)
		type count struct {
			value            string
			admitted, denied int64
		}
		var want []count
		of := map[string]int{}
		var events []*simulate.Event
		s := must.Get(simulate.New(simulate.Config{
			By: "team",
			Candidates: []simulate.Candidate{
				candidate(t, "limit", simulate.LimitRule("limit", stint.FixedWindow(2, time.Minute))), {Name: "log", Logged: true},
			},
			Decided: func(v *simulate.Verdict) error {
				if v.Candidate == "log" {
					if said := events[v.Line].Status != 429; v.Allowed != said || v.Reason != map[bool]string{false: "logged"}[said] {
						t.Fatalf("%+v of an answer with %d", v, events[v.Line].Status)
					}
					return nil
				}
				c := &want[of[events[v.Line].Request.Attributes["team"]]]
				if v.Allowed {
					c.admitted++
				} else {
					c.denied++
				}
				return nil
			},
		}))(t)
		now := at2026
		for i := range 600 {
			now = now.Add(time.Duration(rng.Int64N(int64(time.Second) << rng.IntN(12))))
			ev := event(now, fmt.Sprint(rng.IntN(3)))
			ev.Line, ev.Status = int64(i), []int{200, 429, 503}[rng.IntN(3)]
			value := ""
			if n := min(rng.IntN(values), rng.IntN(values)); n > 0 {
				value = fmt.Sprint("team-", n)
				ev.Request.Attributes = map[string]string{"team": value}
			}
			if _, known := of[value]; !known {
				of[value] = len(want)
				want = append(want, count{value: value})
			}
			events = append(events, ev)
			must.Do(t, s.Add(ev))
		}
		c := finish(t, s).Candidates[0]
		if len(want) > 8 {
			byRequests := slices.Clone(want[:min(len(want), 100)])
			slices.SortStableFunc(byRequests, func(a, b count) int { return cmp.Compare(b.admitted+b.denied, a.admitted+a.denied) })
			kept := []count{}
			for _, w := range want {
				if slices.ContainsFunc(byRequests[:7], func(k count) bool { return k.value == w.value }) {
					kept = append(kept, w)
				}
			}
			want = kept
		}
		var sum []simulate.Step
		for i, p := range c.Parts {
			if sum == nil {
				sum = make([]simulate.Step, len(p.Steps))
			}
			var admitted, denied int64
			for j, step := range p.Steps {
				sum[j].Admitted += step.Admitted
				sum[j].Denied += step.Denied
				admitted, denied = admitted+step.Admitted, denied+step.Denied
			}
			if admitted != p.Admitted || denied != p.Denied {
				t.Errorf("seed %d: %s has %d and %d, and its steps %d and %d", seed, p.Name(), p.Admitted, p.Denied, admitted, denied)
			}
			if i < len(want) && (count{p.Value, p.Admitted, p.Denied}) != want[i] {
				t.Errorf("seed %d: part %d is %+v, want %+v", seed, i, count{p.Value, p.Admitted, p.Denied}, want[i])
			}
			if p.Others != (i == len(want)) {
				t.Errorf("seed %d: part %d of %d is of others: %v", seed, i, len(want), p.Others)
			}
		}
		if !slices.Equal(sum, c.Steps) {
			t.Errorf("seed %d: parts have the steps\n%v, all\n%v", seed, sum, c.Steps)
		}
	}
}
