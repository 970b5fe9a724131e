// Package release tests a released version as users get it: all modules, as a module proxy would serve them.
package release

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

const root = "../.."

// stint is the path of the root's module.
const stint = "github.com/stint-go/stint"

// modules are the folders of all modules, and of those that users get, by go.work: the latter are replaced there.
func modules(t *testing.T) (all, released []string) {
	t.Helper()
	name := filepath.Join(root, "go.work")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	work, err := modfile.ParseWork(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, use := range work.Use {
		all = append(all, strings.TrimPrefix(use.Path, "./"))
	}
	for _, replace := range work.Replace {
		released = append(released, strings.TrimPrefix(replace.New.Path, "./"))
	}
	return all, append(released, "service")
}

// read reads a module's file.
func read(t *testing.T, folder string) *modfile.File {
	t.Helper()
	name := filepath.Join(root, folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	file, err := modfile.Parse(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// source is a file of a module.
type source struct{ folder, name string }

func (s source) Path() string                 { return s.name }
func (s source) Lstat() (fs.FileInfo, error)  { return os.Lstat(filepath.Join(s.folder, s.name)) }
func (s source) Open() (io.ReadCloser, error) { return os.Open(filepath.Join(s.folder, s.name)) }

// files lists what a repository has of a folder. A module proxy sees nothing else: no binaries in bin, and no
// packages of npm, which take minutes to compress.
func files(t *testing.T, folder string) (files []modzip.File) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "git", "-C", folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files in %s: %v", folder, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		file := source{folder, name}
		if _, err := file.Lstat(); !errors.Is(err, fs.ErrNotExist) { // deleted, and not yet committed
			files = append(files, file)
		}
	}
	return files
}

// publish puts a module into a folder that serves as a proxy, as the version.
func publish(t *testing.T, proxy, folder, version string) {
	t.Helper()
	file := read(t, folder)
	versions := filepath.Join(proxy, filepath.FromSlash(file.Module.Mod.Path), "@v")
	if err := os.MkdirAll(versions, 0o750); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	of := module.Version{Path: file.Module.Mod.Path, Version: version}
	if err := modzip.Create(&archive, of, files(t, filepath.Join(root, folder))); err != nil {
		t.Fatal(err)
	}
	info, err := json.Marshal(map[string]string{"Version": version, "Time": "2026-01-01T00:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	for suffix, text := range map[string][]byte{".zip": archive.Bytes(), ".info": info, ".mod": modfile.Format(file.Syntax)} {
		if err := os.WriteFile(filepath.Join(versions, version+suffix), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(versions, "list"), []byte(version+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// published publishes the modules and returns the version, which they require of each other, and an environment in
// which the go command gets them from there, and all else from the user's module cache or the registry.
func published(t *testing.T, folders []string) (version string, environment []string) {
	t.Helper()
	for _, folder := range folders {
		for _, required := range read(t, folder).Require {
			if !strings.HasPrefix(required.Mod.Path+"/", stint+"/") {
				continue
			}
			if version == "" {
				version = required.Mod.Version
			}
			if required.Mod.Version != version {
				t.Errorf("%s requires %s, another module %s", folder, required.Mod, version)
			}
		}
	}
	proxy := t.TempDir()
	for _, folder := range folders {
		publish(t, proxy, folder, version)
	}
	setting := func(name string) string {
		value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(value))
	}
	cache := t.TempDir()
	borrow(t, setting("GOMODCACHE"), cache, path.Dir(stint), "cache/download/"+path.Dir(stint))
	return version, append(os.Environ(),
		"GOWORK=off", "GOFLAGS=-modcacherw", "GOMODCACHE="+cache, "GONOSUMDB="+stint+","+stint+"/*",
		"GOPROXY=file://"+proxy+","+setting("GOPROXY"))
}

// borrow makes a folder of links to the entries of another one, without the paths given. So the module cache of the
// user serves all modules and keeps those that it lacked, and never sees the ones of the test.
func borrow(t *testing.T, from, to string, without ...string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, entry fs.DirEntry, err error) error {
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
	})
	if err != nil {
		t.Fatal(err)
	}
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
	version, environment := published(t, released)
	t.Run("each resolves", func(t *testing.T) { testEachResolves(t, released, version, environment) })
	t.Run("a program gets what it imports", func(t *testing.T) { testGraphs(t, version, environment) })
	t.Run("all are tidy", func(t *testing.T) { testModulesAreTidy(t, all, environment) })
}

// program makes a program that imports packages by the version of their modules.
func program(t *testing.T, environment []string, version string, modules []string, packages ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	source := "package main\n\nimport (\n\t_ \"" + strings.Join(packages, "\"\n\t_ \"") + "\"\n)\n\nfunc main() {}\n"
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	get := []string{"get"}
	for _, module := range modules {
		get = append(get, module+"@"+version)
	}
	for _, args := range [][]string{{"mod", "init", "example.com/program"}, get} {
		if output, err := run(t, environment, folder, args...); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	return folder
}

// A program gets each module by its version, and every package that it needs. The service is installed by its version:
// go install refuses a go.mod that replaces a module.
func testEachResolves(t *testing.T, released []string, version string, environment []string) {
	t.Helper()
	for _, folder := range released {
		if file := read(t, folder); len(file.Replace)+len(file.Exclude) > 0 {
			t.Errorf("%s replaces or excludes a module", folder)
		}
		module := path.Join(stint, folder)
		if folder == "service" {
			at := program(t, environment, version, []string{module + "/cmd/stint", stint}, stint+"/memstore")
			if output, err := run(t, environment, at, "list", "-deps", module+"/cmd/stint"); err != nil {
				t.Errorf("%s: %v\n%s", module, err, output)
			}
			continue
		}
		at := program(t, environment, version, []string{module, stint}, module, stint+"/memstore")
		if output, err := run(t, environment, at, "list", "-deps", "."); err != nil {
			t.Errorf("%s: %v\n%s", module, err, output)
		}
	}
}

// A program has in its graph what it imports, and no more.
func testGraphs(t *testing.T, version string, environment []string) {
	t.Helper()
	list := func(modules []string, packages ...string) []string {
		t.Helper()
		at := program(t, environment, version, modules, packages...)
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
func testModulesAreTidy(t *testing.T, all, environment []string) {
	t.Helper()
	for _, folder := range all {
		output, _ := run(t, environment, filepath.Join(root, folder), "mod", "tidy", "-diff")
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
