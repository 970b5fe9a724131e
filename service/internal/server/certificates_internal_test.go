package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
)

// An issuer signs certificates of tests, for 127.0.0.1 and for clients.
type issuer struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newIssuer(t *testing.T, name string) *issuer {
	t.Helper()
	i := &issuer{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	i.cert, i.key = template, nil
	cert, key := i.sign(template)
	i.pem = cert
	i.key = key
	block, _ := pem.Decode(cert)
	var err error
	if i.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return i
}

// sign makes a key and has the issuer, or the key itself, sign its certificate.
func (i *issuer) sign(template *x509.Certificate) (cert []byte, key *ecdsa.PrivateKey) {
	i.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		i.t.Fatal(err)
	}
	signer := i.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, i.cert, &key.PublicKey, signer)
	if err != nil {
		i.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// issue makes a certificate of that name, valid for an hour around when, and its key.
func (i *issuer) issue(name string, when time.Time) (cert, key []byte) {
	i.t.Helper()
	cert, private := i.sign(&x509.Certificate{
		SerialNumber: big.NewInt(when.UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: when.Add(-time.Hour), NotAfter: when.Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// client is what a client of the issuer's servers trusts and shows; name "" shows
// nothing.
func (i *issuer) client(name string) *tls.Config {
	i.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AddCert(i.cert)
	if name == "" {
		return config
	}
	pair, err := tls.X509KeyPair(i.issue(name, time.Now()))
	if err != nil {
		i.t.Fatal(err)
	}
	// Shown also to a server that asks for another issuer's.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return config
}

func put(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// files writes a pair of the issuer's.
func (i *issuer) files(name string) TLS {
	i.t.Helper()
	dir := i.t.TempDir()
	files := TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	cert, key := i.issue(name, time.Now())
	put(i.t, files.CertFile, cert)
	put(i.t, files.KeyFile, key)
	return files
}

// A secured is certificates whose time the test moves.
type secured struct {
	*certificates
	t   *testing.T
	now time.Time
	log bytes.Buffer
}

func secure(t *testing.T, files TLS) *secured {
	t.Helper()
	s := &secured{t: t, now: time.Now()}
	certificates, err := openCertificates("tls", files, slog.New(slog.NewTextHandler(&s.log, nil)), func() time.Time { return s.now })
	if err != nil {
		t.Fatal(err)
	}
	s.certificates = certificates
	return s
}

// name is whose certificate the next handshake gets.
func (s *secured) name() string {
	s.t.Helper()
	config, err := s.Config().GetConfigForClient(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return config.Certificates[0].Leaf.Subject.CommonName
}

func (s *secured) expect(name string, lines int) {
	s.t.Helper()
	if got := s.name(); got != name {
		s.t.Errorf("a handshake gets the certificate of %s, want %s", got, name)
	}
	if got := strings.Count(s.log.String(), "\n"); got != lines {
		s.t.Errorf("%d lines in the log, want %d:\n%s", got, lines, &s.log)
	}
}

func TestCertificatesFollowTheFiles(t *testing.T) {
	i := newIssuer(t, "root")
	files := i.files("one")
	s := secure(t, files)
	cert, key := i.issue("two", s.now)
	put(t, files.CertFile, cert)
	s.now = s.now.Add(recheck - 1)
	s.expect("one", 0)
	s.now = s.now.Add(1) // the pair is half written
	s.expect("one", 1)
	s.now = s.now.Add(recheck)
	s.expect("one", 1)
	put(t, files.KeyFile, key)
	s.expect("one", 1)
	s.now = s.now.Add(recheck)
	s.expect("two", 2)
	if err := os.Remove(files.KeyFile); err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(recheck)
	s.expect("two", 3)
	s.now = s.now.Add(recheck)
	s.expect("two", 3)
	expired, oldKey := i.issue("expired", s.now.Add(-2*time.Hour))
	put(t, files.CertFile, expired)
	put(t, files.KeyFile, oldKey)
	s.now = s.now.Add(recheck)
	s.expect("two", 4)
	put(t, files.CertFile, cert)
	put(t, files.KeyFile, key)
	s.now = s.now.Add(recheck)
	s.expect("two", 5)
	for _, want := range []string{"the old one stays in use", "tls.cert_file", "tls.key_file", "valid from", "was reloaded"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &s.log)
		}
	}
	if strings.Contains(s.log.String(), strings.Split(string(key), "\n")[1]) {
		t.Error("the log shows a key")
	}
}

// Kubernetes replaces a mounted secret by turning the symbolic link of its folder.
func TestCertificatesFollowSymbolicLinks(t *testing.T) {
	i := newIssuer(t, "root")
	one, two := i.files("one"), i.files("two")
	link := filepath.Join(t.TempDir(), "..data")
	turn := func(to TLS) {
		t.Helper()
		if err := errors.Join(os.Symlink(filepath.Dir(to.CertFile), link+".new"), os.Rename(link+".new", link)); err != nil {
			t.Fatal(err)
		}
	}
	turn(one)
	s := secure(t, TLS{CertFile: filepath.Join(link, "cert.pem"), KeyFile: filepath.Join(link, "key.pem")})
	s.expect("one", 0)
	turn(two)
	s.now = s.now.Add(recheck)
	s.expect("two", 1)
}

func TestCertificatesThatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	i := newIssuer(t, "root")
	good, other := i.files("one"), i.files("other")
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		put(t, name, text)
		return name
	}
	pair := func(name string, when time.Time) TLS {
		cert, key := i.issue("late", when)
		return TLS{CertFile: write(name+".cert", cert), KeyFile: write(name+".key", key)}
	}
	secret, err := os.ReadFile(good.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		files TLS
		want  string
	}{
		"of another key":      {TLS{CertFile: good.CertFile, KeyFile: other.KeyFile}, "tls.cert_file is"},
		"expired":             {pair("past", time.Now().Add(-2*time.Hour)), "a certificate that is valid now: it is valid from "},
		"not valid yet":       {pair("future", time.Now().Add(2*time.Hour)), "a certificate that is valid now"},
		"no certificate":      {TLS{CertFile: dir + "/none", KeyFile: good.KeyFile}, "tls.cert_file is"},
		"no key":              {TLS{CertFile: good.CertFile, KeyFile: dir + "/none"}, "tls.key_file is"},
		"a folder":            {TLS{CertFile: dir, KeyFile: good.KeyFile}, "tls.cert_file is"},
		"swapped":             {TLS{CertFile: good.KeyFile, KeyFile: good.CertFile}, "tls.cert_file is"},
		"too long":            {TLS{CertFile: write("long", make([]byte, maxCertificateBytes+1)), KeyFile: good.KeyFile}, "at most 1048576 bytes"},
		"authorities of none": {TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: write("ca", []byte("none"))}, "tls.client_ca_file is"},
	} {
		_, err := openCertificates("tls", test.files, slog.New(slog.DiscardHandler), time.Now)
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		} else if strings.Contains(err.Error(), strings.Split(string(secret), "\n")[1]) {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}

// ask requests a path over TLS and returns the answer's protocol; an error is that
// there was none.
func ask(t *testing.T, config *tls.Config, protocols *http.Protocols, addr net.Addr, path string) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := io.Copy(io.Discard, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("%s: %s, %v", path, response.Status, err)
	}
	return response.Proto, nil
}

// Both listeners speak TLS, HTTP/2 and HTTP/1.1, and nothing older than 1.2; with
// authorities only with those whom they authorise for.
func TestListenersSpeakTLS(t *testing.T) {
	t.Parallel()
	i, unauthorised := newIssuer(t, "root"), newIssuer(t, "stranger")
	plain := i.files("server")
	mutual := i.files("server")
	mutual.ClientCAFile = filepath.Join(t.TempDir(), "ca.pem")
	put(t, mutual.ClientCAFile, i.pem)
	old := i.client("client")
	old.MaxVersion = tls.VersionTLS11
	strange := i.client("")
	strange.GetClientCertificate = unauthorised.client("client").GetClientCertificate
	both := new(http.Protocols)
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	one := new(http.Protocols)
	one.SetHTTP1(true)
	for name, files := range map[string]TLS{"one-sided": plain, "mutual": mutual} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			config := DefaultConfig()
			config.Store, config.Logger = memstore.New(memstore.Config{}), slog.New(slog.NewTextHandler(&log, nil))
			config.Listen, config.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
			config.TLS, config.AdminTLS = files, files
			s, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			<-s.Listening()
			for addr, path := range map[net.Addr]string{s.Addr(): "/api/v1/rate-limit/check?key=k", s.AdminAddr(): "/debug/pprof/cmdline"} {
				if proto, err := ask(t, i.client("client"), both, addr, path); err != nil || proto != "HTTP/2.0" {
					t.Errorf("%s: %s, %v", path, proto, err)
				}
				if proto, err := ask(t, i.client("client"), one, addr, path); err != nil || proto != "HTTP/1.1" {
					t.Errorf("%s: %s, %v", path, proto, err)
				}
				if _, err := ask(t, old, one, addr, path); err == nil {
					t.Errorf("%s is answered over TLS 1.1", path)
				}
				for who, config := range map[string]*tls.Config{"nobody": i.client(""), "a stranger": strange} {
					if _, err := ask(t, config, both, addr, path); (err != nil) != (name == "mutual") {
						t.Errorf("%s: %s is answered: %v", path, who, err)
					}
				}
				if _, err := ask(t, unauthorised.client(""), both, addr, path); err == nil {
					t.Errorf("%s shows a certificate of a stranger", path)
				}
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if got := log.String(); strings.Count(got, " tls=true client_certificates=") != 2 || strings.Contains(got, "handshake") {
				t.Errorf("the log:\n%s", got)
			}
		})
	}
}

// Run names the listener's setting when its certificate can't be used.
func TestRunWithoutCertificate(t *testing.T) {
	files := newIssuer(t, "root").files("server")
	none := TLS{CertFile: filepath.Join(t.TempDir(), "none"), KeyFile: files.KeyFile}
	for want, change := range map[string]func(*Config){
		"tls.cert_file":       func(c *Config) { c.TLS = none },
		"admin_tls.cert_file": func(c *Config) { c.TLS, c.AdminTLS = files, none },
	} {
		config := DefaultConfig()
		config.Store, config.Listen, config.AdminListen = memstore.New(memstore.Config{}), "127.0.0.1:0", "127.0.0.1:0"
		change(&config)
		s, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(t.Context()); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "stint: "+want+" is ") {
			t.Errorf("Run = %v, want that %s is wrong", err, want)
		}
	}
	config := DefaultConfig()
	config.Store, config.TLS, config.AdminTLS = memstore.New(memstore.Config{}), TLS{KeyFile: "k"}, TLS{CertFile: "c"}
	if _, err := New(config); err == nil ||
		!strings.Contains(err.Error(), "tls.cert_file is") || !strings.Contains(err.Error(), "admin_tls.key_file is") {
		t.Errorf("New = %v", err)
	}
}

// A TLS connection is watched like others, without a bound on the time of a request where
// requests overlap.
func TestWatchOfTLS(t *testing.T) {
	i := newIssuer(t, "root")
	certificates, err := openCertificates("tls", i.files("server"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	connections, err := newConnMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		protocol string
		state    http.ConnState
		after    int64
		stays    bool
	}{
		{"h2", http.StateActive, 1000, true},
		{"h2", http.StateIdle, 1000, false},
		{"h2", http.StateNew, 1000, false},
		{"http/1.1", http.StateActive, 1000, false},
		{"http/1.1", http.StateActive, 1, true},
	} {
		w := newIdleTracker(time.Minute, time.Minute, time.Minute, connLimiter{most: 1, metrics: connections[serviceHTTP]})
		near, far := net.Pipe()
		conn := &trackedConn{Conn: near}
		secure := tls.Server(conn, certificates.Config())
		config := i.client("")
		config.NextProtos = []string{test.protocol}
		client := tls.Client(far, config)
		shaken := make(chan error, 1)
		go func() { shaken <- client.HandshakeContext(t.Context()) }()
		if err := errors.Join(secure.HandshakeContext(t.Context()), <-shaken); err != nil {
			t.Fatal(err)
		}
		if !w.admit(conn) {
			t.Fatal("there is no room")
		}
		w.changed(secure, test.state)
		w.sweep(test.after)
		if _, stays := w.conns[conn]; stays != test.stays {
			t.Errorf("%s, %v, after %d ticks: it stays: %v", test.protocol, test.state, test.after, stays)
		}
		w.changed(secure, http.StateClosed)
		if len(w.conns) > 0 {
			t.Errorf("%s, %v: a closed connection is kept", test.protocol, test.state)
		}
		_, _ = near.Close(), far.Close()
	}
}
