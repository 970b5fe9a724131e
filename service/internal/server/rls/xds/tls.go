package xds

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// A TLS names the files with which a control plane is asked over TLS, in PEM. The zero value is
// none.
type TLS struct {
	// CAFile holds the authorities that have to have signed the server's certificate. Default: "", the
	// system's.
	CAFile string
	// CertFile and KeyFile are the client's own certificate, read for each handshake. Default: "",
	// none.
	CertFile, KeyFile string
	// ServerName is what the server's certificate has to name. Default: "", the host of the address.
	ServerName string
	// System speaks TLS though nothing else is said. Default: false.
	System bool
}

// load makes what a connection needs, and fails if a file can't be used.
func (t TLS) load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		text, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, prefix.Errorf("%w: %w", stint.Invalid("ca_file", t.CAFile, "a file in PEM that can be read"), err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, stint.Invalid("ca_file", t.CAFile, "a file with certificates in PEM")
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return config, nil
	}
	if _, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile); err != nil {
		return nil, prefix.Errorf("%w: %w", stint.Invalid("cert_file", t.CertFile,
			"a certificate in PEM, with its key in key_file"), err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		return &pair, err
	}
	return config, nil
}
