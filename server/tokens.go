package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/stint-go/stint/server/problem"
)

// challengeInvalidToken answers a token that is not known (RFC 6750, section 3.1).
const challengeInvalidToken = `Bearer error="invalid_token"` //nolint:gosec // G101: it is the name of an error

// A tokenSet holds bearer tokens by their hashes, so that comparing takes as long
// whatever came, and however long it was.
type tokenSet [][sha256.Size]byte

func newTokenSet(tokens []string) tokenSet {
	var set tokenSet
	for _, token := range tokens {
		set = append(set, sha256.Sum256([]byte(token)))
	}
	return set
}

// place compares a token with all of the set. It returns its place in it, -1 without one.
func (s tokenSet) place(token string) int {
	hash := sha256.Sum256([]byte(token))
	place := 0
	for i := range s {
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], s[i][:]), i+1, place)
	}
	return place - 1
}

// find returns the place of the token that the lines of Authorization hold, or reports why they
// hold none of the set.
func (s tokenSet) find(lines []string) (int, error) {
	if len(lines) == 0 {
		return 0, unauthorized("Authorization is missing", "Bearer")
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") {
		return 0, unauthorized("Authorization is not a single bearer token", "Bearer")
	}
	place := s.place(strings.Trim(token, " "))
	if place < 0 {
		return 0, unauthorized("Authorization holds an unknown token", challengeInvalidToken)
	}
	return place, nil
}

// check reports why the lines of Authorization don't hold a token of the set, nil
// when they do.
func (s tokenSet) check(lines []string) error {
	_, err := s.find(lines)
	return err
}

func unauthorized(fault, challenge string) error {
	return &problem.Error{
		Status: http.StatusUnauthorized,
		Detail: fault + "; allowed: Bearer with one of the configured tokens",
		Field:  "Www-Authenticate", Value: challenge,
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
