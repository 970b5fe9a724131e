package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"
	"sync/atomic"
)

// An authority knows who may name keys, reset and settle. Its hashes stand for the
// tokens, so that comparing takes as long whatever came, and however long it was.
type authority struct {
	explicit bool
	open     bool
	hashes   [][sha256.Size]byte
	loopback atomic.Bool // whether the listener is reached from this machine only
}

func newAuthority(api API) *authority {
	a := &authority{explicit: api.ExplicitKeys, open: api.Open}
	for _, token := range api.Tokens {
		a.hashes = append(a.hashes, sha256.Sum256([]byte(token)))
	}
	return a
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
	case len(a.hashes) > 0:
		return a.checkToken(r.Header["Authorization"])
	case a.open || a.loopback.Load():
		return nil
	default:
		return forbidden("key, reset and settle need bearer tokens on a listener that others can reach; " +
			"allowed: requests about the caller's own address, until api.tokens_file or api.open is configured")
	}
}

func (a *authority) checkToken(lines []string) error {
	if len(lines) == 0 {
		return unauthorized("Authorization is missing", "Bearer")
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return unauthorized("Authorization is not a single bearer token", "Bearer")
	}
	hash := sha256.Sum256([]byte(strings.Trim(token, " ")))
	known := 0
	for i := range a.hashes {
		known |= subtle.ConstantTimeCompare(hash[:], a.hashes[i][:])
	}
	if known == 0 {
		return unauthorized("Authorization holds an unknown token", `Bearer error="invalid_token"`)
	}
	return nil
}

func forbidden(detail string) error { return &failure{status: http.StatusForbidden, detail: detail} }

func unauthorized(fault, challenge string) error {
	return &failure{
		status: http.StatusUnauthorized,
		detail: fault + "; allowed: Bearer with one of the configured tokens",
		field:  "Www-Authenticate", value: challenge,
	}
}

// isBearerToken reports whether the text can stand in an Authorization field (RFC
// 6750, section 2.1).
func isBearerToken(token string) bool {
	body := strings.TrimRight(token, "=")
	for i := range len(body) {
		c := body[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}
