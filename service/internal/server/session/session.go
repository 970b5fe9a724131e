// Package session knows whose a request is: that of the holder of a bearer token ([Tokens]), of who is signed in to the
// dashboard by a cookie, or of a page in a browser of this machine, which has no right ([CheckOrigin]).
//
// The cookie of a [Session] holds which token was shown, until when it counts, a random number that tells it from
// others, and a MAC by a key that is derived from the token: never the token itself. Every process
// that has the token configured can check the cookie. So it is valid at all processes that share
// the tokens, and a token that is removed ends its sessions.
package session

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"time"
)

const (
	// Lifetime is how long a session lasts after signing in.
	Lifetime = 12 * time.Hour

	cookieName = "stint_session"
	// secureName is the cookie's by TLS. Browsers take one of this prefix only from the host itself and by TLS (RFC
	// 6265bis, section 4.1.3.2), so that no neighbour of its domain plants one.
	secureName = "__Host-" + cookieName
	idBytes    = 8
	timeBytes  = 8
	nonceBytes = 8
	saidBytes  = idBytes + timeBytes + nonceBytes
)

// A Secret is the SHA-256 of a token.
type Secret [sha256.Size]byte

// derive is a key of the token for one purpose, by the expansion of HKDF (RFC 5869, section 2.3) to
// one block.
func (s Secret) derive(purpose string) []byte {
	mac := hmac.New(sha256.New, s[:])
	mac.Write([]byte("stint session " + purpose + "\x01"))
	return mac.Sum(nil)
}

// seal appends the MAC of what a cookie says.
func (s Secret) seal(text []byte) []byte {
	mac := hmac.New(sha256.New, s.derive("seal"))
	mac.Write(text)
	return mac.Sum(text)
}

// New is the cookie of a session that begins now. Secure cookies go by TLS alone.
func New(secret Secret, now time.Time, secure bool) *http.Cookie {
	text := secret.derive("id")[:idBytes:idBytes]
	text = binary.BigEndian.AppendUint64(text, uint64(now.Add(Lifetime).Unix()))
	var nonce [nonceBytes]byte
	_, _ = rand.Read(nonce[:]) // it never fails
	text = append(text, nonce[:]...)
	return cookie(base64.RawURLEncoding.EncodeToString(secret.seal(text)), int(Lifetime/time.Second), secure)
}

// End is the cookie that ends a session.
func End(secure bool) *http.Cookie { return cookie("", -1, secure) }

// cookie is the cookie of a session, for so many seconds; below 0 it is removed. Scripts can't read
// it, and other sites' requests do not carry it. With TLS its name has the prefix that browsers
// accept from secure origins alone.
func cookie(value string, age int, secure bool) *http.Cookie {
	name := cookieName
	if secure {
		name = secureName
	}
	return &http.Cookie{ //nolint:gosec // G124: a listener without TLS is on loopback
		Name: name, Value: value, Path: "/", MaxAge: age, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// A Session is a person's, by the index of the secret that was shown.
type Session struct {
	Secret int
	ID     string // which tells it from all others
}

// Of returns the sessions of a request whose cookies count now, by their seals and their times. There may be several,
// as a cookie of a path or a domain above comes, too.
func Of(r *http.Request, secrets []Secret, now time.Time) (found []Session) {
	name := cookieName
	if r.TLS != nil {
		name = secureName
	}
	for _, c := range r.CookiesNamed(name) {
		text, err := base64.RawURLEncoding.Strict().DecodeString(c.Value)
		if err != nil || len(text) != saidBytes+sha256.Size {
			continue
		}
		said := text[:saidBytes]
		for i, secret := range secrets {
			if hmac.Equal(secret.derive("id")[:idBytes], said[:idBytes]) &&
				hmac.Equal(secret.seal(said[:len(said):len(said)]), text) &&
				now.Before(time.Unix(int64(binary.BigEndian.Uint64(said[idBytes:])), 0)) {
				found = append(found, Session{i, hex.EncodeToString(text[saidBytes:])})
			}
		}
	}
	return found
}

// Find returns the index of the secret whose session a request has, and -1 if it has none that
// counts now and has not ended. Sessions of two tokens are none: one of them was planted, by a
// neighbour of the host's domain.
func Find(r *http.Request, secrets []Secret, now time.Time, ended func(id string) bool) int {
	found := -1
	for _, s := range Of(r, secrets, now) {
		if ended(s.ID) {
			continue
		}
		if found >= 0 && found != s.Secret {
			return -1
		}
		found = s.Secret
	}
	return found
}
