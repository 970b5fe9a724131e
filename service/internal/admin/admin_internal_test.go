package admin

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"strings"
	"testing"

	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// The editor's name is that of the token, else of the verified certificate, else the address.
func TestWhoAsks(t *testing.T) {
	verified := []*x509.Certificate{{Subject: pkix.Name{CommonName: "ann"}}}
	token := newAdminTokens([]config.AdminToken{{Token: "abc", Name: "ben", Role: config.RoleRead}})
	for _, test := range []struct {
		tls    *tls.ConnectionState
		tokens adminTokens
		who    string
		role   config.AdminRole
	}{
		{nil, adminTokens{}, "loopback 127.0.0.1", config.RoleWrite},
		{&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{verified}}, adminTokens{}, "ann", config.RoleWrite},
		{&tls.ConnectionState{PeerCertificates: verified}, adminTokens{}, "loopback 127.0.0.1", config.RoleWrite},
		{&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{verified}}, token, "ben", config.RoleRead},
	} {
		r := &http.Request{RemoteAddr: "127.0.0.1:1234", TLS: test.tls, Header: http.Header{"Authorization": {"Bearer abc"}}}
		a := &Handler{tokens: test.tokens}
		if who, role, err := a.identify(r); who != test.who || role != test.role || err != nil {
			t.Errorf("%q, %v, %v; want %q, %v", who, role, err, test.who, test.role)
		}
	}
}

// A certificate has a name in the records, one that is a line of text.
func TestHolderOfACertificate(t *testing.T) {
	for name, want := range map[string]string{
		"ann": "ann", "Ann Lee, é": "Ann Lee, é", " ann ": "ann", "a\nmsg=audit": `a\nmsg=audit`, `a\n`: `a\\n`, "a\xffb": `a\xffb`, "a\u202eb": `a\u202eb`,
		"": "certificate-e3b0c442", " ": "certificate-e3b0c442", // the SHA-256 of nothing
		strings.Repeat("x", 63) + "éé": strings.Repeat("x", 63) + "…",
	} {
		if got := certificateName(&x509.Certificate{Subject: pkix.Name{CommonName: name}}); got != want {
			t.Errorf("%q is named %q, want %q", name, got, want)
		}
	}
	if got := certificateName(&x509.Certificate{Raw: []byte("abc")}); got != "certificate-ba7816bf" { // FIPS 180-2, appendix B.1
		t.Errorf("a certificate without a name is named %q", got)
	}
}

// One caller has so many streams of events, and others have theirs.
func TestStreamsOfOneCaller(t *testing.T) {
	var s callerStreams
	for i := range maxStreamsOfOne {
		if err := s.enter("ann"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	if err := s.enter("ann"); err == nil || problem.Of(err).Status != http.StatusServiceUnavailable {
		t.Errorf("one more: %v", err)
	}
	if err := s.enter("ben"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	s.leave("ben")
	s.leave("ann")
	if err := s.enter("ann"); err != nil || len(s.open) != 1 {
		t.Errorf("after one has ended: %v, %v", err, s.open)
	}
}
