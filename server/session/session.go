// Package session keeps the holder of an admin token signed in to the dashboard, by a cookie.
//
// The cookie holds which token was shown, until when it counts, and a MAC by a key that is derived from
// the token: never the token itself. Every process that has the token configured can check the cookie. So it is
// valid at all processes that share the tokens, and a token that is removed ends its sessions.
package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"
)

const (
	// Lifetime is how long a session lasts after signing in.
	Lifetime = 12 * time.Hour

	cookieName = "stint_session"
	idBytes    = 8
	timeBytes  = 8
)

// A Secret is the SHA-256 of a token.
type Secret [sha256.Size]byte

// derive is a key of the token for one purpose, by the expansion of HKDF (RFC 5869, section 2.3) to one block.
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
	return cookie(base64.RawURLEncoding.EncodeToString(secret.seal(text)), int(Lifetime/time.Second), secure)
}

// End is the cookie that ends a session.
func End(secure bool) *http.Cookie { return cookie("", -1, secure) }

func cookie(value string, age int, secure bool) *http.Cookie {
	return &http.Cookie{ //nolint:gosec // G124: a listener without TLS is on loopback
		Name: cookieName, Value: value, Path: "/", MaxAge: age, Secure: secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	}
}

// Find returns the index of the secret whose session a request has, and -1 if it has none that counts now. Sessions of two
// tokens are none: one of them was planted, by a neighbour of the host's domain.
func Find(r *http.Request, secrets []Secret, now time.Time) int {
	found := -1
	for _, c := range r.CookiesNamed(cookieName) {
		text, err := base64.RawURLEncoding.DecodeString(c.Value)
		if err != nil || len(text) != idBytes+timeBytes+sha256.Size {
			continue
		}
		said := text[:idBytes+timeBytes]
		for i, secret := range secrets {
			if hmac.Equal(secret.derive("id")[:idBytes], said[:idBytes]) && hmac.Equal(secret.seal(said[:len(said):len(said)]), text) &&
				now.Before(time.Unix(int64(binary.BigEndian.Uint64(said[idBytes:])), 0)) {
				if found >= 0 && found != i {
					return -1
				}
				found = i
			}
		}
	}
	return found
}
