package server

import (
	"net/http"
	"sync/atomic"
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
		return forbidden("key is given; allowed: none, as api.explicit_keys is false")
	}
	return a.mayManage(r)
}

// mayManage reports why the request may not reset, settle or speak for others, nil
// when it may.
func (a *authority) mayManage(r *http.Request) error {
	switch {
	case len(a.tokens) > 0:
		return a.tokens.check(r.Header["Authorization"])
	case a.open || a.loopback.Load():
		return nil
	default:
		return forbidden("key, reset, settle and evaluate need bearer tokens on a listener that others can reach; " +
			"allowed: requests about the caller's own address, until api.tokens_file or api.open is configured")
	}
}

func forbidden(detail string) error { return &failure{status: http.StatusForbidden, detail: detail} }
