// Package certificates follows the files of a listener's TLS, so that handshakes get what they hold now.
package certificates

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
)

// recheck is the least time between two readings of the files.
const recheck = 5 * time.Second

// maxCertificateBytes bounds each of the files.
const maxCertificateBytes = 1 << 20

// Certificates are the contents of the files of a TLS, for one listener. A handshake reads the
// files again if the last reading was 5 seconds ago or earlier. They are compared by content, so
// it does not matter how files are replaced. Files that can't be used, such as a certificate whose
// key is still missing, are logged once, and the previous contents stay in use. It is safe for
// concurrent use.
type Certificates struct {
	*follow.Follower[*tls.Config]

	section string
	files   config.TLS
	logger  *slog.Logger
	now     func() time.Time

	mu      sync.Mutex // held while the files are read
	checked time.Time
	seen    [sha256.Size]byte // the hash of what was read then
}

// Open reads the files. It fails, naming the setting, when one can't be
// read, when the key is of another certificate, and when the certificate is not
// valid now. section is the configuration's, such as tls; service names the listener in the metrics. now is the clock.
func Open(
	section, service string, files config.TLS, logger *slog.Logger, now func() time.Time,
) (*Certificates, error) {
	c := &Certificates{section: section, files: files, logger: logger, now: now, checked: now()}
	text, err := c.read()
	if err != nil {
		return nil, err
	}
	config, err := c.parse(text)
	if err != nil {
		return nil, err
	}
	c.seen = text.hash()
	of := prometheus.Labels{"service": service}
	c.Follower = follow.New(follow.Options[*tls.Config]{
		Refusals: prometheus.CounterOpts{
			Name: "rate_limiter_certificate_refused_total", ConstLabels: of,
			Help: "Times that a listener's new certificate could not be used.",
		},
		Current: prometheus.GaugeOpts{
			Name: "rate_limiter_certificate_current", ConstLabels: of,
			Help: "1 while a listener's certificate is the newest in its files; 0 while a newer one can't be used.",
		},
		First: &config, Attributes: []any{"section", section}, Logger: logger, Level: slog.LevelWarn,
		Text: func(error, bool) (string, []any) {
			return "the new certificate can't be used; the old one stays in use", nil
		},
	})
	return c, nil
}

// Config is for a listener: each handshake gets what the files hold. TLS 1.2 is the least version.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.reload()
			return c.Value(), nil
		},
	}
}

// reload reads the files again, unless another handshake does or did within the last 5 seconds.
func (c *Certificates) reload() {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	now := c.now()
	if now.Sub(c.checked) < recheck {
		return
	}
	c.checked = now
	text, err := c.read()
	if err != nil {
		text = pemFiles{cert: []byte(err.Error())} // which is no certificate
	}
	if text.hash() == c.seen {
		return
	}
	c.seen = text.hash()
	var config *tls.Config
	if err == nil {
		config, err = c.parse(text)
	}
	if err != nil {
		c.Refuse(err)
		return
	}
	_ = c.Take(config, nil) // which nobody refuses
	c.logger.Info("the certificate was reloaded", "section", c.section, "expires", config.Certificates[0].Leaf.NotAfter)
}

// pemFiles are the contents of the files of a TLS.
type pemFiles struct{ cert, key, clientCA []byte }

// hash tells whether files have changed. The length stands before each text, so that no byte can
// move from one file to the next unnoticed.
func (p pemFiles) hash() [sha256.Size]byte {
	hash := sha256.New()
	for _, text := range [][]byte{p.cert, p.key, p.clientCA} {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(text), text) // a hash takes everything
	}
	return [sha256.Size]byte(hash.Sum(nil))
}

// read reads the files that are configured, up to maxCertificateBytes each.
func (c *Certificates) read() (p pemFiles, err error) {
	for _, f := range []struct {
		param, name string
		text        *[]byte
	}{
		{"cert_file", c.files.CertFile, &p.cert},
		{"key_file", c.files.KeyFile, &p.key},
		{"client_ca_file", c.files.ClientCAFile, &p.clientCA},
	} {
		if f.name == "" {
			continue
		}
		if *f.text, err = rulefile.Bytes(f.name, maxCertificateBytes); err != nil {
			return p, c.invalid(f.param, f.name, "a file in PEM that can be read", err)
		}
	}
	return p, nil
}

// parse makes what a handshake needs of the files' contents.
func (c *Certificates) parse(p pemFiles) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		return nil, c.invalid("cert_file", c.files.CertFile,
			"a certificate in PEM whose private key is in "+c.section+".key_file", err)
	}
	leaf, now := pair.Leaf, c.now()
	if now.Before(leaf.NotBefore) || now.After(leaf.NotAfter) {
		return nil, c.invalid("cert_file", c.files.CertFile, "a certificate that is valid now",
			fmt.Errorf("it is valid from %s to %s",
				leaf.NotBefore.Format(time.RFC3339), leaf.NotAfter.Format(time.RFC3339)))
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair},
	}
	if c.files.ClientCAFile != "" {
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(p.clientCA) {
			return nil, stint.Invalid(c.section+".client_ca_file", c.files.ClientCAFile, "a file with certificates in PEM")
		}
	}
	return config, nil
}

func (c *Certificates) invalid(param, name, allowed string, why error) error {
	return prefix.Errorf("%w: %w", stint.Invalid(c.section+"."+param, name, allowed), why)
}

// WithClientName has a handshake ask for a name in the client's certificate, "" for any. The chain
// was verified by the authorities before; the name tells the proxies from others with certificates
// of the same authority.
func WithClientName(config *tls.Config, name string) *tls.Config {
	if name == "" {
		return config
	}
	find := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		found, err := find(hello)
		if err != nil {
			return nil, err
		}
		found = found.Clone()
		found.VerifyConnection = func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || !hasName(state.PeerCertificates[0], name) {
				return errors.New("the client's certificate does not have the name that grpc_client_name asks for")
			}
			return nil
		}
		return found, nil
	}
	return config
}

// hasName reports whether a certificate is for a host, an address or a URI, which may be a SPIFFE
// ID.
func hasName(certificate *x509.Certificate, name string) bool {
	return certificate.VerifyHostname(name) == nil || slices.Contains(certificate.DNSNames, name) ||
		slices.ContainsFunc(certificate.URIs, func(uri *url.URL) bool { return uri.String() == name })
}
