// Package release tests a released version as users get it: all modules, as a module proxy would serve them.
package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
)

const root = "../.."

// stint is the path of the root's module.
const stint = "github.com/stint-go/stint"

// version is that of the release that is tested: another than the repository has, so that it has to be put everywhere.
const version = "v0.1.1-test.1"

// modules are the folders of all modules, and of those that users get, by go.work: the latter are replaced there.
func modules(t *testing.T) (all, released []string) {
	t.Helper()
	name := filepath.Join(root, "go.work")
	text := must.Get(os.ReadFile(name))(t)
	work := must.Get(modfile.ParseWork(name, text, nil))(t)
	for _, use := range work.Use {
		all = append(all, strings.TrimPrefix(use.Path, "./"))
	}
	for _, replace := range work.Replace {
		released = append(released, strings.TrimPrefix(replace.New.Path, "./"))
	}
	return all, append(released, "service")
}

// read reads the go.mod of a folder.
func read(t *testing.T, folder string) *modfile.File {
	t.Helper()
	name := filepath.Join(folder, "go.mod")
	text := must.Get(os.ReadFile(name))(t)
	return must.Get(modfile.Parse(name, text, nil))(t)
}

// repository makes a repository of what is here, committed or not, and has it tagged as a release.
func repository(t *testing.T, version string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	output, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	names := strings.Split(strings.TrimSuffix(string(output), "\x00"), "\x00")
	dist := filepath.Join(root, dashboard)
	must.Do(t, filepath.WalkDir(dist, func(name string, entry fs.DirEntry, err error) error { // as make web has built it
		if err == nil && !entry.IsDir() {
			relative, _ := filepath.Rel(root, name)
			names = append(names, relative)
		}
		return err
	}))
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) { // deleted, and not yet committed
			continue
		}
		info, statErr := os.Stat(filepath.Join(root, name))
		if name == "CHANGELOG.md" {
			text = bytes.Replace(text, []byte("## [Unreleased]"), []byte("## ["+version[1:]+"]"), 1)
		}
		to := filepath.Join(folder, name)
		must.Do(t, errors.Join(err, statErr, os.MkdirAll(filepath.Dir(to), 0o750)))
		// The times too, by which make knows that the dashboard is built.
		must.Do(t, errors.Join(os.WriteFile(to, text, info.Mode()), os.Chtimes(to, info.ModTime(), info.ModTime())))
	}
	for _, args := range [][]string{
		{"git", "init", "-q"},
		{"git", "config", "user.name", "somebody"},
		{"git", "config", "user.email", "somebody@example.com"},
		{"git", "config", "advice.detachedHead", "false"},
		{"git", "add", "."},
		{"git", "commit", "-q", "-m", "all of it"},
		{"scripts/tag", version},
	} {
		carryOut(t, folder, os.Environ(), args...)
	}
	return folder
}

// carryOut carries out a command in a folder.
func carryOut(t *testing.T, folder string, environment []string, args ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), args[0], args[1:]...)
	command.Dir, command.Env = folder, environment
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, text)
	}
}

// dashboard is where the built dashboard is embedded from.
const dashboard = "service/internal/server/dashboard/dist"

// publish puts a module of a tagged repository into a folder that serves as a proxy, as the go command makes it of a tag.
func publish(t *testing.T, proxy, repository, folder, version string) {
	t.Helper()
	file := read(t, filepath.Join(repository, folder))
	versions := filepath.Join(proxy, filepath.FromSlash(file.Module.Mod.Path), "@v")
	must.Do(t, os.MkdirAll(versions, 0o750))
	var archive bytes.Buffer
	of := module.Version{Path: file.Module.Mod.Path, Version: version}
	must.Do(t, modzip.CreateFromVCS(&archive, of, repository, path.Join(folder, version), folder))
	info := must.Get(json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"}))(t)
	for suffix, text := range map[string][]byte{".zip": archive.Bytes(), ".info": info, ".mod": modfile.Format(file.Syntax)} {
		must.Do(t, os.WriteFile(filepath.Join(versions, version+suffix), text, 0o600))
	}
	must.Do(t, os.WriteFile(filepath.Join(versions, "list"), []byte(version+"\n"), 0o600))
}

// published publishes the modules of a release, and returns an environment in which the go command gets them from there,
// and all else from the user's module cache or the registry.
func published(t *testing.T, folders []string, version string) (repo string, environment []string) {
	t.Helper()
	repo = repository(t, version)
	for _, folder := range folders {
		for _, required := range read(t, filepath.Join(repo, folder)).Require {
			if strings.HasPrefix(required.Mod.Path+"/", stint+"/") && required.Mod.Version != version {
				t.Errorf("%s requires %s, want %s", folder, required.Mod, version)
			}
		}
	}
	proxy := t.TempDir()
	for _, folder := range folders {
		publish(t, proxy, repo, folder, version)
	}
	setting := func(name string) string {
		value := must.Get(exec.CommandContext(t.Context(), "go", "env", name).Output())(t)
		return strings.TrimSpace(string(value))
	}
	cache := t.TempDir()
	borrow(t, setting("GOMODCACHE"), cache, path.Dir(stint), "cache/download/"+path.Dir(stint))
	return repo, append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+cache, "GONOSUMDB="+stint+","+stint+"/*",
		"GOPROXY=file://"+proxy+","+setting("GOPROXY"))
}

// borrow makes a folder of links to the entries of another one, without the paths given. So the module cache of the
// user serves all modules and keeps those that it lacked, and never sees the ones of the test.
func borrow(t *testing.T, from, to string, without ...string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == from {
			return err
		}
		relative, target := strings.TrimPrefix(name, from+"/"), filepath.Join(to, strings.TrimPrefix(name, from))
		if slices.Contains(without, relative) {
			return fs.SkipDir
		}
		if slices.ContainsFunc(without, func(w string) bool { return strings.HasPrefix(w, relative+"/") }) {
			return os.Mkdir(target, 0o750)
		}
		if err := os.Symlink(name, target); err != nil || !entry.IsDir() { //nolint:gosec // the user's own module cache
			return err
		}
		return fs.SkipDir
	}))
}

// run runs the go command in a folder.
func run(t *testing.T, environment []string, folder string, args ...string) (output string, err error) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Dir, command.Env = folder, environment
	text, err := command.CombinedOutput()
	return string(text), err
}

func TestRelease(t *testing.T) {
	all, released := modules(t)
	repo, environment := published(t, released, version)
	t.Run("each resolves", func(t *testing.T) { testEachResolves(t, repo, released, environment) })
	t.Run("a program gets what it imports", func(t *testing.T) { testGraphs(t, environment) })
	t.Run("all are tidy", func(t *testing.T) { testModulesAreTidy(t, repo, all, environment) })
	t.Run("the program is installed", func(t *testing.T) { testInstalled(t, environment) })
	t.Run("the archives", func(t *testing.T) { testArchives(t, repo) })
}

// program makes a program that imports packages by the version of their modules.
func program(t *testing.T, environment, modules []string, packages ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	source := "package main\n\nimport (\n\t_ \"" + strings.Join(packages, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n"
	must.Do(t, os.WriteFile(filepath.Join(folder, "main.go"), []byte(source), 0o600))
	get := []string{"get"}
	for _, module := range modules {
		get = append(get, module+"@"+version)
	}
	for _, args := range [][]string{{"mod", "init", "example.com/program"}, get} {
		carryOut(t, folder, environment, append([]string{"go"}, args...)...)
	}
	return folder
}

// A program gets each module by its version, and every package that it needs. The service is installed by its version:
// go install refuses a go.mod that replaces a module.
func testEachResolves(t *testing.T, repo string, released, environment []string) {
	t.Helper()
	for _, folder := range released {
		if file := read(t, filepath.Join(repo, folder)); len(file.Replace)+len(file.Exclude) > 0 {
			t.Errorf("%s replaces or excludes a module", folder)
		}
		module := path.Join(stint, folder)
		if folder == "service" || strings.HasPrefix(folder, "internal/") { // which no program imports
			what := module
			if folder == "service" {
				what += "/cmd/stint"
			}
			at := program(t, environment, []string{what, stint}, stint+"/memstore")
			if output, err := run(t, environment, at, "list", "-deps", what); err != nil {
				t.Errorf("%s: %v\n%s", module, err, output)
			}
			continue
		}
		at := program(t, environment, []string{module, stint}, module, stint+"/memstore")
		if output, err := run(t, environment, at, "list", "-deps", "."); err != nil {
			t.Errorf("%s: %v\n%s", module, err, output)
		}
	}
}

// A program has in its graph what it imports, and no more.
func testGraphs(t *testing.T, environment []string) {
	t.Helper()
	list := func(modules []string, packages ...string) []string {
		t.Helper()
		at := program(t, environment, modules, packages...)
		output, err := run(t, environment, at, "list", "-m", "all")
		if err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
		return strings.Fields(output)
	}
	alone := list([]string{stint}, stint, stint+"/memstore", stint+"/httplimit")
	if names := slices.DeleteFunc(alone, func(field string) bool { return !strings.Contains(field, ".") || field[0] == 'v' }); len(names)-1 > 5 {
		t.Errorf("a program that imports the library has %d modules in its graph, want 5 at most: %v", len(names)-1, names[1:])
	}
	for _, field := range list([]string{stint, stint + "/redisstore/goredis"}, stint, stint+"/redisstore/goredis") {
		for _, foreign := range []string{"google.golang.org/grpc", "go.mongodb.org/", "go.opentelemetry.io/"} {
			if strings.HasPrefix(field, foreign) {
				t.Errorf("a program with a client of go-redis has %s in its graph", field)
			}
		}
	}
}

// All modules are tidy, apart from the checksums of the version, which are known once it is released.
func testModulesAreTidy(t *testing.T, repo string, all, environment []string) {
	t.Helper()
	for _, folder := range all {
		output, _ := run(t, environment, filepath.Join(repo, folder), "mod", "tidy", "-diff")
		for line := range strings.Lines(output) {
			changed := strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-")
			heading := strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---")
			if changed && !heading && !strings.HasPrefix(line, "+"+stint) {
				t.Errorf("%s: go mod tidy would change %s", folder, line)
			}
		}
		if strings.Contains(output, "go: ") && !strings.Contains(output, "diff ") {
			t.Errorf("%s: %s", folder, output)
		}
	}
}

// The program that go install makes of the release has the dashboard, answers a check, says its version, and ends on
// SIGTERM.
func testInstalled(t *testing.T, environment []string) {
	t.Helper()
	bin := t.TempDir()
	carryOut(t, t.TempDir(), append(environment, "GOBIN="+bin, "CGO_ENABLED=0"), "go", "install", "-trimpath", stint+"/service/cmd/stint@"+version)
	said, err := exec.CommandContext(t.Context(), filepath.Join(bin, "stint"), "version").Output()
	if err != nil || !strings.HasPrefix(string(said), "stint version "+version+"\n") {
		t.Errorf("it says %q, %v", said, err)
	}
	answers(t, filepath.Join(bin, "stint"))
}

// answers starts a program as a service, and asks it for a check and for the dashboard.
func answers(t *testing.T, file string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), file, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	p, at := testprogram.Start(t, command, testprogram.Listeners("http", "admin")...)
	for url, want := range map[string]string{
		"http://" + at[0] + "/api/v1/rate-limit/check?key=ann": `"allowed":true`,
		"http://" + at[1] + "/":                                `<script type="module"`,
	} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody))(t)
		response := must.Get(http.DefaultClient.Do(request))(t)
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s answers %s, %v; want %s", url, text, err, want)
		}
	}
	if err := p.Stop(); err != nil || !strings.Contains(p.Log(), "msg=stopped") {
		t.Errorf("it ends with %v", err)
	}
}

// What make release builds: an archive, here of this platform alone, whose program answers, the checksums, and a bill
// of materials that names the modules and the packages of which it is made.
func testArchives(t *testing.T, repo string) {
	t.Helper()
	out, name := t.TempDir(), "stint_"+version[1:]+"_"+runtime.GOOS+"_"+runtime.GOARCH
	for _, args := range [][]string{
		{"scripts/release", out},
		{"sh", "-c", "cd " + out + " && sha256sum -c checksums.txt && tar -xzf " + name + ".tar.gz"},
	} {
		carryOut(t, repo, append(os.Environ(), "PLATFORMS="+runtime.GOOS+"/"+runtime.GOARCH), args...)
	}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if _, err := os.Stat(filepath.Join(out, name, file)); err != nil {
			t.Error(err)
		}
	}
	text := must.Get(os.ReadFile(filepath.Join(out, "stint_"+version[1:]+".cdx.json")))(t)
	var bill struct {
		BOMFormat  string
		Components []struct{ Purl string }
	}
	if err := json.Unmarshal(text, &bill); err != nil || bill.BOMFormat != "CycloneDX" {
		t.Fatalf("%v: %s", err, text)
	}
	for _, want := range []string{"pkg:golang/github.com/redis/rueidis@v", "pkg:golang/go.mongodb.org/mongo-driver/v2@v", "pkg:npm/preact@", "pkg:npm/%40fontsource/ibm-plex-sans@"} {
		if !slices.ContainsFunc(bill.Components, func(c struct{ Purl string }) bool { return strings.HasPrefix(c.Purl, want) }) {
			t.Errorf("the bill does not name %s", want)
		}
	}
	for _, c := range bill.Components {
		if strings.Contains(c.Purl, "stint-go") || strings.HasSuffix(c.Purl, "@") || strings.Contains(c.Purl, "vite@") {
			t.Errorf("the bill names %s", c.Purl)
		}
	}
	answers(t, filepath.Join(out, name, "stint"))
}
