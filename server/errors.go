package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/server/problem"
)

// errClientGone answers a client that has hung up; nobody reads it.
var errClientGone = problem.New(http.StatusServiceUnavailable, "the client has gone")

// decide carries out one operation. An error is the caller's fault (ErrInvalid), this process's
// (ErrOverloaded), errClientGone, or errStoreUnreachable's.
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
		return errClientGone
	}
	s.metrics.StoreFailed()
	if err != nil {
		return errStoreUnreachable(verb)
	}
	return nil
}

func badRequest(detail string) error {
	return &problem.Error{Status: http.StatusBadRequest, Detail: detail}
}

// inElement says in which element of a batch the error lies.
func inElement(index int, err error) error {
	e := *problem.Of(err)
	e.Detail = fmt.Sprintf("element %d: %s", index, e.Detail)
	return &e
}

// errStoreUnreachable answers what the store did not, by what may have come of it. It wraps
// stint.ErrUnavailable.
func errStoreUnreachable(verb stint.Verb) error {
	detail := problem.Unknown
	switch verb {
	case stint.Take, stint.Try:
	case stint.Peek:
		detail = "the store could not answer; nothing was consumed"
	case stint.Reset:
		detail = "the store did not confirm the reset; whether it was made is not known"
	case stint.Settle:
		detail = "the store did not confirm the settlement; whether it was made is not known"
	}
	return &problem.Error{Status: http.StatusServiceUnavailable, Detail: detail, Cause: stint.ErrUnavailable}
}

// errRulesUnknown answers what can't be decided without rules.
func errRulesUnknown() error {
	return problem.New(http.StatusServiceUnavailable, "the rules could not be read yet; nothing was consumed. The service's log says why")
}
