package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// project is the compose file, as Docker reads it.
func project(t *testing.T) *types.Project {
	t.Helper()
	options := must(cli.NewProjectOptions([]string{"../compose/compose.yaml"}, cli.WithResolvedPaths(true)))(t)
	project := must(options.LoadProject(context.Background()))(t)
	return project
}

// mounted is the file of this repository that a service of the project has at a path.
func mounted(t *testing.T, project *types.Project, service, path string) string {
	t.Helper()
	for _, volume := range project.Services[service].Volumes {
		if volume.Type != types.VolumeTypeBind {
			continue
		}
		if rest, found := strings.CutPrefix(path, volume.Target); found {
			return volume.Source + rest
		}
	}
	t.Fatalf("%s has no %s", service, path)
	return ""
}

// What the compose file mounts is there, its ports are open to this machine only, and its programs take their
// configurations: stint, Redis, nginx and Prometheus run with them here, under other addresses, and nginx limits who asks
// the application.
func TestCompose(t *testing.T) {
	project := project(t)
	for name, service := range project.Services {
		for _, volume := range service.Volumes {
			if volume.Type == types.VolumeTypeBind && filepath.Base(volume.Source) != "admin-tokens" { // the user makes it
				if _, err := os.Stat(volume.Source); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		for _, port := range service.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s opens port %s at %q", name, port.Published, port.HostIP)
			}
		}
		for dependency := range service.DependsOn {
			if _, err := project.GetService(dependency); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}

	redis, application, front := freePort(t), freePort(t), freePort(t)
	background(t, redis, "redis-server", mounted(t, project, "redis", "/etc/redis/redis.conf"),
		"--bind", "127.0.0.1", "--port", redis, "--dir", t.TempDir())

	// stint, in the image, with the files that are mounted.
	root, config, _ := unpack(t)
	service := project.Services["stint"]
	nginx := project.Services["nginx"].Networks["default"].Ipv4Address
	replace := strings.NewReplacer("redis:6379", "127.0.0.1:"+redis, nginx+"/32", "127.0.0.1/32")
	for _, path := range []string{"/etc/stint/stint.yaml", "/etc/stint/rules/rules.yaml", "/etc/stint/admin-tokens"} {
		text := "a-token-of-an-operator\n"
		if !strings.HasSuffix(path, "tokens") {
			text = read(t, mounted(t, project, "stint", path))
		}
		write(t, filepath.Join(root, path), replace.Replace(text), 0o444)
	}
	c := &container{root: root, args: slices.Concat(config.Config.Entrypoint, service.Command), user: 65532}
	c.start(t)
	expect(t, c.admin+"/api/v1/rules", "a-token-of-an-operator", http.StatusOK, "")

	// An application, and nginx in front of it.
	background(t, application, "python3", "-m", "http.server", "--bind", "127.0.0.1", "--directory", t.TempDir(), application)
	prefix := t.TempDir()
	do(t, os.Chmod(prefix, 0o755))
	replace = strings.NewReplacer("application:80", "127.0.0.1:"+application, "stint:8080", c.service, "listen 8088", "listen 127.0.0.1:"+front)
	for _, name := range []string{"nginx.conf", "listen.conf", "upstreams.conf"} {
		write(t, filepath.Join(prefix, name), replace.Replace(read(t, mounted(t, project, "nginx", "/etc/nginx/"+name))), 0o644)
	}
	t.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin")
	background(t, front, "nginx", "-e", "stderr", "-p", prefix, "-c", "nginx.conf", "-g", "daemon off;")
	var statuses []int
	for range 7 {
		response := must(client.Post("http://127.0.0.1:"+front+"/login", "", http.NoBody))(t) //nolint:noctx // of a test
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		statuses = append(statuses, response.StatusCode)
	}
	// http.server knows no POST, and says so to the five that are admitted.
	if want := []int{501, 501, 501, 501, 501, 429, 429}; !slices.Equal(statuses, want) {
		t.Errorf("seven logins are answered %v, want %v", statuses, want)
	}

	// Prometheus takes its configuration, with the rules and the alerts.
	monitored := t.TempDir()
	for _, name := range []string{"prometheus.yml", "rules.yaml", "alerts.yaml", "slo.yaml"} {
		text := read(t, mounted(t, project, "prometheus", "/etc/prometheus/"+name))
		write(t, filepath.Join(monitored, name), strings.ReplaceAll(text, "/etc/prometheus/", monitored+"/"), 0o644)
	}
	output(t, "promtool", "check", "config", filepath.Join(monitored, "prometheus.yml"))
}
