// Package testtls makes certificates for tests of listeners that speak TLS.
package testtls

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

	"github.com/stint-go/stint/service/internal/config"
)

// An Issuer signs certificates of tests, for 127.0.0.1 and for clients.
type Issuer struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its own certificate.
	PEM []byte
}

// New makes an issuer of that name, valid for an hour.
func New(t testing.TB, name string) *Issuer {
	t.Helper()
	i := &Issuer{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	i.cert, i.key = template, nil
	cert, key := i.sign(template)
	i.PEM = cert
	i.key = key
	block, _ := pem.Decode(cert)
	var err error
	if i.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		t.Fatal(err)
	}
	return i
}

// sign makes a key and has the issuer, or the key itself, sign its certificate.
func (i *Issuer) sign(template *x509.Certificate) (cert []byte, key *ecdsa.PrivateKey) {
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

// Issue makes a certificate of that name, valid for an hour around when, and its key.
func (i *Issuer) Issue(name string, when time.Time) (cert, key []byte) {
	i.t.Helper()
	cert, private := i.sign(&x509.Certificate{
		SerialNumber: big.NewInt(when.UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: when.Add(-time.Hour), NotAfter: when.Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		i.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Client is what a client of the issuer's servers trusts and shows; name "" shows
// nothing.
func (i *Issuer) Client(name string) *tls.Config {
	i.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1"}
	config.RootCAs.AddCert(i.cert)
	if name == "" {
		return config
	}
	pair, err := tls.X509KeyPair(i.Issue(name, time.Now()))
	if err != nil {
		i.t.Fatal(err)
	}
	// Shown also to a server that asks for another Issuer's.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return config
}

// Files writes a pair of the issuer's.
func (i *Issuer) Files(name string) config.TLS {
	i.t.Helper()
	dir := i.t.TempDir()
	files := config.TLS{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}
	cert, key := i.Issue(name, time.Now())
	Put(i.t, files.CertFile, cert)
	Put(i.t, files.KeyFile, key)
	return files
}

// Put writes a file.
func Put(t testing.TB, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
