package main

import (
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
)

const kubernetesPage = "../../docs/kubernetes.md"

// The values of docs/kubernetes.md make what the page says, and a pod of theirs starts and is ready.
func TestKubernetesDocs(t *testing.T) {
	values := shown(t, kubernetesPage, "yaml\n")[0]
	o, kinds := rendered(t, values)
	const want = "ConfigMap Deployment HorizontalPodAutoscaler PodDisruptionBudget Service ServiceAccount ServiceMonitor"
	if got := strings.Join(kinds, " "); got != want {
		t.Errorf("the values make %s, want %s", got, want)
	}
	spec := o.deployment.Spec.Template.Spec
	from := spec.Containers[0]
	if p := from.LivenessProbe; p.PeriodSeconds != 10 || p.HTTPGet.Path != "/actuator/health/liveness" {
		t.Errorf("liveness is %+v", p)
	}
	if p := from.ReadinessProbe; p.PeriodSeconds != 5 || p.FailureThreshold != 2 || p.HTTPGet.Path != "/actuator/health/readiness" {
		t.Errorf("readiness is %+v", p)
	}
	if *spec.TerminationGracePeriodSeconds != 45 || from.Resources.Requests.Cpu().MilliValue() != 500 {
		t.Errorf("the pod is %+v", spec)
	}
	if m := o.scaler.Spec; *m.MinReplicas != 3 || m.MaxReplicas != 10 || m.Metrics[0].Resource.Name != core.ResourceCPU || *m.Metrics[0].Resource.Target.AverageUtilization != 70 {
		t.Errorf("the scaler is %+v", m)
	}
	if u := o.deployment.Spec.Strategy.RollingUpdate; u.MaxSurge.IntValue() != 1 || u.MaxUnavailable.IntValue() != 0 || o.budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("a rollout is %+v", u)
	}

	// Other rules make no new pods, another configuration does.
	template := func(changed string) core.PodTemplateSpec {
		o, _ := rendered(t, changed)
		return o.deployment.Spec.Template
	}
	if !reflect.DeepEqual(template(strings.Replace(values, "limit: 10,", "limit: 20,", 1)), o.deployment.Spec.Template) {
		t.Error("other rules make new pods")
	}
	if reflect.DeepEqual(template(strings.Replace(values, "on_store_failure: open", "on_store_failure: local", 1)), o.deployment.Spec.Template) {
		t.Error("another configuration makes no new pods")
	}

	port := redis(t, "--requirepass", "a-password-of-redis")
	secrets := map[string]string{"redis": "a-password-of-redis\n", "api": "a-token-of-the-api\n"}
	c := ready(t, o, secrets, "redis://redis:6379", "redis://127.0.0.1:"+port)
	expect(t, c.admin+"/api/v1/rules", "", http.StatusOK, `"id":"login"`)
	c.healthy(t)
	// A key is named without a token.
	expect(t, c.service+"/api/v1/rate-limit/check?key=ann", "", http.StatusUnauthorized, "")
}

// With what the page shows beside these values there is a network policy for the pods, and there are ports for Envoy and for clients of Redis.
func TestKubernetesDocsBeside(t *testing.T) {
	documents := shown(t, kubernetesPage, "yaml\n")
	if len(documents) != 3 {
		t.Fatalf("the page has %d documents", len(documents))
	}
	o, kinds := rendered(t, strings.Join(documents, "\n"))
	if !slices.Contains(kinds, "NetworkPolicy") {
		t.Fatalf("there are %v", kinds)
	}
	for name, value := range o.network.Spec.PodSelector.MatchLabels {
		if got := o.deployment.Spec.Template.Labels[name]; got != value {
			t.Errorf("it selects %s=%s, the pods have %q", name, value, got)
		}
	}
	if n := o.network.Spec; len(n.Ingress) != 1 || len(n.Ingress[0].From) != 2 || len(n.Ingress[0].Ports) != 3 || len(n.Egress) != 2 {
		t.Errorf("the network policy is %+v", n)
	}
	ports := map[string]int32{}
	for _, port := range o.service.Spec.Ports {
		ports[port.Name] = port.Port
	}
	if want := map[string]int32{"http": 8080, "grpc": 8081, "resp": 6390}; !maps.Equal(ports, want) {
		t.Errorf("the ports are %v, want %v", ports, want)
	}

	// Other domains make no new pods, more of them do, since each is a file.
	changed, _ := rendered(t, strings.Replace(strings.Join(documents, "\n"), "requests_per_unit: 60", "requests_per_unit: 90", 1))
	if !reflect.DeepEqual(changed.deployment.Spec.Template, o.deployment.Spec.Template) || maps.Equal(changed.config.Data, o.config.Data) {
		t.Error("other domains make new pods, or are not those of the pods")
	}
}
