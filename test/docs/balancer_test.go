package docs_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
)

const balancerPage = "docs/behind-a-balancer.md"

// limited serves a program that each client may ask twice, and which answers with the client. It trusts proxies.
func limited(t *testing.T, trusted ...string) *httptest.Server {
	t.Helper()
	limiter := must.Get(stint.New(stillStore(), "api", stint.TokenBucket(2, stint.PerMinute(2))))(t)
	config := clientip.Config{}
	for _, network := range trusted {
		config.TrustedProxies = append(config.TrustedProxies, netip.MustParsePrefix(network))
	}
	clients := must.Get(clientip.New(config))(t)
	limit := must.Get(httplimit.New(httplimit.Config{Limiter: limiter, Clients: clients}))(t)
	program := httptest.NewServer(limit.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, clients.Key(r.RemoteAddr, r.Header)) //nolint:gosec // a test alone reads it
	})))
	t.Cleanup(program.Close)
	return program
}

// askFrom sends a request from an address of this machine, behind a first line if there is one, and returns the status and the body.
func askFrom(t *testing.T, from, address, first, forwarded string) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn := must.Get(dialer.DialContext(t.Context(), "tcp", address))(t)
	defer func() { _ = conn.Close() }()
	if forwarded != "" {
		forwarded = "X-Forwarded-For: " + forwarded + "\r\n"
	}
	if _, err := fmt.Fprintf(conn, "%sGET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n%s\r\n", first, forwarded); err != nil {
		t.Fatal(err)
	}
	response := must.Get(http.ReadResponse(bufio.NewReader(conn), nil))(t)
	body, err := io.ReadAll(response.Body)
	must.Do(t, errors.Join(err, response.Body.Close()))
	if response.StatusCode != http.StatusOK {
		return response.Status
	}
	return string(body)
}

// nginx runs with servers, until the test ends, and returns when it takes connections at an address.
func nginx(t *testing.T, address, servers string) {
	t.Helper()
	folder := t.TempDir()
	text := "worker_processes 1; daemon off; pid nginx.pid; error_log stderr; events {}\nhttp {\naccess_log off; client_body_temp_path body; proxy_temp_path proxy;" +
		" fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;\n" + servers + "\n}\n"
	must.Do(t, os.WriteFile(filepath.Join(folder, "nginx.conf"), []byte(text), 0o600))
	var log strings.Builder
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "nginx", "-p", folder, "-c", "nginx.conf", "-e", "stderr")
	command.Stdout, command.Stderr = &log, &log
	command.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	must.Do(t, command.Start())
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // how it ended is in its log
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	})
	within(t, "nginx listens", func() bool {
		select {
		case <-ended:
			t.Fatalf("nginx ended:\n%s", log.String())
		default:
		}
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
}

// expectClients asks as two clients, of whom each has two requests whatever it claims.
func expectClients(t *testing.T, ask func(client, forwarded string) string) {
	t.Helper()
	for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
		for i := range 3 {
			want := client
			if i == 2 {
				want = "429 Too Many Requests"
			}
			if got := ask(client, fmt.Sprint("192.0.2.", i)); got != want {
				t.Errorf("request %d of %s: %q, want %q", i, client, got, want)
			}
		}
	}
}

// A program behind the page's nginx counts its clients.
func TestBehindNginx(t *testing.T) {
	behind := func(changes *strings.Replacer) (address string) {
		program, address := limited(t, "127.0.0.1/32"), testport.Address(t)
		location := strings.ReplaceAll(blocks(t, balancerPage, "nginx")[0], "127.0.0.1:8000", program.Listener.Addr().String())
		nginx(t, address, "server {\nlisten "+address+";\n"+changes.Replace(location)+"\n}")
		return address
	}
	address := behind(strings.NewReplacer())
	expectClients(t, func(client, forwarded string) string { return askFrom(t, client, address, "", forwarded) })
	check := strings.Replace(blocks(t, balancerPage, "sh")[0], "127.0.0.1:8088", address, 1)
	if got, err := exec.CommandContext(t.Context(), "bash", "-c", check).Output(); err != nil || string(got) != "200\n200\n429\n" {
		t.Errorf("the page's check prints %q, %v", got, err)
	}

	// Behind another balancer nginx appends.
	address = behind(strings.NewReplacer("X-Forwarded-For $remote_addr", "X-Forwarded-For $proxy_add_x_forwarded_for"))
	expectClients(t, func(client, forwarded string) string { return askFrom(t, client, address, "", forwarded) })
}

// The page's nginx reads the PROXY protocol of a balancer, here 127.0.0.9.
func TestPROXYProtocol(t *testing.T) {
	program, address := limited(t, "127.0.0.1/32"), testport.Address(t)
	nginx(t, address, strings.NewReplacer("127.0.0.1:8000", program.Listener.Addr().String(), "127.0.0.1:8088", address).Replace(blocks(t, balancerPage, "nginx")[1]))
	expectClients(t, func(client, forwarded string) string {
		return askFrom(t, "127.0.0.9", address, "PROXY TCP4 "+client+" 127.0.0.1 40000 80\r\n", forwarded)
	})
}

// A program behind Go's own proxy, as the page configures it.
func TestBehindReverseProxy(t *testing.T) {
	program := limited(t, "127.0.0.1/32")
	target := must.Get(url.Parse(program.URL))(t)
	balancer := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target); p.SetXForwarded() },
	})
	defer balancer.Close()
	expectClients(t, func(client, forwarded string) string {
		return askFrom(t, client, balancer.Listener.Addr().String(), "", forwarded)
	})
}

// What the page says goes wrong: with no proxy named all clients are one, with all networks named each chooses its address.
func TestWrongTrust(t *testing.T) {
	for _, test := range []struct {
		trusted []string
		want    string
	}{
		{nil, "127.0.0.1 127.0.0.1 429 Too Many Requests 429 Too Many Requests"},
		{[]string{"0.0.0.0/0"}, "192.0.2.0 192.0.2.1 192.0.2.2 192.0.2.3"},
	} {
		program, address := limited(t, test.trusted...), testport.Address(t)
		passing := "proxy_pass " + program.URL + "; proxy_set_header X-Forwarded-For $http_x_forwarded_for;"
		nginx(t, address, "server {\nlisten "+address+";\nlocation / { "+passing+" }\n}")
		var got []string
		for i := range 4 {
			got = append(got, askFrom(t, fmt.Sprint("127.0.0.", 2+i), address, "", fmt.Sprint("192.0.2.", i)))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("trusted %v: %v", test.trusted, got)
		}
	}
}

// The page's table of who the client is.
func TestForwardedFor(t *testing.T) {
	trusted := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	clients := must.Get(clientip.New(clientip.Config{TrustedProxies: trusted}))(t)
	_, table, _ := strings.Cut(pages(t)[balancerPage], "| peer | `X-Forwarded-For` | client |\n|---|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		header := http.Header{}
		if cells[1] != "none" {
			header.Set("X-Forwarded-For", strings.Trim(cells[1], "`"))
		}
		want, _, _ := strings.Cut(cells[2], ": ")
		if got := clients.Key(cells[0]+":40000", header); got != want {
			t.Errorf("%s: the client is %s", row, got)
		}
	}
	if len(rows) != 8 {
		t.Errorf("%d rows", len(rows))
	}
}
