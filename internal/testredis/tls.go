package testredis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// An Authority issues certificates for a test, which trusts it by CAFile.
type Authority struct {
	// CAFile holds the authority's own certificate.
	CAFile string
	// CertFile and KeyFile are a client's certificate.
	CertFile, KeyFile string

	dir         string
	certificate *x509.Certificate // nil until it has issued its own
	key         *ecdsa.PrivateKey
	client      *tls.Config // for [Server.Do]
	server      [2]string   // files of certificate and key
}

// NewAuthority makes an authority whose files live as long as the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), client: &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}}
	a.CAFile, _ = a.Issue(t, "authority")
	a.client.RootCAs.AddCert(a.certificate)
	a.server[0], a.server[1] = a.Issue(t, "server")
	a.CertFile, a.KeyFile = a.Issue(t, "client")
	own, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	a.client.Certificates = []tls.Certificate{own}
	return a
}

// Issue writes a certificate for a name, localhost and 127.0.0.1, good for servers and
// clients, over one that was issued for the name before. The first one signs itself and all others.
func (a *Authority) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(
			now.UnixNano(),
		),
		Subject:     pkix.Name{CommonName: name},
		NotBefore:   now.Add(-time.Hour),
		NotAfter:    now.Add(24 * time.Hour),
		DNSNames:    []string{name, "localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	issuer := a.certificate
	if issuer == nil {
		template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
		issuer, a.key = template, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate == nil {
		if a.certificate, err = x509.ParseCertificate(certificate); err != nil {
			t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: certificate},
		keyFile:  {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// TLS makes the server speak TLS alone, to clients with a certificate of the
// authority, and so with the other servers.
func TLS(a *Authority) Option {
	return func(s *Server) {
		s.tls = a
		s.args = append(s.args, "--tls-cert-file", a.server[0], "--tls-key-file", a.server[1], "--tls-ca-cert-file", a.CAFile,
			"--tls-auth-clients", "yes", "--tls-replication", "yes")
	}
}
