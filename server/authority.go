package server

import (
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/server/problem"
)

// An authority knows who may name keys, reset, settle and evaluate.
type authority struct {
	explicit bool
	open     bool
	tokens   tokenSet
	loopback atomic.Bool // whether the listener is reached from this machine only
}

func newAuthority(api API) *authority {
	return &authority{explicit: api.ExplicitKeys, open: api.Open, tokens: newTokenSet(api.Tokens)}
}

// mayNameKeys reports why the request may not name a key, nil when it may.
func (a *authority) mayNameKeys(r *http.Request) error {
	if !a.explicit {
		return forbidden("the request names a key; allowed: none, because api.explicit_keys is false")
	}
	return a.mayManage(r)
}

// mayManage reports why the request may not reset, settle or speak for others, nil
// when it may.
func (a *authority) mayManage(r *http.Request) error {
	switch {
	case len(a.tokens) > 0:
		return a.tokens.check(r.Header["Authorization"])
	case a.open:
		return nil
	case a.loopback.Load():
		return mayAsNeighbour(r)
	default:
		return forbidden("naming a key, reset, settle and evaluate need a bearer token on a listener that other machines can reach, and none is " +
			"configured; allowed: requests about the caller's own address. Set api.tokens_file, or api.open to allow all")
	}
}

// mayAsNeighbour reports why a request may not manage for coming from this machine: a page in a
// browser of it makes requests, too, and has no right to.
func mayAsNeighbour(r *http.Request) error {
	if err := checkOrigin(r); err != nil {
		return forbidden(problem.Of(err).Detail + "; set api.tokens_file or api.open to allow others")
	}
	return nil
}

func forbidden(detail string) error {
	return &problem.Error{Status: http.StatusForbidden, Detail: detail}
}
