package rulestore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore"
)

// many are rules of about 200 bytes.
func many(n int) []rules.Rule {
	list := make([]rules.Rule, n)
	for i := range list {
		list[i] = rules.Rule{
			ID: fmt.Sprintf("rule-%06d", i), Labels: map[string]string{"team": fmt.Sprintf("team-%d", i%50)},
			Match: rules.Match{Methods: []string{"GET"}, Paths: []string{fmt.Sprintf("/api/v1/service-%d/items/{id}", i)}},
			Scope: []string{rules.PerUser}, Missing: rules.MissingIP, Limits: []stint.Limit{stint.FixedWindow(int64(i+1), time.Minute)},
		}
	}
	return list
}

// sizes are how many rules there are, with -short the first number alone.
func sizes(all ...int) []int {
	if testing.Short() {
		return all[:1]
	}
	return all
}

// BenchmarkText writes and reads all rules, and reads them with one that changed.
func BenchmarkText(b *testing.B) {
	for _, n := range sizes(10_000, 100_000) {
		list := many(n)
		text := must.Get(rulestore.Encode(list))(b)
		b.Run(fmt.Sprintf("op=encode/rules=%d", n), func(b *testing.B) {
			b.ReportMetric(float64(len(text)), "bytes")
			for b.Loop() {
				must.Get(rulestore.Encode(list))(b)
			}
		})
		b.Run(fmt.Sprintf("op=decode/rules=%d", n), func(b *testing.B) {
			for b.Loop() {
				must.Get(rulestore.Decode("text", text))(b)
			}
		})
		b.Run(fmt.Sprintf("op=decode-one-changed/rules=%d", n), func(b *testing.B) {
			var codec rulestore.Codec
			list[0].Limits = []stint.Limit{stint.FixedWindow(7, time.Minute)}
			other := must.Get(rulestore.Encode(list))(b)
			for b.Loop() {
				for _, text := range [][]byte{text, other} {
					must.Get(codec.Decode("text", text))(b)
				}
			}
		})
	}
}

// BenchmarkEdit changes one of many rules.
func BenchmarkEdit(b *testing.B) {
	for _, n := range sizes(1000, 10_000, 100_000) {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			m := manage(b, rulestore.NewMemory())
			edit(b, m, put(many(n)...))
			for i := int64(1); b.Loop(); i++ {
				edit(b, m, put(rule("rule-000001", i)))
			}
		})
	}
}
