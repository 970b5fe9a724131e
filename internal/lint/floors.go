package lint

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

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

// stores are chosen and wired in cmd/stint alone.
var stores = []string{"memstore", "redisstore", "failover"}

// folders is the floor table of ARCHITECTURE.md. A folder's code may import the
// folders of lower floors, and those above it in the tree. Its tests may import any
// folder but the programs.
var folders = []folder{
	{path: "", floor: 0},

	{path: "algorithm", floor: 1},
	{path: "rules", floor: 1},
	{path: "document", floor: 1, uses: []string{"go.yaml.in/yaml/v4"}},
	{path: "rules/file", floor: 1, also: []string{"document"}, uses: []string{"github.com/fsnotify/fsnotify"}},
	{path: "rules/store", floor: 1, also: []string{"document", "rules/file"}},
	{path: "rules/store/storetest", floor: 2, uses: []string{"pgregory.net/rapid"}, testsOnly: true},
	{path: "rules/store/redis", floor: 2, also: []string{"redisstore"}, uses: []string{"github.com/klauspost/compress"}},
	{path: "rules/store/mongo", floor: 1, also: []string{"document", "rules/file"}, uses: []string{"go.mongodb.org/mongo-driver/v2"}},
	{path: "clientip", floor: 1},
	{path: "topk", floor: 1},
	{path: "internal/watchdog", floor: 1},

	{path: "memstore", floor: 2},
	{path: "redisstore", floor: 2},
	{path: "redisstore/rueidis", floor: 2, uses: []string{"github.com/redis/rueidis"}},
	{path: "redisstore/goredis", floor: 2, uses: []string{"github.com/redis/go-redis/v9"}},
	{path: "enforce", floor: 2},
	{path: "failover", floor: 2},
	{path: "storetest", floor: 2, uses: []string{"pgregory.net/rapid"}, testsOnly: true},

	{path: "httplimit", floor: 3, not: stores},
	{path: "grpclimit", floor: 3, not: stores, also: []string{"httplimit"}, uses: []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
	}},
	{path: "promlimit", floor: 3, not: stores, uses: []string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model"}},
	{path: "otellimit", floor: 3, not: stores, uses: []string{
		"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/propagation",
		"go.opentelemetry.io/otel/trace",
	}},
	{path: "api", floor: 3, not: stores},
	{path: "simulate", floor: 3, not: stores, uses: []string{"github.com/klauspost/compress"}},

	{path: "client", floor: 4, not: stores},
	{path: "server", floor: 4, not: stores, also: []string{"server/rulesapi", "server/problem", "server/activity", "server/dashboard", "server/session"}, uses: []string{"github.com/prometheus/client_golang", "golang.org/x/sys"}},
	{path: "server/alerts", floor: 4, not: stores},
	{path: "server/problem", floor: 4, not: stores},
	{path: "server/rulesapi", floor: 4, not: stores, also: []string{"server/problem"}, uses: []string{"github.com/prometheus/client_golang"}},
	{path: "server/session", floor: 4, not: stores},
	{path: "server/activity", floor: 4, not: stores, also: []string{"server/problem"}},
	{path: "server/rls", floor: 4, not: stores, uses: []string{
		"github.com/envoyproxy/go-control-plane", "google.golang.org/grpc", "google.golang.org/protobuf",
		"github.com/fsnotify/fsnotify",
	}},
	{path: "server/resp", floor: 4, not: stores, uses: []string{"github.com/tidwall/redcon"}},
	{path: "server/dashboard", floor: 4, not: stores},

	// The program may import everything, its own internal folders among it.
	{path: "cmd/stint", floor: 5, also: []string{"cmd/stint/internal"}, uses: []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/prometheus/client_golang", "golang.org/x/term", "go.opentelemetry.io/otel",
		"go.opentelemetry.io/contrib/bridges/prometheus", "github.com/go-logr/logr",
	}},
	{path: "cmd/stint/internal", floor: 5},
	{path: "deploy", floor: 5, testsOnly: true},
	{path: "examples", floor: 5},
	{path: "examples/grpc", floor: 5, uses: []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
	}},
	{path: "docs", floor: 5, testsOnly: true},

	{path: "internal/clip", floor: 0},
	{path: "internal/sleep", floor: -1},
	{path: "internal/prefix", floor: -1},
	{path: "internal/logsampler", floor: 2},
	{path: "internal/decisionlog", floor: 3},

	// Helpers of tests know nothing of the module.
	{path: "internal/lint", floor: 0, testsOnly: true},
	{path: "internal/attack", floor: 5, testsOnly: true},
	{path: "internal/chaos", floor: 5, testsOnly: true},
	{path: "internal/reload", floor: 5, testsOnly: true},
	{path: "internal/browser", floor: 5, testsOnly: true},
	{path: "internal/release", floor: 0, testsOnly: true},
	{path: "internal/testredis", floor: 0, uses: []string{"github.com/redis/go-redis/v9"}, testsOnly: true},
	{path: "internal/testmongo", floor: 0, testsOnly: true},
}

// lookup returns the entry that a folder belongs to. Nothing but the root itself
// belongs to the root.
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
	return fmt.Sprintf("%s may not import %s (only %s)", name(dir), target, strings.Join(append([]string{"the standard library"}, self.uses...), ", "))
}

// checkOwn is checkImport for a folder of the module.
func checkOwn(self folder, dir string, test bool, target string) string {
	to, known := lookup(target)
	if !known {
		return fmt.Sprintf("%s imports %s, which is not in the table", name(dir), name(target))
	}
	if test {
		if contains("cmd", target) && !contains("cmd", dir) {
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
		if contains(not, target) {
			return fmt.Sprintf("%s may not import %s: stores are chosen in cmd/stint", name(dir), target)
		}
	}
	switch {
	case to.testsOnly && to.path != self.path:
		return fmt.Sprintf("only tests may import %s", target)
	case target == "" || contains(target, dir) || to.path == self.path && target != to.path:
		return "" // the folder above, or a folder below the same entry
	case to.floor < self.floor:
		return ""
	}
	return fmt.Sprintf("%s is on floor %d and may import lower floors only; %s is on floor %d", name(dir), self.floor, name(target), to.floor)
}

func name(dir string) string {
	if dir == "" {
		return "the root"
	}
	return dir
}
