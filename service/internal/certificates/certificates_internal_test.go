package certificates

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/testtls"
)

// A secured is certificates whose time the test moves.
type secured struct {
	*Certificates
	t   *testing.T
	now time.Time
	log bytes.Buffer
}

func secure(t *testing.T, files config.TLS) *secured {
	t.Helper()
	s := &secured{t: t, now: time.Now()}
	logger := slog.New(slog.NewTextHandler(&s.log, nil))
	s.Certificates = must.Get(Open("tls", "http", files, logger, func() time.Time { return s.now }))(t)
	return s
}

// name is whose certificate the next handshake gets.
func (s *secured) name() string {
	s.t.Helper()
	config := must.Get(s.Config().GetConfigForClient(nil))(s.t)
	return config.Certificates[0].Leaf.Subject.CommonName
}

// count expects what the metrics of the listener tell.
func (s *secured) count(current, refused float64) {
	s.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s.Collectors()...)
	families, err := registry.Gather()
	if err != nil || len(families) != 2 {
		s.t.Fatalf("%v, %d metrics", err, len(families))
	}
	for i, want := range []float64{current, refused} {
		m := families[i].GetMetric()[0]
		if got := m.GetGauge().GetValue() + m.GetCounter().GetValue(); got != want || m.GetLabel()[0].GetValue() != "http" {
			s.t.Errorf("%s is %v, want %v", families[i].GetName(), got, want)
		}
	}
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
	i := testtls.New(t, "root")
	files := i.Files("one")
	s := secure(t, files)
	cert, key := i.Issue("two", s.now)
	testtls.Put(t, files.CertFile, cert)
	s.now = s.now.Add(recheck - 1)
	s.expect("one", 0)
	s.now = s.now.Add(1) // the pair is half written
	s.expect("one", 1)
	s.now = s.now.Add(recheck)
	s.expect("one", 1)
	s.count(0, 1)
	testtls.Put(t, files.KeyFile, key)
	s.expect("one", 1)
	s.now = s.now.Add(recheck)
	s.expect("two", 2)
	must.Do(t, os.Remove(files.KeyFile))
	s.now = s.now.Add(recheck)
	s.expect("two", 3)
	s.now = s.now.Add(recheck)
	s.expect("two", 3)
	expired, oldKey := i.Issue("expired", s.now.Add(-2*time.Hour))
	testtls.Put(t, files.CertFile, expired)
	testtls.Put(t, files.KeyFile, oldKey)
	s.now = s.now.Add(recheck)
	s.expect("two", 4)
	testtls.Put(t, files.CertFile, cert)
	testtls.Put(t, files.KeyFile, key)
	s.now = s.now.Add(recheck)
	s.expect("two", 5)
	s.count(1, 3)
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
	i := testtls.New(t, "root")
	one, two := i.Files("one"), i.Files("two")
	link := filepath.Join(t.TempDir(), "..data")
	turn := func(to config.TLS) {
		t.Helper()
		must.Do(t, errors.Join(os.Symlink(filepath.Dir(to.CertFile), link+".new"), os.Rename(link+".new", link)))
	}
	turn(one)
	s := secure(t, config.TLS{CertFile: filepath.Join(link, "cert.pem"), KeyFile: filepath.Join(link, "key.pem")})
	s.expect("one", 0)
	turn(two)
	s.now = s.now.Add(recheck)
	s.expect("two", 1)
}

func TestCertificatesThatCanNotBeUsed(t *testing.T) {
	t.Parallel()
	i := testtls.New(t, "root")
	good, other := i.Files("one"), i.Files("other")
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		name = filepath.Join(dir, name)
		testtls.Put(t, name, text)
		return name
	}
	pair := func(name string, when time.Time) config.TLS {
		cert, key := i.Issue("late", when)
		return config.TLS{CertFile: write(name+".cert", cert), KeyFile: write(name+".key", key)}
	}
	secret := must.Get(os.ReadFile(good.KeyFile))(t)
	for name, test := range map[string]struct {
		files config.TLS
		want  string
	}{
		"of another key":      {config.TLS{CertFile: good.CertFile, KeyFile: other.KeyFile}, "tls.cert_file is"},
		"expired":             {pair("past", time.Now().Add(-2*time.Hour)), "a certificate that is valid now: it is valid from "},
		"not valid yet":       {pair("future", time.Now().Add(2*time.Hour)), "a certificate that is valid now"},
		"no certificate":      {config.TLS{CertFile: dir + "/none", KeyFile: good.KeyFile}, "tls.cert_file is"},
		"no key":              {config.TLS{CertFile: good.CertFile, KeyFile: dir + "/none"}, "tls.key_file is"},
		"a folder":            {config.TLS{CertFile: dir, KeyFile: good.KeyFile}, "tls.cert_file is"},
		"swapped":             {config.TLS{CertFile: good.KeyFile, KeyFile: good.CertFile}, "tls.cert_file is"},
		"too long":            {config.TLS{CertFile: write("long", make([]byte, maxCertificateBytes+1)), KeyFile: good.KeyFile}, "at most 1048576 bytes"},
		"authorities of none": {config.TLS{CertFile: good.CertFile, KeyFile: good.KeyFile, ClientCAFile: write("ca", []byte("none"))}, "tls.client_ca_file is"},
	} {
		_, err := Open("tls", "http", test.files, slog.New(slog.DiscardHandler), time.Now)
		if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		} else if strings.Contains(err.Error(), strings.Split(string(secret), "\n")[1]) {
			t.Errorf("%s: the error shows a key: %v", name, err)
		}
	}
}
