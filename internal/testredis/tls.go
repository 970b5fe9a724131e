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
	"sync/atomic"
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
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	serial      atomic.Int64
	pool        *x509.CertPool
	own         tls.Certificate // for [Server.Do]
	serverCert  string
	serverKey   string
}

// NewAuthority makes an authority whose files live as long as the test.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{dir: t.TempDir(), pool: x509.NewCertPool()}
	a.CAFile = filepath.Join(a.dir, "ca.crt")
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := a.template("authority")
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.certificate)
	writePEM(t, a.CAFile, "CERTIFICATE", der)
	a.serverCert, a.serverKey = a.Issue(t, "server")
	a.CertFile, a.KeyFile = a.Issue(t, "client")
	if a.own, err = tls.LoadX509KeyPair(a.CertFile, a.KeyFile); err != nil {
		t.Fatal(err)
	}
	return a
}

// Issue writes a certificate for a name, localhost and 127.0.0.1, good for servers and
// clients, over one that was issued for the name before.
func (a *Authority) Issue(t testing.TB, name string) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := a.template(name)
	template.DNSNames, template.IPAddresses = []string{name, "localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", private)
	return certFile, keyFile
}

func (a *Authority) template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.serial.Add(1)), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
	}
}

func writePEM(t testing.TB, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// client is how [Server.Do] speaks TLS.
func (a *Authority) client() *tls.Config {
	return &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.own}, MinVersion: tls.VersionTLS12}
}

// TLS makes the server speak TLS alone, to clients with a certificate of the
// authority, and so with the other servers.
func TLS(a *Authority) Option {
	return func(s *Server) {
		s.tls = a
		for _, directive := range [][2]string{
			{"tls-cert-file", a.serverCert},
			{"tls-key-file", a.serverKey},
			{"tls-ca-cert-file", a.CAFile},
			{"tls-auth-clients", "yes"},
			{"tls-replication", "yes"},
		} {
			Config(directive[0], directive[1])(s)
		}
	}
}
