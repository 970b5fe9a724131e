package rest

import (
	"net/http"
	"sync/atomic"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/session"
)

// An authority knows which callers may name keys, reset, settle and evaluate.
type authority struct {
	explicit bool
	open     bool
	tokens   session.Tokens
	// whether the listener is reached from this machine only
	loopback atomic.Bool
}

func newAuthority(api config.API) *authority {
	return &authority{explicit: api.ExplicitKeys, open: api.Open, tokens: session.NewTokens(api.Tokens)}
}

// mayNameKeys reports why a caller may not name a key, by why it may not manage; nil when it may.
func (a *authority) mayNameKeys(manage error) error {
	if !a.explicit {
		return errNoKeys
	}
	return manage
}

// mayManageBy is mayManage for a client that has shown a token, "" for none, on a listener that is not one of HTTP,
// which a page in a browser could speak to. With tokens one is needed, wherever the caller is; without, a configuration
// may be open to all, and a listener on loopback is open to this machine.
func (a *authority) mayManageBy(token string, loopback bool) error {
	switch {
	case len(a.tokens) > 0 && token == "":
		return session.Unauthorized("no token was given", "Bearer")
	case len(a.tokens) > 0 && a.tokens.Index(token) < 0:
		return session.Unauthorized("the token is unknown", session.ChallengeInvalid)
	case len(a.tokens) > 0 || a.open || loopback:
		return nil
	default:
		return errNoTokens
	}
}

// mayManage reports why the request may not reset, settle or speak for others, nil when it may.
func (a *authority) mayManage(r *http.Request) error {
	switch {
	case len(a.tokens) > 0:
		_, err := a.tokens.Find(r.Header["Authorization"])
		return err
	case a.open:
		return nil
	case a.loopback.Load(): // where a page in a browser of this machine makes requests, too, and has no right to
		if err := session.CheckOrigin(r); err != nil {
			return problem.Forbidden("%s; set api.tokens_file or api.open to allow others", problem.Of(err).Detail)
		}
		return nil
	default:
		return errNoTokens
	}
}

var (
	errNoKeys   = problem.Forbidden("the request names a key; allowed: none, because api.explicit_keys is false")
	errNoTokens = problem.Forbidden("naming a key, reset, settle and evaluate need a bearer token on a listener that " +
		"other machines can reach, and none is configured; allowed: requests about the caller's own address. " +
		"Set api.tokens_file, or api.open to allow all")
)

// mayNameSet reports why a request that may be evaluated may not choose the rules by which it is, nil
// when it may or does not choose. Whoever may is known by a token: the rules of other sets, bans among
// them, do not hold for it.
func (a *authority) mayNameSet(r *rules.Request) error {
	if r.Set == "" || len(a.tokens) > 0 {
		return nil
	}
	return problem.Forbidden("the request names a set of rules, and no tokens are configured; allowed: with a token. " +
		"Set api.tokens_file")
}
