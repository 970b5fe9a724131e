package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
)

// certificate makes one that signs itself, for a name, and its key.
func certificate(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	from := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der := must(x509.CreateCertificate(rand.Reader, from, from, &private.PublicKey, private))(t)
	secret := must(x509.MarshalPKCS8PrivateKey(private))(t)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return text("CERTIFICATE", der), text("PRIVATE KEY", secret)
}

// A pod whose configuration has TLS is ready by its probes, and Prometheus reads its metrics as the values of docs/monitor.md tell it to:
// by HTTPS, and with the name of the Service in the certificate.
func TestPodWithTLS(t *testing.T) {
	values := found(t, "# my-values.yaml, with TLS")
	o, _ := rendered(t, values)
	certificate, key := certificate(t, "stint.stint.svc")
	c := ready(t, o, map[string]string{"tls.crt": certificate, "tls.key": key})

	endpoint := o.monitor.Spec.Endpoints[0]
	if endpoint.TLSConfig == nil || endpoint.TLSConfig.ServerName == nil || endpoint.TLSConfig.CA.Secret == nil || endpoint.TLSConfig.CA.Secret.Key != "tls.crt" {
		t.Fatalf("the monitor is %+v", endpoint)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM([]byte(certificate))
	prometheus := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: *endpoint.TLSConfig.ServerName},
	}}
	url := strings.ToLower(string(*endpoint.Scheme)) + "://" + c.service + endpoint.Path
	response := must(prometheus.Get(url))(t) //nolint:noctx // of a test
	text, err := io.ReadAll(response.Body)
	if _ = response.Body.Close(); err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(text), "rate_limiter_") {
		t.Errorf("the metrics are %d %.200s, %v", response.StatusCode, text, err)
	}

	// Another name of a certificate is one of the values, and without TLS there is nothing of it.
	o, _ = rendered(t, strings.Replace(values, "tlsConfig: {", "tlsConfig: {serverName: limits.example, ", 1))
	if got := o.monitor.Spec.Endpoints[0].TLSConfig.ServerName; *got != "limits.example" {
		t.Errorf("the name is %s", *got)
	}
	o, _ = rendered(t, "serviceMonitor: {enabled: true}")
	if plain := o.monitor.Spec.Endpoints[0]; plain.Scheme != nil || plain.TLSConfig != nil {
		t.Errorf("without TLS the monitor is %+v", plain)
	}
	if scheme := o.deployment.Spec.Template.Spec.Containers[0].ReadinessProbe.HTTPGet.Scheme; scheme != core.URISchemeHTTP {
		t.Errorf("without TLS the probe is by %s", scheme)
	}
}
