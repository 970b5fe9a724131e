package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/testtls"
)

// ask requests a path over TLS and returns the answer's protocol; an error is that
// there was none.
func ask(t *testing.T, config *tls.Config, protocols *http.Protocols, addr net.Addr, path string) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr.String()+path, nil))(t)
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
	i, unauthorised := testtls.New(t, "root"), testtls.New(t, "stranger")
	plain := i.Files("server")
	mutual := i.Files("server")
	mutual.ClientCAFile = filepath.Join(t.TempDir(), "ca.pem")
	testtls.Put(t, mutual.ClientCAFile, i.PEM)
	old := i.Client("client")
	old.MaxVersion = tls.VersionTLS11
	strange := i.Client("")
	strange.GetClientCertificate = unauthorised.Client("client").GetClientCertificate
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
			s := must.Get(New(config))(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			<-s.Listening()
			for addr, path := range map[net.Addr]string{s.Addr(): "/api/v1/rate-limit/check?key=k", s.AdminAddr(): "/debug/pprof/cmdline"} {
				if proto, err := ask(t, i.Client("client"), both, addr, path); err != nil || proto != "HTTP/2.0" {
					t.Errorf("%s: %s, %v", path, proto, err)
				}
				if proto, err := ask(t, i.Client("client"), one, addr, path); err != nil || proto != "HTTP/1.1" {
					t.Errorf("%s: %s, %v", path, proto, err)
				}
				if _, err := ask(t, old, one, addr, path); err == nil {
					t.Errorf("%s is answered over TLS 1.1", path)
				}
				for who, config := range map[string]*tls.Config{"nobody": i.Client(""), "a stranger": strange} {
					if _, err := ask(t, config, both, addr, path); (err != nil) != (name == "mutual") {
						t.Errorf("%s: %s is answered: %v", path, who, err)
					}
				}
				if _, err := ask(t, unauthorised.Client(""), both, addr, path); err == nil {
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
	files := testtls.New(t, "root").Files("server")
	none := TLS{CertFile: filepath.Join(t.TempDir(), "none"), KeyFile: files.KeyFile}
	for want, change := range map[string]func(*Config){
		"tls.cert_file":       func(c *Config) { c.TLS = none },
		"admin_tls.cert_file": func(c *Config) { c.TLS, c.AdminTLS = files, none },
	} {
		config := DefaultConfig()
		config.Store, config.Listen, config.AdminListen = memstore.New(memstore.Config{}), "127.0.0.1:0", "127.0.0.1:0"
		change(&config)
		s := must.Get(New(config))(t)
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
