package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/service/internal/server"
)

// secured are credentials of a client.
func secured(config *tls.Config) grpc.DialOption {
	return grpc.WithTransportCredentials(credentials.NewTLS(config))
}

// trusting is what a client has that trusts an authority, and shows a certificate of another unless that is nil.
func trusting(t *testing.T, a, own *testredis.Authority, name string) *tls.Config {
	t.Helper()
	text := must.Get(os.ReadFile(a.CAFile))(t)
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	config.RootCAs.AppendCertsFromPEM(text)
	if own == nil {
		return config
	}
	pair := must.Get(tls.LoadX509KeyPair(own.Issue(t, name)))(t)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return config
}

// The gRPC listener speaks TLS, and takes up a certificate that is replaced without losing connections.
func TestGRPCTLS(t *testing.T) {
	t.Parallel()
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue(t, "grpc")
	r := runGRPC(t, func(c *server.Config) { c.GRPCTLS.TLS = server.TLS{CertFile: cert, KeyFile: key} })
	kept := r.dial(secured(trusting(t, a, nil, "")))
	decides(t, kept)
	refuses(t, r.dial(), "")
	refuses(t, r.dial(secured(trusting(t, other, nil, ""))), "certificate")
	says(t, r.log.String(), "service=grpc addr="+r.server.GRPCAddr().String()+" tls=true client_certificates=false")
	newCert, newKey := other.Issue(t, "grpc")
	for to, from := range map[string]string{cert: newCert, key: newKey} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() bool { // a handshake reads the files again after 5 seconds
		conn := r.dial(secured(trusting(t, other, nil, "")))
		defer func() { _ = conn.Close() }()
		_, err := rate(t.Context(), conn, "x")
		return err == nil
	})
	decides(t, kept)
	says(t, r.log.String(), "the certificate was reloaded")
}

// With a file of authorities clients need a certificate of one of them, and one with the name that is asked for.
func TestGRPCMutualTLS(t *testing.T) {
	a, other := testredis.NewAuthority(t), testredis.NewAuthority(t)
	cert, key := a.Issue(t, "grpc")
	for name, want := range map[string][]string{"": {"envoy", "gateway"}, "envoy": {"envoy"}, "127.0.0.1": {"envoy", "gateway"}, "nobody": nil} {
		r := runGRPC(t, func(c *server.Config) {
			c.GRPCTLS.TLS, c.GRPCTLS.ClientName = server.TLS{CertFile: cert, KeyFile: key, ClientCAFile: a.CAFile}, name
		})
		admitted := map[string]bool{}
		for _, client := range want {
			admitted[client] = true
		}
		for _, client := range []string{"envoy", "gateway"} {
			conn := r.dial(secured(trusting(t, a, a, client)))
			if admitted[client] {
				decides(t, conn)
			} else {
				refuses(t, conn, "")
			}
		}
		refuses(t, r.dial(secured(trusting(t, a, nil, ""))), "")
		refuses(t, r.dial(secured(trusting(t, a, other, "envoy"))), "")
		r.connections("grpc", len(want))
	}
}
