package main

import (
	"crypto/tls"
	"io"
	"maps"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// sets are values for the chart: its own; pods that share a Redis; and everything.
var sets = map[string]string{
	"alone": "{}",
	"shared": `
replicaCount: 3
config: {store: {url: "redis://redis:6379"}, api: {open: true}}
rules: [{id: login, scope: global, limits: [{algorithm: fixed_window, limit: 5, window: 24h}]}]
`,
	"all": `
image: {tag: v9, pullPolicy: Always}
imagePullSecrets: [{name: registry}]
config:
  store: {url: "redis://redis:6379", password_file: /etc/stint/secrets/redis}
  admin: {tokens_file: /etc/stint/secrets/admin}
  api: {tokens_file: /etc/stint/secrets/api}
secretName: stint-secrets
admin: {expose: true}
grpc: {port: 8081, domains: [{domain: web, descriptors: [{key: plan, rate_limit: {unit: day, requests_per_unit: 3}}]}]}
resp: {port: 6379}
networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {limits: ask}}}], egress: [{to: [{podSelector: {matchLabels: {app: redis}}}]}]}
service: {type: LoadBalancer, port: 80, annotations: {a: b}}
autoscaling: {enabled: true, maxReplicas: 20}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
env: [{name: OTEL_SERVICE_NAME, value: stint}]
podAnnotations: {a: b}
podLabels: {team: edge}
priorityClassName: system-cluster-critical
nodeSelector: {a: b}
tolerations: [{key: a, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
serviceAccount: {create: false, name: own}
`,
}

// objects are what the chart makes, as the types that Kubernetes knows.
type objects struct {
	deployment apps.Deployment
	service    core.Service
	config     core.ConfigMap
	account    core.ServiceAccount
	budget     policy.PodDisruptionBudget
	scaler     autoscaling.HorizontalPodAutoscaler
	monitor    monitoring.ServiceMonitor
	network    networking.NetworkPolicy
}

// renderReleased renders the chart as it is in the release.
func renderReleased(t *testing.T, values string) (documents map[string]string, err error) {
	t.Helper()
	var set map[string]any
	do(t, yaml.Unmarshal([]byte(values), &set))
	return render(must(loader.Load(filepath.Join(released, "stint-"+version+".tgz")))(t), set)
}

// rendered renders the chart with values, and decodes it strictly: a field that Kubernetes does not know is an error.
func rendered(t *testing.T, values string) (o objects, kinds []string) {
	t.Helper()
	documents := must(renderReleased(t, values))(t)
	for name, text := range documents {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		kinds = append(kinds, head.Kind)
		as := map[string]any{
			"Deployment": &o.deployment, "Service": &o.service, "ConfigMap": &o.config, "ServiceAccount": &o.account,
			"PodDisruptionBudget": &o.budget, "HorizontalPodAutoscaler": &o.scaler, "ServiceMonitor": &o.monitor,
			"NetworkPolicy": &o.network,
		}[head.Kind]
		if err := yaml.UnmarshalStrict([]byte(text), as); err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	slices.Sort(kinds)
	return o, kinds
}

// The chart of a clone has the version of the modules.
func TestChartVersion(t *testing.T) {
	chart := must(loader.Load("../helm"))(t)
	if m := chart.Metadata; m.Version != version || m.AppVersion != version {
		t.Errorf("the chart is %s for %s, want %s", m.Version, m.AppVersion, version)
	}
}

// What is made of three sets of values is what Kubernetes knows, and belongs together.
func TestChartRenders(t *testing.T) {
	for name, want := range map[string]string{
		"alone":  "ConfigMap Deployment Service ServiceAccount",
		"shared": "ConfigMap Deployment PodDisruptionBudget Service ServiceAccount",
		"all":    "ConfigMap Deployment HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget Service ServiceMonitor",
	} {
		o, kinds := rendered(t, sets[name])
		if strings.Join(kinds, " ") != want {
			t.Errorf("%s makes %v, want %s", name, kinds, want)
		}
		pod := o.deployment.Spec.Template
		for what, selector := range map[string]map[string]string{
			"deployment": o.deployment.Spec.Selector.MatchLabels, "service": o.service.Spec.Selector,
		} {
			for key, value := range selector {
				if pod.Labels[key] != value {
					t.Errorf("%s: the %s selects %s=%s, the pods have %q", name, what, key, value, pod.Labels[key])
				}
			}
		}
		container := pod.Spec.Containers[0]
		for _, port := range o.service.Spec.Ports {
			if !slices.ContainsFunc(container.Ports, func(p core.ContainerPort) bool { return p.Name == port.TargetPort.StrVal }) {
				t.Errorf("%s: the service has port %s, the container has %v", name, port.Name, container.Ports)
			}
		}
		if context := container.SecurityContext; !*context.ReadOnlyRootFilesystem || *context.AllowPrivilegeEscalation || context.Capabilities.Drop[0] != "ALL" {
			t.Errorf("%s: the container may do %+v", name, context)
		}
	}
	o, _ := rendered(t, sets["all"])
	if o.deployment.Spec.Replicas != nil || *o.scaler.Spec.MinReplicas != 2 || o.scaler.Spec.MaxReplicas != 20 || o.scaler.Spec.ScaleTargetRef.Name != o.deployment.Name {
		t.Errorf("the deployment has %v pods beside the scaler %+v", o.deployment.Spec.Replicas, o.scaler.Spec)
	}
	if endpoint := o.monitor.Spec.Endpoints[0]; endpoint.Port != o.service.Spec.Ports[0].Name || endpoint.Path != "/metrics" || o.monitor.Labels["release"] != "prometheus" {
		t.Errorf("the monitor is %+v", o.monitor)
	}
	for _, port := range o.service.Spec.Ports {
		if !slices.ContainsFunc(o.network.Spec.Ingress[0].Ports, func(p networking.NetworkPolicyPort) bool { return p.Port.StrVal == port.TargetPort.StrVal }) {
			t.Errorf("the network policy lets nobody reach port %s", port.Name)
		}
	}
	if n := o.network.Spec; len(n.PolicyTypes) != 2 || n.Ingress[0].From[0].NamespaceSelector.MatchLabels["limits"] != "ask" || n.Egress[0].To[0].PodSelector.MatchLabels["app"] != "redis" {
		t.Errorf("the network policy is %+v", n)
	}
	if image := o.deployment.Spec.Template.Spec.Containers[0].Image; image != repository+":v9" {
		t.Errorf("the image is %s", image)
	}
}

// What can't work is refused before it is installed, with its name.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"replicas: 2":                      "replicas",
		"replicaCount: 2":                  "config.store.url is memory://",
		"replicaCount: many":               "replicaCount",
		"admin: {expose: true}":            "config.admin.tokens_file",
		"resp: {port: 6390}":               "config.api.tokens_file",
		"config: {listen: a}":              "config",
		"config: {resp_listen: a}":         "config",
		"config: {grpc_listen: a}":         "config",
		"grpc: {port: 8081}":               "grpc.domains",
		"grpc: {domains: [{domain: web}]}": "grpc.port",
		"networkPolicy: {enabled: true}":   "networkPolicy.from",
		"{grpc: {port: 8081, domains: [{domain: web}]}, config: {envoy: {xds: {server: \"a:1\"}}}}": "config.envoy.xds.server",
		"config: {store: {urll: redis://r:6379}}":                                                   "urll",
		"config: {log: {level: loud}}":                                                              "level",
		"rules: [{id: a, scope: global, unlimitd: true}]":                                           "unlimitd",
		"rules: [{name: a}]":                                                                        "id",
		"autoscaling: {enabled: true}":                                                              "config.store.url",
		"serviceMonitor: {interval: often}":                                                         "interval",
		"serviceMonitor: {tlsConfig: {insecureSkipVerify: true}}":                                   "config.tls.cert_file",
		"config: {tls: {cert_file: a, key_file: b, client_ca_file: c}}":                             "config.tls.client_ca_file",
		"env: [{name: STINT_TLS_CERT_FILE, value: /etc/stint/secrets/tls}]":                         "STINT_TLS_CERT_FILE",
	} {
		if _, err := renderReleased(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", values, err, want)
		}
	}
}

// pod makes a root with what a pod of the chart has: the image, and the files that are mounted, secrets among them.
func pod(t *testing.T, o objects, secrets map[string]string, replace ...string) *container {
	t.Helper()
	root, config, _ := unpack(t)
	spec := o.deployment.Spec.Template.Spec
	from := spec.Containers[0]
	volumes := map[string]map[string]string{}
	for _, volume := range spec.Volumes {
		volumes[volume.Name] = map[string]string{}
		switch {
		case volume.ConfigMap != nil:
			for _, item := range volume.ConfigMap.Items {
				volumes[volume.Name][item.Path] = strings.NewReplacer(replace...).Replace(o.config.Data[item.Key])
			}
		case volume.Secret != nil:
			volumes[volume.Name] = secrets
		}
	}
	for _, mount := range from.VolumeMounts {
		for name, text := range volumes[mount.Name] {
			write(t, filepath.Join(root, mount.MountPath, name), text, 0o444)
		}
		delete(volumes, mount.Name)
	}
	if len(volumes) > 0 {
		t.Errorf("nobody mounts %v", slices.Collect(maps.Keys(volumes)))
	}
	c := &container{root: root, args: slices.Concat(config.Config.Entrypoint, from.Args), user: uint32(*spec.SecurityContext.RunAsUser)}
	for _, variable := range from.Env {
		c.env = append(c.env, variable.Name+"="+variable.Value)
	}
	return c
}

// ready starts a pod whose probes are answered.
func ready(t *testing.T, o objects, secrets map[string]string, replace ...string) *container {
	t.Helper()
	c := pod(t, o, secrets, replace...)
	c.start(t)
	from := o.deployment.Spec.Template.Spec.Containers[0]
	for _, p := range []*core.Probe{from.LivenessProbe, from.ReadinessProbe} {
		if status := probe(t, c, p); status != http.StatusOK {
			t.Errorf("%s answers %d", p.HTTPGet.Path, status)
		}
	}
	return c
}

// probe asks a pod as the kubelet does: by HTTPS it believes any certificate, and has none.
func probe(t *testing.T, c *container, probe *core.Probe) (status int) {
	t.Helper()
	asker := &http.Client{Timeout: client.Timeout, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as the kubelet does
	}}
	url := strings.ToLower(string(probe.HTTPGet.Scheme)) + "://" + c.service + probe.HTTPGet.Path
	response := must(asker.Get(url))(t) //nolint:noctx // of a test
	_ = response.Body.Close()
	return response.StatusCode
}

// shouldRateLimit asks a pod as Envoy does, and returns the overall code: 1 is OK, 2 is OVER_LIMIT.
func shouldRateLimit(t *testing.T, c *container, domain, key, value string) byte {
	t.Helper()
	field := func(number byte, content string) string {
		return string([]byte{number<<3 | 2, byte(len(content))}) + content
	}
	message := field(1, domain) + field(2, field(1, field(1, key)+field(2, value)))
	body := string([]byte{0, 0, 0, 0, byte(len(message))}) + message
	request := must(http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+c.grpc+"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", strings.NewReader(body)))(t)
	request.Header.Set("Content-Type", "application/grpc")
	request.Header.Set("Te", "trailers")
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	response := must((&http.Client{Timeout: client.Timeout, Transport: transport}).Do(request))(t)
	answer, err := io.ReadAll(response.Body)
	if _ = response.Body.Close(); err != nil || len(answer) < 7 || answer[5] != 1<<3 {
		t.Fatalf("Envoy is answered %q, %v, %v, %v", answer, err, response.Header, response.Trailer)
	}
	return answer[6]
}

// A pod with each set of values starts, as its user, with its files, and its probes are answered.
func TestPods(t *testing.T) {
	port, open := redis(t, "--requirepass", "a-password-of-redis"), redis(t)
	secrets := map[string]string{"redis": "a-password-of-redis\n", "admin": "a-token-of-the-admin write somebody\n", "api": "a-token-of-the-api\n"}
	for name, values := range sets {
		t.Run(name, func(t *testing.T) {
			o, _ := rendered(t, values)
			to := map[string]string{"shared": open, "all": port}[name]
			c := ready(t, o, secrets, "redis://redis:6379", "redis://127.0.0.1:"+to)
			c.answers(t)
			if name == "all" {
				expect(t, c.admin+"/api/v1/rules", "", http.StatusUnauthorized, "")
				expect(t, c.admin+"/api/v1/rules", "a-token-of-the-admin", http.StatusOK, "")
				for i := range 4 {
					if code, want := shouldRateLimit(t, c, "web", "plan", "free"), []byte{1, 1, 1, 2}[i]; code != want {
						t.Errorf("Envoy's question %d is answered %d, want %d", i, code, want)
					}
				}
				c.healthy(t)
			}
		})
	}
}

// A pod that is replaced loses no request: it is told by SIGTERM, its readiness turns, and its clients, who learn of
// that a while later, were answered until then. Of all that were decided, no more and no fewer are admitted than the
// limit says.
func TestPodsAreReplaced(t *testing.T) {
	port := redis(t)
	o, _ := rendered(t, `
replicaCount: 2
config:
  store: {url: "redis://redis:6379", timeout: 10s}
  api: {open: true}
  drain: {delay: 1s, keep_alive: 1s}
  policies: {many: [{algorithm: fixed_window, limit: 2000, window: 365d}]}
`)
	start := func() *container {
		c := pod(t, o, nil, "redis://redis:6379", "redis://127.0.0.1:"+port)
		c.start(t)
		return c
	}
	old, grace := start(), time.Duration(*o.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second
	var endpoint atomic.Pointer[container] // whom the Service names
	endpoint.Store(old)
	var admitted, asked, lost atomic.Int64
	var callers sync.WaitGroup
	ended := make(chan struct{})
	for range 8 {
		callers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				asked.Add(1)
				status, body, err := get("http://"+endpoint.Load().service+"/api/v1/rate-limit/check?policy=many&key=ann", "")
				if err != nil || status != http.StatusOK && status != http.StatusTooManyRequests {
					lost.Add(1)
					t.Errorf("%d %s %v", status, body, err)
					return
				}
				if status == http.StatusOK {
					admitted.Add(1)
				}
			}
		})
	}
	for generation := range 3 {
		for asked.Load() < int64(700*(generation+1)) && lost.Load() == 0 {
			<-time.After(time.Millisecond)
		}
		fresh := start()
		readiness := o.deployment.Spec.Template.Spec.Containers[0].ReadinessProbe
		for probe(t, fresh, readiness) != http.StatusOK {
			<-time.After(10 * time.Millisecond)
		}
		replaced := endpoint.Load()
		told := time.AfterFunc(500*time.Millisecond, func() { endpoint.Store(fresh) }) // the Service learns of it later
		replaced.stop(t, grace)
		told.Stop()
	}
	for asked.Load() < 2500 && lost.Load() == 0 {
		<-time.After(time.Millisecond)
	}
	close(ended)
	callers.Wait()
	if got := admitted.Load(); got != 2000 {
		t.Errorf("of %d requests %d were admitted, want 2000", asked.Load(), got)
	}
}

// shown are the blocks of code of a page that begin with a pattern, in a language.
func shown(t *testing.T, page, pattern string) (blocks []string) {
	t.Helper()
	for _, block := range regexp.MustCompile("(?s)```("+pattern+".*?)```").FindAllStringSubmatch(read(t, page), -1) {
		_, text, _ := strings.Cut(block[1], "\n")
		blocks = append(blocks, text)
	}
	if blocks == nil {
		t.Fatalf("%s has no %s", page, pattern)
	}
	return blocks
}

// found is the block of docs/monitor.md that begins with a pattern.
func found(t *testing.T, pattern string) string {
	t.Helper()
	return shown(t, "../../docs/monitor.md", "(?:yaml|sh)\n"+pattern)[0]
}

// The values and the command of docs/monitor.md make what the Prometheus operator knows: a monitor of the pods, and the repository's rules
// and alerts. What others find annotated is the port and the path of the metrics.
func TestMonitorPage(t *testing.T) {
	o, _ := rendered(t, found(t, "# my-values.yaml, with the operator"))
	if endpoint := o.monitor.Spec.Endpoints[0]; endpoint.Interval != "15s" || o.monitor.Labels["release"] != "prometheus" {
		t.Errorf("the monitor is %+v", o.monitor)
	}
	o, _ = rendered(t, found(t, "# my-values.yaml, without the operator"))
	pod := o.deployment.Spec.Template
	port := pod.Spec.Containers[0].Ports[0].ContainerPort
	if a := pod.Annotations; a["prometheus.io/scrape"] != "true" || a["prometheus.io/port"] != strconv.Itoa(int(port)) || a["prometheus.io/path"] != "/metrics" {
		t.Errorf("the pods, of port %d, have %v", port, a)
	}

	command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "kubectl() { cat; }\n"+found(t, "for file in"))
	command.Dir = "../.."
	text := must(command.Output())(t)
	names := map[string]int{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}
		var rules monitoring.PrometheusRule
		if err := yaml.UnmarshalStrict([]byte(document), &rules); err != nil {
			t.Errorf("%v\n%s", err, document)
		}
		for _, group := range rules.Spec.Groups {
			names[rules.Kind+" "+rules.Name] += len(group.Rules)
		}
	}
	if names["PrometheusRule stint-rules"] != 14 || names["PrometheusRule stint-alerts"] != 14 {
		t.Errorf("there are %v", names)
	}
}
