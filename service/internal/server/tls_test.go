package server_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/testtls"
)

// speaks requests a path over TLS and returns the answer's protocol; an error is that there was none.
func speaks(t *testing.T, config *tls.Config, protocols *http.Protocols, addr net.Addr, path string) (string, error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
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

// Both listeners speak TLS, HTTP/2 and HTTP/1.1, and nothing older than 1.2; with authorities only with those whom they
// authorise for.
func TestListenersSpeakTLS(t *testing.T) {
	t.Parallel()
	i, unauthorised := testtls.New(t, "root"), testtls.New(t, "stranger")
	mutual := i.Files("server")
	mutual.ClientCAFile = filepath.Join(t.TempDir(), "ca.pem")
	testtls.Put(t, mutual.ClientCAFile, i.PEM)
	old, strange := i.Client("client"), i.Client("")
	old.MaxVersion = tls.VersionTLS11
	strange.GetClientCertificate = unauthorised.Client("client").GetClientCertificate
	both, one := new(http.Protocols), new(http.Protocols)
	both.SetHTTP1(true)
	both.SetHTTP2(true)
	one.SetHTTP1(true)
	for name, files := range map[string]server.TLS{"one-sided": i.Files("server"), "mutual": mutual} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) { c.AdminListen, c.TLS, c.AdminTLS = "127.0.0.1:0", files, files })
			for addr, path := range map[net.Addr]string{r.server.Addr(): check + "?key=k", r.server.AdminAddr(): "/debug/pprof/cmdline"} {
				for want, protocols := range map[string]*http.Protocols{"HTTP/2.0": both, "HTTP/1.1": one} {
					if proto, err := speaks(t, i.Client("client"), protocols, addr, path); err != nil || proto != want {
						t.Errorf("%s: %s, %v, want %s", path, proto, err, want)
					}
				}
				if _, err := speaks(t, old, one, addr, path); err == nil {
					t.Errorf("%s is answered over TLS 1.1", path)
				}
				for who, config := range map[string]*tls.Config{"nobody": i.Client(""), "a stranger": strange} {
					if _, err := speaks(t, config, both, addr, path); (err != nil) != (name == "mutual") {
						t.Errorf("%s: %s is answered: %v", path, who, err)
					}
				}
				if _, err := speaks(t, unauthorised.Client(""), both, addr, path); err == nil {
					t.Errorf("%s shows a certificate of a stranger", path)
				}
			}
			r.stop()
			must.Do(t, r.end())
			if got := r.log.String(); strings.Count(got, " tls=true client_certificates=") != 2 || strings.Contains(got, "handshake") {
				t.Errorf("the log:\n%s", got)
			}
		})
	}
}

// What the files of a listener's TLS lack is named by its section.
func TestTLSFaults(t *testing.T) {
	i := testtls.New(t, "root")
	files, other := i.Files("server"), i.Files("other")
	none := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		files server.TLS
		want  string
	}{
		{server.TLS{CertFile: files.CertFile}, "key_file"},
		{server.TLS{KeyFile: files.KeyFile}, "cert_file"},
		{server.TLS{CertFile: files.CertFile, KeyFile: other.KeyFile}, "cert_file"},
		{server.TLS{CertFile: files.CertFile, KeyFile: files.KeyFile, ClientCAFile: files.KeyFile}, "client_ca_file"},
		{server.TLS{CertFile: none, KeyFile: files.KeyFile}, "cert_file"},
	} {
		for section, change := range map[string]func(*server.Config){
			"tls":       func(c *server.Config) { c.TLS = test.files },
			"admin_tls": func(c *server.Config) { c.TLS, c.AdminListen, c.AdminTLS = files, "127.0.0.1:0", test.files },
			"grpc_tls":  func(c *server.Config) { c.GRPCListen, c.GRPCTLS.TLS = "127.0.0.1:0", test.files },
		} {
			_, _, err := startFails(t, change)
			if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), section+"."+test.want+" is ") {
				t.Errorf("%s of %+v: %v, want %s", section, test.files, err, test.want)
			}
		}
	}
}

// A client that does not read the admin listener's answers loses the connection, also with a token.
func TestAdminAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	const short = 100 * time.Millisecond
	const large = "GET /openapi.yaml HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + adminToken + "\r\n\r\n"
	issuer := testtls.New(t, "root")
	files := issuer.Files("server")
	// The preface, SETTINGS with a window of 0 bytes, and the HEADERS of one stream (RFC 9113, 3.4 and 6).
	const windowless = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x06\x04\x00\x00\x00\x00\x00" + "\x00\x04\x00\x00\x00\x00" +
		"\x00\x00\x14\x01\x05\x00\x00\x00\x01" + "\x82\x87\x04\x05/nope\x01\x09localhost"
	for name, test := range map[string]struct {
		files    server.TLS
		protocol string
		abuse    func(net.Conn)
	}{
		"plain": {abuse: flood(large)},
		"TLS":   {files: files, protocol: "http/1.1", abuse: flood(large)},
		"HTTP/2": {files: files, protocol: "h2", abuse: func(conn net.Conn) {
			_, _ = io.WriteString(conn, windowless)
			_, _ = io.Copy(io.Discard, conn)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, func(c *server.Config) {
				c.AdminListen, c.Admin.Tokens, c.MetricsAge = "127.0.0.1:0", adminTokens(), -1
				c.HTTP.WriteTimeout, c.HTTP.IdleTimeout, c.AdminTLS = short, short, test.files
			})
			conn := must.Get(new(net.Dialer).DialContext(t.Context(), "tcp", r.server.AdminAddr().String()))(t)
			defer func() { _ = conn.Close() }()
			deadline := time.Now().Add(patience)
			_ = conn.SetDeadline(deadline)
			if test.protocol != "" {
				config := issuer.Client("")
				config.NextProtos = []string{test.protocol}
				conn = tls.Client(conn, config)
			}
			if test.abuse(conn); time.Now().After(deadline) {
				t.Error("the connection is kept")
			}
			r.connections("admin", 0)
		})
	}
}

// A profile takes the time that an authorised caller gave it.
func TestProfileTakesItsTime(t *testing.T) {
	t.Parallel()
	r := run(t, func(c *server.Config) {
		c.AdminListen, c.Admin.Tokens, c.HTTP.WriteTimeout = "127.0.0.1:0", adminTokens(), 50*time.Millisecond
	})
	request := r.request("GET", r.server.AdminAddr().String(), "/debug/pprof/trace?seconds=0.3")
	request.Header = bearer(adminToken)
	r.send(request).is(http.StatusOK)
}
