package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/netip"
	"strings"

	"github.com/stint-go/stint/service/internal/server/problem"
)

// ChallengeInvalid answers a token that is not known (RFC 6750, section 3.1).
const ChallengeInvalid = `Bearer error="invalid_token"`

// Tokens are bearer tokens by their hashes, so that comparing takes as long
// whatever came, and however long it was.
type Tokens []Secret

// NewTokens keeps the hashes alone. They have no salt and are quick to make, as tokens are random
// and long.
func NewTokens(tokens []string) Tokens {
	var set Tokens
	for _, token := range tokens {
		set = append(set, sha256.Sum256([]byte(token)))
	}
	return set
}

// Index compares a token with all of the set, and returns its index, or -1 if it is not there. It
// compares with every token, also behind the one that it found, so that the time does not tell
// which it was, nor how much of it was right.
func (s Tokens) Index(token string) int {
	hash := sha256.Sum256([]byte(token))
	found := 0
	for i := range s {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], s[i][:]), i+1, found)
	}
	return found - 1
}

// Find returns the index of the token that the lines of Authorization hold, or reports why they
// hold none of the set. Authorization may stand once, and its scheme is compared without regard to
// case (RFC 9110, section 11.1). A field that is missing gets a plain challenge, a wrong token
// invalid_token (RFC 6750, section 3.1).
func (s Tokens) Find(lines []string) (int, error) {
	if len(lines) == 0 {
		return 0, Unauthorized("Authorization is missing", "Bearer")
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return 0, Unauthorized("Authorization is not a single bearer token", "Bearer")
	}
	index := s.Index(strings.Trim(token, " "))
	if index < 0 {
		return 0, Unauthorized("Authorization holds an unknown token", ChallengeInvalid)
	}
	return index, nil
}

// Unauthorized is 401 with a challenge, which a 401 must have (RFC 9110, section 15.5.2).
func Unauthorized(fault, challenge string) error {
	return &problem.Error{
		Status: http.StatusUnauthorized,
		Detail: fault + "; allowed: Bearer with one of the configured tokens",
		Field:  "Www-Authenticate", Value: challenge,
	}
}

// CheckHost refuses a request that was not made to this machine by name.
func CheckHost(r *http.Request) error {
	if !isLocalHost(r.Host) {
		return problem.Forbidden("Host is %q; allowed: localhost or a loopback address", problem.Short(r.Host))
	}
	return nil
}

// CheckOrigin refuses a request that was not made to this machine by name, or that was made by a
// page of another origin. Browsers send Origin with what changes something and Sec-Fetch-Site with
// everything; programs send neither. Binding a page's name to 127.0.0.1 (DNS rebinding) is found by
// the Host.
func CheckOrigin(r *http.Request) error {
	if err := CheckHost(r); err != nil {
		return err
	}
	for _, origin := range r.Header["Origin"] {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return problem.Forbidden("Origin is %q; allowed: none, or http://%s", problem.Short(origin), problem.Short(r.Host))
		}
	}
	// An image of a page has no Origin. "none" is what the operator typed (Fetch Metadata, section
	// 2.3).
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" {
			return problem.Forbidden("Sec-Fetch-Site is %q; allowed: none, or same-origin", problem.Short(site))
		}
	}
	return nil
}

// isLocalHost reports whether a Host field (host or host:port) means this machine.
func isLocalHost(host string) bool {
	name, _, _ := strings.Cut(host, ":")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if addrPort, err := netip.ParseAddrPort(host); err == nil {
		return addrPort.Addr().IsLoopback()
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.IsLoopback()
}
