package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// A dropped is `stint ratelimit` with the addresses where it listens.
type dropped struct {
	t                          testing.TB
	http, grpc, debug, metrics string
	log                        *lines
	stop                       func()
}

var listenPattern = regexp.MustCompile(`level=INFO msg=listening service=(\S+) addr=(\S+)`)

// drop runs `stint ratelimit` by these variables on free ports until the test ends.
func drop(t testing.TB, variables map[string]string) *dropped {
	t.Helper()
	all := map[string]string{
		"HOST": "127.0.0.1", "PORT": "0", "GRPC_HOST": "127.0.0.1", "GRPC_PORT": "0", "DEBUG_HOST": "127.0.0.1", "DEBUG_PORT": "0",
		"PROMETHEUS_ADDR": "127.0.0.1:0", "LOG_LEVEL": "info", "REDIS_SOCKET_TYPE": "tcp",
		"REDIS_TIMEOUT":          "1m", // the machine may be busy
		"STINT_DRAIN_KEEP_ALIVE": "0s",
	}
	maps.Copy(all, variables)
	var names []string
	for name, text := range all {
		names = append(names, name+"="+text)
	}
	d := &dropped{t: t}
	p := process{Env: environment(all), Environ: func() []string { return names }}
	d.http, d.log, d.stop = launch(t, p, "ratelimit")
	// The debug listeners come first, and that of gRPC at once after that of HTTP.
	d.grpc = awaitMatch(t, d.log, `service=grpc addr=(\S+)`)
	for _, match := range listenPattern.FindAllStringSubmatch(d.log.String(), -1) {
		switch match[1] {
		case "debug":
			d.debug = "http://" + match[2]
		case "metrics":
			d.metrics = "http://" + match[2]
		}
	}
	t.Cleanup(d.stop)
	return d
}

// dialTLS is a client of the gRPC listener that trusts an authority; nil speaks plainly.
func (d *dropped) dial(a *testredis.Authority) pb.RateLimitServiceClient {
	d.t.Helper()
	speaks := insecure.NewCredentials()
	if a != nil {
		text := must.Get(os.ReadFile(a.CAFile))(d.t)
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
		config.RootCAs.AppendCertsFromPEM(text)
		speaks = credentials.NewTLS(config)
	}
	conn := must.Get(grpc.NewClient("passthrough:///"+d.grpc, grpc.WithTransportCredentials(speaks)))(d.t)
	d.t.Cleanup(func() { _ = conn.Close() })
	return pb.NewRateLimitServiceClient(conn)
}

// about is a request with one descriptor of one entry.
func about(domain, key, value string) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: domain, Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}

// postJSON sends a body to /json.
func postJSON(t testing.TB, url, body string, fields ...string) (status int, text string) {
	t.Helper()
	return fetch(t, http.MethodPost, url+"/json", body, fields...)
}

// A runtimeFolder is the folders of the reference service: a link to a version, swapped as a whole.
type runtimeFolder struct {
	t        testing.TB
	root     string // the link
	versions int
}

const domainText = "domain: %s\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: %d}}]\n"

// swap puts a version with one file in the place of the one before.
func (r *runtimeFolder) swap(text string) {
	r.t.Helper()
	if r.root == "" {
		r.root = filepath.Join(r.t.TempDir(), "current")
	}
	r.versions++
	version := fmt.Sprintf("%s-%d", r.root, r.versions)
	put(r.t, filepath.Join(version, "ratelimit", "config", "d.yaml"), text)
	must.Do(r.t, os.Symlink(version, version+".link"))
	must.Do(r.t, os.Rename(version+".link", r.root))
}

// edit writes over the file in force.
func (r *runtimeFolder) edit(text string) {
	r.t.Helper()
	must.Do(r.t, os.WriteFile(filepath.Join(r.root, "ratelimit", "config", "d.yaml"), []byte(text), 0o600))
}

// What Envoy Gateway deploys works unchanged, but for the source of the configuration and its ports.
func TestRateLimitAsEnvoyGatewayDeploysIt(t *testing.T) {
	t.Parallel()
	redis, a := testredis.Start(t), testredis.NewAuthority(t)
	cert, key := a.Issue(t, "ratelimit")
	files := &runtimeFolder{t: t}
	files.swap(fmt.Sprintf(domainText, "d", 2))
	d := drop(t, map[string]string{
		"RUNTIME_ROOT": files.root, "RUNTIME_SUBDIRECTORY": "ratelimit", "RUNTIME_IGNOREDOTFILES": "true", "RUNTIME_WATCH_ROOT": "false",
		"USE_STATSD": "false", "CONFIG_TYPE": "FILE", "GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": cert,
		"GRPC_SERVER_TLS_KEY": key, "GRPC_SERVER_TLS_CA_CERT": a.CAFile, "FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"REDIS_URL": redis.Addr(), "USE_PROMETHEUS": "true", "PROMETHEUS_MAPPER_YAML": "/etc/statsd-exporter/conf.yaml",
		"STATSD_PORT": "9125", "TRACING_ENABLED": "false",
	})
	if status, body := get(t, d.http+"/healthcheck"); status != http.StatusOK || body != "OK" {
		t.Errorf("/healthcheck: %d %s", status, body)
	}
	client := d.dial(a)
	for i, want := range []pb.RateLimitResponse_Code{pb.RateLimitResponse_OK, pb.RateLimitResponse_OK, pb.RateLimitResponse_OVER_LIMIT} {
		response, err := client.ShouldRateLimit(t.Context(), about("d", "k", "v"))
		if err != nil || response.OverallCode != want {
			t.Errorf("request %d: %v, %v", i, response, err)
		}
	}
	if _, err := d.dial(nil).ShouldRateLimit(t.Context(), about("d", "k", "v")); err == nil {
		t.Error("a client that speaks plainly is answered")
	}
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "k", "value": "json"}]}], "hitsAddend": 2}`
	for i, want := range []struct {
		status     int
		body, text string
	}{
		{200, body, `"overallCode":"OK"`},
		{429, body, `"overallCode":"OVER_LIMIT"`},
		{400, `{"domain": "d"`, "the body is no RateLimitRequest in JSON"},
		{400, `{"domain": "d"}`, "descriptors is 0"},
		{400, "", "the body is no RateLimitRequest in JSON"},
		{400, `{"domian": "d"}`, "domian"},
		{200, `{"domain": "other", "descriptors": [{"entries": [{"key": "k"}]}]}`, `"overallCode":"OK"`},
	} {
		if status, text := postJSON(t, d.http, want.body); status != want.status || !strings.Contains(strings.ReplaceAll(text, `": "`, `":"`), want.text) {
			t.Errorf("POST /json %d: %d %s", i, status, text)
		}
	}
	if status, text := get(t, d.debug+"/rlconfig"); status != 200 || text != "d.k: unit=YEAR requests_per_unit=2, shadow_mode: false, quota_mode: false\n" {
		t.Errorf("/rlconfig: %d %s", status, text)
	}
	for _, url := range []string{d.debug + "/stats", d.metrics + "/metrics"} {
		eventually(t, "the hits are in "+url, func() bool {
			status, text := get(t, url)
			return status == 200 && strings.Contains(text, `ratelimit_service_rate_limit_total_hits{domain="d",key1="k",key2=""} 7`+"\n") &&
				strings.Contains(text, "ratelimit_service_config_load_success 1\n")
		})
	}
	log := d.log.String()
	for _, name := range []string{"GRPC_SERVER_TLS_CA_CERT", "PROMETHEUS_MAPPER_YAML", "STATSD_PORT", "USE_STATSD"} {
		if strings.Count(log, name) != 1 {
			t.Errorf("the log names %s %d times", name, strings.Count(log, name))
		}
	}
	for _, name := range []string{"RUNTIME_", "REDIS_", "USE_PROMETHEUS", "CONFIG_TYPE", "GRPC_SERVER_USE_TLS", "TRACING_ENABLED", "FORCE_START", "LOG_LEVEL"} {
		if strings.Contains(log, name) {
			t.Errorf("the log says that %s has no effect:\n%s", name, log)
		}
	}
	d.stop()
	if conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(d.metrics, "http://")); err == nil {
		_ = conn.Close()
		t.Error("the listener of metrics is left open")
	}
}

// The configuration is followed: a link that is swapped, a file that is edited. A broken file leaves the one before in
// force, and is counted.
func TestRateLimitFollowsItsFiles(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	files := &runtimeFolder{t: t}
	files.swap(fmt.Sprintf(domainText, "d", 10))
	d := drop(t, map[string]string{
		"RUNTIME_ROOT": files.root, "RUNTIME_SUBDIRECTORY": "ratelimit", "REDIS_URL": redis.Addr(), "USE_PROMETHEUS": "true",
	})
	client := d.dial(nil)
	limit := func() uint32 {
		response := must.Get(client.ShouldRateLimit(t.Context(), about("d", "k", "v")))(t)
		return response.Statuses[0].CurrentLimit.GetRequestsPerUnit()
	}
	if got := limit(); got != 10 {
		t.Fatalf("the limit is %d", got)
	}
	files.edit(fmt.Sprintf(domainText, "d", 11))
	eventually(t, "the edited file is in force", func() bool { return limit() == 11 })
	files.swap(fmt.Sprintf(domainText, "d", 12))
	eventually(t, "the swapped link is in force", func() bool { return limit() == 12 })
	files.edit("domain: d\ndescriptors: [{key: k, rate_limit: {unit: moon}}]\n")
	eventually(t, "the broken file is counted", func() bool {
		_, text := get(t, d.metrics+"/metrics")
		return strings.Contains(text, "ratelimit_service_config_load_error 1\n")
	})
	if got := limit(); got != 12 {
		t.Errorf("with a broken file the limit is %d", got)
	}
	if log := d.log.String(); strings.Count(log, "the new domains are refused; the current ones stay in force") != 1 || !strings.Contains(log, "d.yaml:2:43: ") {
		t.Errorf("the log:\n%s", log)
	}
	status, health := get(t, d.http+"/actuator/health?details=true")
	for _, want := range []string{`"state":"refused"`, "d.yaml:2:43: ", "the new domains are refused; the current ones stay in force"} {
		if status != http.StatusOK || !strings.Contains(health, want) {
			t.Errorf("the health is %d %s, want %s", status, health, want)
		}
	}
	files.swap(fmt.Sprintf(domainText, "d", 13))
	eventually(t, "the mended file is in force", func() bool { return limit() == 13 })
	eventually(t, "each load is counted", func() bool {
		_, text := get(t, d.metrics+"/metrics")
		return strings.Contains(text, "ratelimit_service_config_load_error 1\n") && strings.Contains(text, "ratelimit_service_config_load_success 4\n")
	})
}

// Without a configuration the service is not ready, unless it may start without one; a file that comes makes it ready.
func TestRateLimitWithoutConfiguration(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	for forced, want := range map[string]int{"false": http.StatusInternalServerError, "true": http.StatusOK} {
		root := t.TempDir()
		broken := filepath.Join(root, "config", "d.yaml")
		put(t, broken, "domain: [\n")
		d := drop(t, map[string]string{"RUNTIME_ROOT": root, "REDIS_URL": redis.Addr(), "FORCE_START_WITHOUT_INITIAL_CONFIG": forced})
		if status, _ := get(t, d.http+"/healthcheck"); status != want {
			t.Errorf("forced %s: /healthcheck says %d, want %d", forced, status, want)
		}
		// The files are read beside the listeners.
		eventually(t, "the domains are refused", func() bool {
			return strings.Contains(d.log.String(), "the domains are refused; there are none until they are mended")
		})
		if log := d.log.String(); strings.Contains(log, "stay in force") {
			t.Errorf("forced %s:\n%s", forced, log)
		}
		client := d.dial(nil)
		if _, err := client.ShouldRateLimit(t.Context(), about("d", "k", "v")); err == nil {
			t.Errorf("forced %s: a request is decided", forced)
		}
		put(t, broken, fmt.Sprintf(domainText, "d", 5))
		eventually(t, "the service is ready", func() bool {
			status, _ := get(t, d.http+"/healthcheck")
			_, err := client.ShouldRateLimit(t.Context(), about("d", "k", "v"))
			return status == http.StatusOK && err == nil
		})
	}
}

// Each variable that is wrong is named once, with what is allowed, all of them at once.
func TestRateLimitNamesWrongVariables(t *testing.T) {
	wrong := map[string]string{
		"PORT": "http", "GRPC_PORT": "99999", "DEBUG_PORT": "x", "PROMETHEUS_ADDR": "nonsense", "LOG_LEVEL": "loud", "LOG_FORMAT": "xml",
		"NEAR_LIMIT_RATIO": "2", "LIMIT_RESPONSE_HEADERS_ENABLED": "maybe", "SHADOW_MODE": "2", "QUOTA_MODE": "x", "MERGE_DOMAIN_CONFIG": "x",
		"RESPONSE_DYNAMIC_METADATA": "x", "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "x", "GRPC_MAX_CONNECTION_AGE": "old",
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "x", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "x", "GRPC_SERVER_USE_TLS": "x",
		"REDIS_TIMEOUT": "soon", "USE_PROMETHEUS": "yep", "TRACING_ENABLED": "x", "CACHE_KEY_PREFIX": "{x", "RUNTIME_WATCH_ROOT": "x",
		"RUNTIME_IGNOREDOTFILES": "x",
	}
	code, stdout, stderr := do(t, wrong, "ratelimit")
	if code != exitUsage || stdout != "" {
		t.Errorf("exit code %d, output %q", code, stdout)
	}
	named := map[string]int{}
	for line := range strings.Lines(stderr) {
		if !strings.Contains(line, "; allowed: ") {
			t.Errorf("a line does not say what is allowed: %s", line)
		}
		found := false
		for name, text := range wrong {
			if strings.HasPrefix(line, "stint: "+name+" is \""+text) || strings.HasPrefix(line, "stint: "+name+": ") {
				named[name]++
				found = true
			}
		}
		if !found {
			t.Errorf("a line that names none of the variables: %s", line)
		}
	}
	for name := range wrong {
		if named[name] != 1 {
			t.Errorf("%s is named %d times", name, named[name])
		}
	}
	if t.Failed() {
		t.Logf("the errors:\n%s", stderr)
	}
}

// Under `stint serve` a request as JSON names keys, and needs the right to.
func TestServeJSONNeedsTheRight(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "a-token-of-the-test-0123456789\n")
	folder := t.TempDir()
	put(t, filepath.Join(folder, "d.yaml"), fmt.Sprintf(domainText, "d", 5))
	url, _ := start(t, "--grpc-listen", "127.0.0.1:0", "--envoy-config", folder, "--api-tokens-file", tokens)
	const body = `{"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}]}`
	for field, want := range map[string]int{
		"X: y": http.StatusUnauthorized, "Authorization: Bearer another": http.StatusUnauthorized,
		"Authorization: Bearer a-token-of-the-test-0123456789": http.StatusOK,
	} {
		status, text := postJSON(t, url, body, field)
		if status != want || status == http.StatusOK && !strings.Contains(text, "OK") {
			t.Errorf("with %s: %d %s", field, status, text)
		}
	}
	plain, _ := start(t)
	for _, path := range []string{"/json", "/healthcheck"} {
		if status, _ := get(t, plain+path); status != http.StatusNotFound {
			t.Errorf("without gRPC %s is %d", path, status)
		}
	}
}
