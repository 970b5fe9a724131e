package reload_test

import (
	"context"

	"github.com/stint-go/stint"
)

// A witness stands between the limiter and its store, and tells each caller what the store was asked for it
// and what it answered.
type witness struct{ stint.Store }

// seen is what the store was asked in one call of the limiter.
type seen struct {
	ops     []stint.Op
	results []stint.Result
}

type seenKey struct{}

// seeing is a context that a witness notes into.
func seeing(ctx context.Context, s *seen) context.Context {
	return context.WithValue(ctx, seenKey{}, s)
}

func (w witness) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := w.Store.Decide(ctx, op)
	note(ctx, op, stint.Result{Decision: d, Err: err})
	return d, err
}

func (w witness) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return w.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (w witness) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	w.Store.DecideAll(ctx, ops, results)
	for i := range ops {
		note(ctx, ops[i], results[i])
	}
}

// note keeps an operation, whose slices are the caller's until its next call.
func note(ctx context.Context, op stint.Op, result stint.Result) {
	if s, ok := ctx.Value(seenKey{}).(*seen); ok {
		s.ops = append(s.ops, op)
		s.results = append(s.results, result)
	}
}
