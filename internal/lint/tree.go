package lint

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A Finding is one breach of a rule.
type Finding struct {
	Where string // file:line, or the folder
	What  string // the rule's name and what is wrong
}

// String reads "where: rule: what".
func (f Finding) String() string { return name(f.Where) + ": " + f.What }

// pkg is the Go code of one folder, tests included.
type pkg struct {
	dir   string // "" for the root
	fset  *token.FileSet
	files []goFile
}

// A goFile is a file as it was read: its syntax, and its lines for what syntax does not tell.
type goFile struct {
	syntax *ast.File
	test   bool
	lines  []string
}

// at is where a node stands.
func (p *pkg) at(n ast.Node) string {
	position := p.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", position.Filename, position.Line)
}

// code lists the files that are not tests.
func (p *pkg) code() []goFile {
	return slices.DeleteFunc(slices.Clone(p.files), func(f goFile) bool { return f.test })
}

// library says whether others may import the package's code.
func (p *pkg) library() bool {
	for _, dir := range []string{"service/cmd", "internal", "examples", "test", "service/internal/testmongo"} {
		if contains(dir, p.dir) {
			return false
		}
	}
	return true
}

// Check applies the rules to the repository's tree, all modules but those in standalone. It leaves out folders that go
// build leaves out.
func Check(tree fs.FS) ([]Finding, error) {
	var found []Finding
	packages := make(map[string]*pkg)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			return enter(name, entry.Name())
		}
		suffix := path.Ext(name)
		if suffix != ".go" && suffix != ".lua" {
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
		found = append(found, checkLength(name, lines)...)
		if suffix == ".lua" {
			found = append(found, checkLua(name, lines)...)
			return nil
		}
		dir := strings.TrimPrefix(path.Dir(name), ".")
		p := packages[dir]
		if p == nil {
			p = &pkg{dir: dir, fset: token.NewFileSet()}
			packages[dir] = p
		}
		syntax, err := parser.ParseFile(p.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, goFile{syntax, strings.HasSuffix(name, "_test.go"), lines})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range packages {
		for _, rule := range []func(*pkg) []Finding{
			checkImports, checkComment, checkClock, checkPanic, checkSkips, checkState,
		} {
			found = append(found, rule(p)...)
		}
	}
	slices.SortFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), cmp.Compare(a.What, b.What))
	})
	return found, nil
}

// standalone are modules that no other one imports, whose code is not the product's: the benchmarks, and the servers of
// MongoDB's protocol and of Envoy's that tests start.
var standalone = []string{"bench", "service/internal/testmongo/server", "test/envoy/reference"}

// enter says whether to walk into a folder.
func enter(name, base string) error {
	if name == "." {
		return nil
	}
	if base == "testdata" || base == "vendor" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
		return fs.SkipDir
	}
	if slices.Contains(standalone, name) || base == "node_modules" {
		return fs.SkipDir
	}
	return nil
}
