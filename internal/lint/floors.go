package lint

import (
	_ "embed"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// module is the path that the import paths of all folders begin with. Modules below it have their
// folder's path.
const module = "github.com/stint-go/stint"

// A folder's place in the module. A folder that the table does not name belongs to
// the nearest one above it that is named.
type folder struct {
	path  string
	floor int
	// uses lists the modules of others that the folder's code may import, besides the
	// standard library.
	uses []string
	// also lists folders of its own floor that it may import.
	also []string
	// not lists folders of lower floors that it may not import.
	not []string
	// testsOnly says that only tests may import it.
	testsOnly bool
}

// program is the folder of the program.
const program = "service/cmd/stint"

// stores are chosen and wired in service/internal/states and the program alone.
var stores = []string{"memstore", "redisstore", "failover"}

// floorsText is the floor table of ARCHITECTURE.md. A folder's code may import the folders of lower floors, and those
// above it in the tree. Its tests may import any folder but the programs. A line is a floor, a folder ("." is the
// root), and words, behind which lists stand: also, not, uses (see folder); no-stores is not with all stores.
//
//go:embed floors.txt
var floorsText string

var folders = readFolders(floorsText)

// readFolders reads a floor table.
func readFolders(text string) (list []folder) {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || words[0] == "#" {
			continue
		}
		f := folder{path: strings.TrimPrefix(words[1], ".")}
		f.floor, _ = strconv.Atoi(words[0]) // TestArchitecture compares it with ARCHITECTURE.md
		var names *[]string
		for _, word := range words[2:] {
			switch word {
			case "also":
				names = &f.also
			case "not":
				names = &f.not
			case "uses":
				names = &f.uses
			case "no-stores":
				f.not = stores
			case "tests-only":
				f.testsOnly = true
			default:
				*names = append(*names, word)
			}
		}
		list = append(list, f)
	}
	return list
}

// lookup returns the entry that a folder belongs to. Nothing but the root itself belongs to the
// root. A folder inherits the entry of the nearest folder above; the root's own entry is for its
// own files alone, so that a new folder must be named.
func lookup(dir string) (folder, bool) {
	for at := dir; ; at = path.Dir(at) {
		if at == "." {
			at = ""
		}
		for _, f := range folders {
			if f.path == at && (at != "" || dir == "") {
				return f, true
			}
		}
		if at == "" {
			return folder{}, false
		}
	}
}

// contains says whether dir is the folder above or one below it.
func contains(above, dir string) bool {
	return dir == above || strings.HasPrefix(dir, above+"/")
}

// checkImports holds the floor table.
func checkImports(p *pkg) (found []Finding) {
	self, known := lookup(p.dir)
	if !known {
		return []Finding{{p.dir, "floors: the folder is not in the table of floors (internal/lint, ARCHITECTURE.md)"}}
	}
	for _, file := range p.files {
		for _, spec := range file.syntax.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue // the parser vouches for it
			}
			if fault := checkImport(self, p.dir, file.test, target); fault != "" {
				found = append(found, Finding{p.at(spec), "floors: " + fault})
			}
		}
	}
	return found
}

// checkImport says what is wrong with one import, or nothing.
func checkImport(self folder, dir string, test bool, target string) string {
	first, _, _ := strings.Cut(target, "/")
	switch {
	case target == module || strings.HasPrefix(target, module+"/"):
		return checkOwn(self, dir, test, strings.TrimPrefix(strings.TrimPrefix(target, module), "/"))
	case test || !strings.Contains(first, "."):
		return ""
	}
	for _, use := range self.uses {
		if contains(use, target) {
			return ""
		}
	}
	return fmt.Sprintf(
		"%s may not import %s (only %s)", name(dir), target,
		strings.Join(append([]string{"the standard library"}, self.uses...), ", "),
	)
}

// checkOwn is checkImport for a folder of the module. Of the rules that forbid, those of the
// table's entry come first, as their text says more than the floors do.
func checkOwn(self folder, dir string, test bool, target string) string {
	to, known := lookup(target)
	if !known {
		return fmt.Sprintf("%s imports %s, which is not in the table", name(dir), name(target))
	}
	if test {
		if contains(program, target) && !contains(program, dir) {
			return fmt.Sprintf("tests of %s may not import a program's %s", name(dir), target)
		}
		return ""
	}
	for _, also := range self.also {
		if contains(also, target) {
			return ""
		}
	}
	for _, not := range self.not {
		switch {
		case contains(not, target) && contains(not, dir):
			return fmt.Sprintf("%s may not import %s: %s stands on it", name(dir), target, not)
		case contains(not, target):
			return fmt.Sprintf("%s may not import %s: stores are chosen in %s", name(dir), target, program)
		}
	}
	switch {
	case to.testsOnly && !self.testsOnly:
		return fmt.Sprintf("only tests may import %s", target)
	case target == "" || contains(target, dir) || to.path == self.path && target != to.path:
		return "" // the folder above, or a folder below the same entry
	case to.floor < self.floor:
		return ""
	}
	return fmt.Sprintf("%s is on floor %d and may import lower floors only; %s is on floor %d", name(dir), self.floor,
		name(target), to.floor)
}

// name is a folder in a finding.
func name(dir string) string {
	if dir == "" {
		return "the root"
	}
	return dir
}
