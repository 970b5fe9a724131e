package session_test

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server/session"
)

var now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func none(string) bool { return false }

func secret(token string) session.Secret { return sha256.Sum256([]byte(token)) }

func request(t *testing.T, cookies ...*http.Cookie) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for _, c := range cookies {
		r.AddCookie(c)
		if c.Secure {
			r.TLS = &tls.ConnectionState{}
		}
	}
	return r
}

// A session is found by its token's secret wherever that is known, for 12 hours, and never after the token was removed.
func TestSession(t *testing.T) {
	reader, writer := secret("reader"), secret("writer")
	c := session.New(writer, now, true)
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.MaxAge != 12*3600 {
		t.Errorf("the cookie is %+v", c)
	}
	for name, test := range map[string]struct {
		secrets []session.Secret
		at      time.Time
		want    int
	}{
		"at once":              {[]session.Secret{reader, writer}, now, 1},
		"at another process":   {[]session.Secret{writer}, now, 0},
		"just before the end":  {[]session.Secret{reader, writer}, now.Add(session.Lifetime - time.Second), 1},
		"at the end":           {[]session.Secret{reader, writer}, now.Add(session.Lifetime), -1},
		"without the token":    {[]session.Secret{reader}, now, -1},
		"without any token":    {nil, now, -1},
		"after another secret": {[]session.Secret{secret("writer2")}, now, -1},
	} {
		if got := session.Find(request(t, c), test.secrets, test.at, none); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
	if got := session.Find(request(t, session.End(true)), []session.Secret{writer}, now, none); got != -1 {
		t.Errorf("an ended session: %d", got)
	}
}

// A cookie that was changed in any bit is none, and neither cookie nor key tells the token's digest.
func TestForgery(t *testing.T) {
	writer := secret("writer")
	c := session.New(writer, now, false)
	text := must.Get(base64.RawURLEncoding.DecodeString(c.Value))(t)
	if strings.Contains(string(text), string(writer[:])) || strings.Contains(string(text), string(writer[:8])) {
		t.Error("the cookie tells the token's digest")
	}
	for i := range 8 * len(text) {
		changed := append([]byte(nil), text...)
		changed[i/8] ^= 1 << (i % 8)
		forged := valued(c, base64.RawURLEncoding.EncodeToString(changed))
		if session.Find(request(t, forged), []session.Secret{writer}, now, none) != -1 {
			t.Errorf("bit %d may be changed", i)
		}
	}
	for _, value := range []string{"", "x", strings.Repeat("A", 64), strings.Repeat("A", 1<<16)} {
		if session.Find(request(t, valued(c, value)), []session.Secret{writer}, now, none) != -1 {
			t.Errorf("%.20q counts", value)
		}
	}
	// Of two cookies, as of a path or a domain above, the one that counts is found.
	if session.Find(request(t, valued(c, "x"), c), []session.Secret{writer}, now, none) != 0 {
		t.Error("the second cookie does not count")
	}
}

// Whose session it is, is not for the one to choose who planted a cookie of another token.
func TestTwoSessions(t *testing.T) {
	mine, planted := session.New(secret("mine"), now, false), session.New(secret("planted"), now, false)
	secrets := []session.Secret{secret("mine"), secret("planted")}
	for _, cookies := range [][]*http.Cookie{{mine, planted}, {planted, mine}} {
		if got := session.Find(request(t, cookies...), secrets, now, none); got != -1 {
			t.Errorf("the session of %d counts", got)
		}
	}
	if got := session.Find(request(t, mine, session.New(secret("mine"), now.Add(time.Hour), false)), secrets, now, none); got != 0 {
		t.Errorf("two sessions of one token: %d", got)
	}
}

// valued is a cookie with another value.
func valued(c *http.Cookie, value string) *http.Cookie {
	other := *c //nolint:gosec // G124: as the one that it is copied from
	other.Value = value
	return &other
}

// By TLS the cookie is one of the host alone, and one without that name counts for nothing; each sign-in is a session of its own,
// which ends alone.
func TestSessionsByTLS(t *testing.T) {
	writer := secret("writer")
	secure, plain := session.New(writer, now, true), session.New(writer, now, false)
	if !strings.HasPrefix(secure.Name, "__Host-") || !secure.Secure || secure.Domain != "" || strings.HasPrefix(plain.Name, "__Host-") {
		t.Errorf("the cookies are %+v and %+v", secure, plain)
	}
	r := request(t, plain)
	r.TLS = &tls.ConnectionState{}
	if session.Find(r, []session.Secret{writer}, now, none) != -1 {
		t.Error("a cookie of plain HTTP counts by TLS")
	}
	first, second := session.New(writer, now, false), session.New(writer, now, false)
	ids := session.Of(request(t, first, second), []session.Secret{writer}, now)
	if len(ids) != 2 || ids[0].ID == ids[1].ID {
		t.Fatalf("two sign-ins are %+v", ids)
	}
	ended := func(id string) bool { return id == ids[0].ID }
	if session.Find(request(t, first), []session.Secret{writer}, now, ended) != -1 || session.Find(request(t, second), []session.Secret{writer}, now, ended) != 0 {
		t.Error("the one session counts, or the other does not")
	}
}
