package main

import (
	"archive/tar"
	"errors"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// unpack unpacks the released image into a root of its own.
func unpack(t *testing.T) (root string, config *v1.ConfigFile, headers map[string]*tar.Header) {
	t.Helper()
	image := must(tarball.ImageFromPath(file(".image.tar"), nil))(t)
	config = must(image.ConfigFile())(t)
	files := mutate.Extract(image)
	defer func() { _ = files.Close() }()
	root, headers = t.TempDir(), map[string]*tar.Header{}
	do(t, os.Chmod(root, 0o755)) // as an engine has it
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return root, config, headers
		}
		do(t, err)
		headers[strings.TrimSuffix(header.Name, "/")] = header
		at := filepath.Join(root, header.Name)
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(at, header.FileInfo().Mode())
		case tar.TypeSymlink:
			err = os.Symlink(header.Linkname, at)
		case tar.TypeReg:
			var text []byte
			if text, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(at, text, header.FileInfo().Mode())
			}
		default:
			t.Errorf("%s is of type %q", header.Name, header.Typeflag)
		}
		do(t, err)
	}
}

// The image is what the Dockerfile says, instruction by instruction, read here by the eye of an expression.
func TestImageFollowsTheDockerfile(t *testing.T) {
	text := read(t, "../Dockerfile")
	_, config, _ := unpack(t)
	labels := config.Config.Labels
	said := map[string]string{}
	for _, line := range regexp.MustCompile(`(?m)^([A-Z]+) (.*)$`).FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		said[line[1]] = line[2]
	}
	quote := func(words []string) string { return `["` + strings.Join(words, `", "`) + `"]` }
	made := map[string]string{
		"FROM": "scratch", "COPY": "root/ /", "USER": config.Config.User, "ENTRYPOINT": quote(config.Config.Entrypoint), "CMD": quote(config.Config.Cmd),
		"EXPOSE": strings.ReplaceAll(strings.Join(slices.Sorted(maps.Keys(config.Config.ExposedPorts)), " "), "/tcp", ""),
		"LABEL":  said["LABEL"],
	}
	if !maps.Equal(said, made) {
		t.Errorf("the Dockerfile says\n%q, the image is\n%q", said, made)
	}
	for _, label := range regexp.MustCompile(`(\S+)="([^"]*)"`).FindAllStringSubmatch(said["LABEL"], -1) {
		if labels[label[1]] != label[2] {
			t.Errorf("label %s is %q, want %q", label[1], labels[label[1]], label[2])
		}
	}
	if labels["org.opencontainers.image.version"] != version || config.OS != "linux" || config.Architecture != runtime.GOARCH {
		t.Errorf("the image is %s for %s/%s", labels["org.opencontainers.image.version"], config.OS, config.Architecture)
	}
	for _, other := range []string{"FROM debian\n", "FROM scratch\nRUN true\n", "FROM scratch\nCOPY --chown=1 root/ /\n", "FROM scratch\nADD a /\n"} {
		if _, err := (build{}).follow(strings.NewReader(other), t.TempDir(), "amd64"); err == nil {
			t.Errorf("%q is followed, and nobody knows how", other)
		}
	}
}

// The image's root has what it should, nothing that its user can write, and runs under chroot.
func TestImageRuns(t *testing.T) {
	root, config, headers := unpack(t)
	if info, err := os.Stat(file(".image.tar")); err != nil || info.Size() > 30<<20 {
		t.Errorf("the image: %v, %v", info, err)
	}
	if link := headers["bin/ratelimit"]; link == nil || link.Linkname != "stint" {
		t.Errorf("bin/ratelimit is %+v", link)
	}
	want := []string{"bin", "bin/ratelimit", "bin/stint", "etc", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt"}
	if names := slices.Sorted(maps.Keys(headers)); !slices.Equal(names, want) {
		t.Errorf("it has %v", names)
	}
	for name, header := range headers {
		if header.Uid != 0 || header.Gid != 0 || header.Typeflag != tar.TypeSymlink && header.Mode&0o022 != 0 {
			t.Errorf("%s is of %d:%d, %o", name, header.Uid, header.Gid, header.Mode)
		}
	}
	c := container{root: root, args: slices.Concat(config.Config.Entrypoint, config.Config.Cmd), user: 65532}
	c.start(t)
	c.answers(t)
	c.stop(t, patience)
}

// A registry that was given the images of a release hands out the one of a machine's architecture.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/stint"
	do(t, run([]string{"push", "v" + version, released, to}))
	reference := must(name.ParseReference(to + ":" + version))(t)
	image := must(remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH})))(t)
	got := must(image.ConfigName())(t)
	local := must(tarball.ImageFromPath(file(".image.tar"), nil))(t)
	if want, err := local.ConfigName(); err != nil || got != want {
		t.Errorf("the registry has %v, want %v, %v", got, want, err)
	}
	if err := run([]string{"push", "v9.9.9", released, to}); err == nil {
		t.Error("a release without images is published")
	}
}
