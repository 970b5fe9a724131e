package main

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// debianRoot makes the least root in which dpkg installs a package: a shell, and what it needs.
func debianRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, folder := range []string{"bin", "etc", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		do(t, os.MkdirAll(filepath.Join(root, folder), 0o755))
	}
	for _, name := range []string{"var/lib/dpkg/status", "etc/hostname"} {
		write(t, filepath.Join(root, name), "", 0o644)
	}
	do(t, os.Chmod(root, 0o755))
	for _, program := range []string{"sh", "rm"} {
		at := must(exec.LookPath(program))(t)
		needs := regexp.MustCompile(`(?m)(/\S+) \(`).FindAllStringSubmatch(output(t, "ldd", at), -1)
		for _, file := range append(needs, []string{"", at}) {
			to := filepath.Join(root, file[1])
			if file[1] == at {
				to = filepath.Join(root, "bin", program)
			}
			do(t, os.MkdirAll(filepath.Dir(to), 0o755))
			output(t, "cp", "-L", file[1], to)
		}
	}
	return root
}

// files lists what is below a folder, without dpkg's own notes.
func files(t *testing.T, root string) (names []string) {
	t.Helper()
	do(t, filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if relative, _ := filepath.Rel(root, name); !strings.HasPrefix(relative, "var/") {
			names = append(names, relative)
		}
		return err
	}))
	return names
}

// unit reads the settings of a unit.
func unit(t *testing.T, root string) map[string][]string {
	t.Helper()
	text := read(t, filepath.Join(root, "usr/lib/systemd/system/stint.service"))
	settings := map[string][]string{}
	for _, line := range regexp.MustCompile(`(?m)^(\w+)=(.*)$`).FindAllStringSubmatch(text, -1) {
		settings[line[1]] = append(settings[line[1]], line[2])
	}
	return settings
}

// installed is the service as its unit starts it.
func installed(t *testing.T, root string) (c *container, grace time.Duration) {
	t.Helper()
	settings := unit(t, root)
	seconds := must(strconv.Atoi(settings["TimeoutStopSec"][0]))(t)
	return &container{root: root, args: strings.Fields(settings["ExecStart"][0]), user: 61184}, time.Duration(seconds) * time.Second
}

// repack makes the package of another version of the released program.
func repack(t *testing.T, version string) string {
	t.Helper()
	source, out := t.TempDir(), t.TempDir()
	output(t, "tar", "-xzf", file(".tar.gz"), "--strip-components=1", "-C", source)
	output(t, "../../scripts/image", filepath.Join(source, "stint"), filepath.Join(source, "linux_"+runtime.GOARCH))
	output(t, "../../scripts/share", filepath.Join(source, "stint"), source)
	b := build{version: version, deploy: "..", source: source, out: out, time: time.Unix(1_800_000_000, 0)}
	do(t, b.linuxPackage("deb", filepath.Join(source, "linux_"+runtime.GOARCH), runtime.GOARCH))
	return filepath.Join(out, "stint_"+version+"_linux_"+runtime.GOARCH+".deb")
}

// The Debian package is installed, answers, is upgraded with its configuration kept, removed with it kept, and purged
// without a trace.
func TestDebian(t *testing.T) {
	root := debianRoot(t)
	dpkg := func(args ...string) {
		t.Helper()
		output(t, "dpkg", append([]string{"--root=" + root, "--force-not-root", "--log=/dev/null"}, args...)...)
	}
	before := files(t, root)
	dpkg("--install", repack(t, "0.0.9"))
	c, grace := installed(t, root)
	c.start(t)
	c.answers(t)
	c.stop(t, grace)
	for name, mode := range map[string]fs.FileMode{"usr/bin/stint": 0o755, "etc/stint/stint.yaml": 0o644, "etc/stint/secrets": fs.ModeDir | 0o700} {
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v; want %v", name, info, err, mode)
		}
	}

	config := filepath.Join(root, "etc/stint/stint.yaml")
	changed := "rules: [{id: everything, scope: global, limits: [{algorithm: fixed_window, limit: 7, window: 1h}]}]\napi: {open: true}\n"
	write(t, config, changed, 0o644)
	dpkg("--install", file(".deb"))
	if text, err := os.ReadFile(config); err != nil || string(text) != changed {
		t.Errorf("after the upgrade the configuration is %q, %v", text, err)
	}
	c, grace = installed(t, root)
	c.start(t)
	expect(t, c.admin+"/api/v1/rules", "", http.StatusOK, `"everything"`)
	c.answers(t)
	c.stop(t, grace)

	dpkg("--remove", "stint")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/stint")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the program is there when it is removed: %v", err)
	}
	if _, err := os.Stat(config); err != nil {
		t.Errorf("a removal does not keep the configuration: %v", err)
	}
	dpkg("--purge", "stint")
	if after := files(t, root); !slices.Equal(before, after) {
		t.Errorf("a purge leaves\n%q, before the installation there was\n%q", after, before)
	}
}

// systemd has nothing to say about the installed unit, and little about what it may do.
func TestUnit(t *testing.T) {
	root := debianRoot(t)
	output(t, "dpkg-deb", "--extract", file(".deb"), root)
	do(t, os.MkdirAll(filepath.Join(root, "etc/systemd/system"), 0o755))
	// Targets that the unit names are the distribution's.
	output(t, "sh", "-c", "cp /usr/lib/systemd/system/*.target /usr/lib/systemd/system/*.mount /usr/lib/systemd/system/*.slice "+root+"/usr/lib/systemd/system/ 2>/dev/null || true")
	for _, page := range []string{"stint", "stint-serve"} {
		if _, err := os.Stat(filepath.Join(root, "usr/share/man/man1", page+".1.gz")); err != nil {
			t.Error(err)
		}
	}
	if said := output(t, "systemd-analyze", "verify", "--man=no", "--root="+root, "stint.service"); said != "" {
		t.Errorf("systemd-analyze verify says %s", said)
	}
	said := output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--root="+root, "stint.service")
	found := regexp.MustCompile(`Overall exposure level for stint.service: ([\d.]+)`).FindStringSubmatch(said)
	if found == nil {
		t.Fatal(said)
	}
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level >= 2.5 {
		t.Errorf("its exposure is %s, %v; want less than 2.5", found[1], err)
	}
}

// The RPM has what the Debian package has, where RPM's distributions look for it, with scripts that know its numbers.
func TestRPM(t *testing.T) {
	ask := func(format string) string { return output(t, "rpm", "-qp", "--queryformat", format, file(".rpm")) }
	architecture := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	if said, want := ask("%{NAME} %{VERSION} %{LICENSE} %{ARCH} %{URL}"), "stint "+version+" Apache-2.0 "+architecture+" https://github.com/stint-go/stint"; said != want {
		t.Errorf("its header says %q, want %q", said, want)
	}
	files := ask("[%{FILENAMES} %{FILEMODES:perms} %{FILEFLAGS:fflags} %{FILEUSERNAME}\n]")
	for _, want := range []string{
		"/usr/bin/stint -rwxr-xr-x  root\n", "/etc/stint/stint.yaml -rw-r--r-- cn root\n", "/etc/stint/secrets drwx------  root\n",
		"/usr/lib/systemd/system/stint.service -rw-r--r--  root\n", "/usr/share/man/man1/stint-serve.1.gz -rw-r--r--  root\n",
		"/usr/share/zsh/site-functions/_stint -rw-r--r--  root\n",
	} {
		if !strings.Contains(files, want) {
			t.Errorf("it lacks %q:\n%s", want, files)
		}
	}
	scripts := map[string]string{"postinstall.sh": "%{POSTIN}", "preremove.sh": "%{PREUN}", "postremove.sh": "%{POSTUN}"}
	for name, tag := range scripts {
		text := read(t, filepath.Join("../packages", name))
		if said := ask(tag); strings.TrimSpace(said) != strings.TrimSpace(text) {
			t.Errorf("%s is\n%s\nwant\n%s", tag, said, text)
		}
	}
}

// The scripts do for Debian's words and for RPM's numbers what is right, told by a systemctl that writes down what it
// is asked. Services are started where the distribution enables them.
func TestScripts(t *testing.T) {
	bin := t.TempDir()
	calls := filepath.Join(bin, "calls")
	write(t, filepath.Join(bin, "systemctl"), "#!/bin/sh\necho \"$@\" >>"+calls+"\n", 0o755)
	for _, test := range []struct{ script, args, want string }{
		{"postinstall.sh", "configure", "preset daemon-reload is-enabled start"},
		{"postinstall.sh", "configure 0.0.9", "daemon-reload try-restart"},
		{"postinstall.sh", "abort-upgrade 0.0.9", ""},
		{"postinstall.sh", "1", "preset daemon-reload is-enabled start"},
		{"postinstall.sh", "2", "daemon-reload try-restart"},
		{"preremove.sh", "remove", "stop disable"},
		{"preremove.sh", "upgrade 0.1.0", ""},
		{"preremove.sh", "0", "stop disable"},
		{"preremove.sh", "1", ""},
		{"postremove.sh", "remove", "daemon-reload"},
		{"postremove.sh", "1", "daemon-reload"},
	} {
		// As where systemd runs.
		script := strings.ReplaceAll(read(t, filepath.Join("../packages", test.script)), "/run/systemd/system", bin)
		_ = os.Remove(calls)
		command := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, test.script}, strings.Fields(test.args)...)...)
		command.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v %s", test.script, test.args, err, said)
		}
		said, _ := os.ReadFile(calls)
		var verbs []string
		for line := range strings.Lines(strings.ReplaceAll(string(said), "--quiet ", "")) {
			verbs = append(verbs, strings.Fields(line)[0])
		}
		if strings.Join(verbs, " ") != test.want {
			t.Errorf("%s %s asks systemctl for %q, want %q", test.script, test.args, verbs, test.want)
		}
	}
}
