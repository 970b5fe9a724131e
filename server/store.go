package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/server/problem"
)

// errGone answers a client that has hung up; nobody reads it.
var errGone = problem.New(http.StatusServiceUnavailable, "the client has gone")

// decide carries out one operation. An error is the caller's fault (ErrInvalid), this process's
// (ErrOverloaded), errGone, or errStoreAway's.
func (s *service) decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.config.Store.Decide(ctx, op)
	if err == nil && !d.Degraded {
		return d, nil
	}
	return d, s.judge(ctx, op.Verb, err)
}

// decideAll carries out the operations in order, each alone. The results' errors are
// as decide's.
func (s *service) decideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	s.config.Store.DecideAll(ctx, ops, results)
	for i := range results {
		if results[i].Err != nil || results[i].Decision.Degraded {
			results[i].Err = s.judge(ctx, ops[i].Verb, results[i].Err)
		}
	}
}

// judge turns what the store returned, an error or a decision that it could not make
// itself, into one of decide's errors. ctx is the request's.
func (s *service) judge(ctx context.Context, verb stint.Verb, err error) error {
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return err
	case errors.Is(err, stint.ErrOverloaded):
		return err
	case err != nil && ctx.Err() != nil:
		return errGone
	}
	s.metrics.StoreFailed()
	if err != nil {
		return errStoreAway(verb)
	}
	return nil
}
