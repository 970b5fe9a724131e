package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/session"
)

// challengeInvalidToken answers a token that is not known (RFC 6750, section 3.1).
const challengeInvalidToken = `Bearer error="invalid_token"` //nolint:gosec // G101: it is the name of an error

// A tokenSet holds bearer tokens by their hashes, so that comparing takes as long
// whatever came, and however long it was.
type tokenSet []session.Secret

// newTokenSet keeps the hashes alone. They have no salt and are quick to make, as tokens are random
// and long.
func newTokenSet(tokens []string) tokenSet {
	var set tokenSet
	for _, token := range tokens {
		set = append(set, sha256.Sum256([]byte(token)))
	}
	return set
}

// index compares a token with all of the set, and returns its index, or -1 if it is not there. It
// compares with every token, also behind the one that it found, so that the time does not tell
// which it was, nor how much of it was right.
func (s tokenSet) index(token string) int {
	hash := sha256.Sum256([]byte(token))
	found := 0
	for i := range s {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], s[i][:]), i+1, found)
	}
	return found - 1
}

// find returns the index of the token that the lines of Authorization hold, or reports why they
// hold none of the set. Authorization may stand once, and its scheme is compared without regard to
// case (RFC 9110, section 11.1). A field that is missing gets a plain challenge, a wrong token
// invalid_token (RFC 6750, section 3.1).
func (s tokenSet) find(lines []string) (int, error) {
	if len(lines) == 0 {
		return 0, unauthorized("Authorization is missing", "Bearer")
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return 0, unauthorized("Authorization is not a single bearer token", "Bearer")
	}
	index := s.index(strings.Trim(token, " "))
	if index < 0 {
		return 0, unauthorized("Authorization holds an unknown token", challengeInvalidToken)
	}
	return index, nil
}

// unauthorized is 401 with a challenge, which a 401 must have (RFC 9110, section 15.5.2).
func unauthorized(fault, challenge string) error {
	return &problem.Error{
		Status: http.StatusUnauthorized,
		Detail: fault + "; allowed: Bearer with one of the configured tokens",
		Field:  "Www-Authenticate", Value: challenge,
	}
}

// An authority knows which callers may name keys, reset, settle and evaluate.
type authority struct {
	explicit bool
	open     bool
	tokens   tokenSet
	// whether the listener is reached from this machine only
	loopback atomic.Bool
}

func newAuthority(api config.API) *authority {
	return &authority{explicit: api.ExplicitKeys, open: api.Open, tokens: newTokenSet(api.Tokens)}
}

// mayNameKeys reports why the request may not name a key, nil when it may.
func (a *authority) mayNameKeys(r *http.Request) error {
	if !a.explicit {
		return errNoKeys
	}
	return a.mayManage(r)
}

// mayNameKeysBy and mayManageBy report why a client that has shown a token, "" for none, may not do so,
// nil when it may. Its listener is not one of HTTP, which a page in a browser could speak to.
func (a *authority) mayNameKeysBy(token string, loopback bool) error {
	if !a.explicit {
		return errNoKeys
	}
	return a.mayManageBy(token, loopback)
}

// mayManageBy decides for listeners without HTTP headers. With tokens one is needed, wherever the
// caller is; without, a configuration may be open to all, and a listener on loopback is open to
// this machine.
func (a *authority) mayManageBy(token string, loopback bool) error {
	switch {
	case len(a.tokens) > 0 && token == "":
		return unauthorized("no token was given", "Bearer")
	case len(a.tokens) > 0 && a.tokens.index(token) < 0:
		return unauthorized("the token is unknown", challengeInvalidToken)
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
		_, err := a.tokens.find(r.Header["Authorization"])
		return err
	case a.open:
		return nil
	case a.loopback.Load(): // where a page in a browser of this machine makes requests, too, and has no right to
		if err := checkOrigin(r); err != nil {
			return problem.Forbidden("%s; set api.tokens_file or api.open to allow others", problem.Of(err).Detail)
		}
		return nil
	default:
		return errNoTokens
	}
}

var (
	errNoKeys   = problem.Forbidden("the request names a key; allowed: none, because api.explicit_keys is false")
	errNoTokens = problem.Forbidden("naming a key, reset, settle and evaluate need a bearer token on a listener that other " +
		"machines can reach, and none is " +
		"configured; allowed: requests about the caller's own address. Set api.tokens_file, or api.open to allow all")
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

// adminTokens are tokens with what they stand for.
type adminTokens struct {
	hashes tokenSet
	tokens []AdminToken // without the token itself
}

func newAdminTokens(tokens []AdminToken) adminTokens {
	var known adminTokens
	for _, token := range tokens {
		known.hashes = append(known.hashes, sha256.Sum256([]byte(token.Token)))
		known.tokens = append(known.tokens, AdminToken{Role: token.Role, Name: token.Holder()})
	}
	return known
}

// find tells whose token the lines of Authorization hold.
func (t adminTokens) find(lines []string) (who string, role AdminRole, err error) {
	index, err := t.hashes.find(lines)
	if err != nil {
		return "", 0, err
	}
	return t.tokens[index].Name, t.tokens[index].Role, nil
}
