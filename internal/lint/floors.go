package lint

import (
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

// folders is the floor table of ARCHITECTURE.md. A folder's code may import the folders of lower
// floors, and those above it in the tree. Its tests may import any folder but the programs.
var folders = []folder{
	// The library's module, and those below it.
	{path: "", floor: 0},
	{path: "internal/algorithm", floor: 1},
	{path: "clientip", floor: 1},
	{path: "rules", floor: 1},
	{path: "internal/rulediff", floor: 1, also: []string{"rules"}},
	{path: "rules/file", floor: 1, also: []string{"internal/document/rulefile"}},
	{path: "internal/document", floor: 1, uses: []string{"go.yaml.in/yaml/v4"}},
	{
		path: "internal/document/rulefile", floor: 1, also: []string{"rules"},
		uses: []string{"github.com/fsnotify/fsnotify"},
	},

	{path: "internal/redisconn", floor: 0},
	{path: "memstore", floor: 2},
	{path: "redisstore", floor: 2, also: []string{
		"redisstore/internal/queue", "redisstore/internal/wire", "redisstore/internal/layout",
	}},
	{
		path: "redisstore/internal/queue", floor: 2, also: []string{"redisstore/internal/wire", "redisstore/internal/layout"},
		not: []string{"redisstore"},
	},
	{
		path: "redisstore/internal/wire", floor: 2, also: []string{"redisstore/internal/layout"}, not: []string{"redisstore"},
	},
	{path: "redisstore/internal/layout", floor: 2, not: []string{"redisstore"}},
	{path: "redisstore/rueidis", floor: 2, also: []string{"failover"}, uses: []string{"github.com/redis/rueidis"}},
	{path: "redisstore/goredis", floor: 2, also: []string{"failover"}, uses: []string{"github.com/redis/go-redis/v9"}},
	{path: "enforce", floor: 2},
	{path: "failover", floor: 2, also: []string{"memstore"}},
	{path: "storetest", floor: 2, uses: []string{"pgregory.net/rapid"}, testsOnly: true},

	{path: "internal/ends", floor: 3, not: stores},
	{path: "internal/adapt", floor: 3, not: stores},
	{path: "httplimit", floor: 3, not: stores, also: []string{"internal/adapt", "internal/ends"}},
	{path: "httplimit/ginlimit", floor: 3, not: stores, uses: []string{"github.com/gin-gonic/gin"}},
	{path: "httplimit/fiberlimit", floor: 3, not: stores, uses: []string{"github.com/gofiber/fiber/v3"}},
	{
		path: "grpclimit", floor: 3, not: stores, also: []string{"httplimit", "internal/adapt", "internal/ends"},
		uses: []string{
			"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
		},
	},
	{
		path: "mcplimit", floor: 3, not: stores, also: []string{"httplimit", "internal/adapt", "internal/ends"},
		uses: []string{"github.com/modelcontextprotocol/go-sdk"},
	},
	{path: "promlimit", floor: 3, not: stores, uses: []string{
		"github.com/prometheus/client_golang", "github.com/prometheus/client_model",
	}},
	{path: "otellimit", floor: 3, not: stores, uses: []string{
		"go.opentelemetry.io/otel/attribute", "go.opentelemetry.io/otel/codes", "go.opentelemetry.io/otel/propagation",
		"go.opentelemetry.io/otel/trace",
	}},
	{path: "api", floor: 3, not: stores},
	{path: "client", floor: 4, not: stores},

	// The service's module.
	{path: "service/internal/topk", floor: 1},
	{path: "service/internal/logqueue", floor: 1},
	{path: "service/internal/component", floor: 1},
	{path: "service/internal/kernel", floor: 1, uses: []string{"golang.org/x/sys"}},
	{path: "service/internal/htmlpage", floor: 1},
	{path: "service/internal/manpage", floor: 1, uses: []string{"github.com/spf13/cobra", "github.com/spf13/pflag"}},
	{path: "service/internal/logsampler", floor: 2},
	{
		path: "service/internal/follow", floor: 2, not: stores, also: []string{"service/internal/logsampler"},
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{path: "service/internal/rulestore", floor: 2, not: stores},
	{path: "service/internal/rulestore/storetest", floor: 2, uses: []string{"pgregory.net/rapid"}, testsOnly: true},
	{
		path:  "service/internal/rulestore/redis",
		floor: 2,
		also:  []string{"redisstore"},
		uses:  []string{"github.com/klauspost/compress"},
	},
	{path: "service/internal/rulestore/mongo", floor: 2, not: stores, uses: []string{"go.mongodb.org/mongo-driver/v2"}},
	{path: "service/internal/decisionlog", floor: 3, not: stores},
	{path: "service/internal/record", floor: 2, not: stores},
	{
		path: "service/internal/redishealth", floor: 3, not: stores,
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{path: "service/internal/simulate", floor: 3, not: stores, uses: []string{"github.com/klauspost/compress"}},
	{path: "service/internal/bench", floor: 4, not: stores, uses: []string{
		"github.com/redis/rueidis", "google.golang.org/grpc", "github.com/envoyproxy/go-control-plane/envoy",
	}},
	{
		path: "service/internal/capacity", floor: 4, not: stores, also: []string{"service/internal/server/problem"},
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{path: "service/internal/holdcount", floor: 4, not: stores, uses: []string{"github.com/prometheus/client_golang"}},
	{path: "service/internal/requestid", floor: 4, not: stores},
	{
		path: "service/internal/scrape", floor: 4, not: stores, also: []string{"service/internal/server/problem"},
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{path: "service/internal/strictjson", floor: 4, not: stores, also: []string{"service/internal/server/problem"}},
	{
		path: "service/internal/certificates", floor: 4, not: stores, also: []string{"service/internal/config"},
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{
		path: "service/internal/listen", floor: 4, not: stores,
		also: []string{"service/internal/config", "service/internal/certificates"},
		uses: []string{
			"github.com/prometheus/client_golang", "golang.org/x/net/http2", "google.golang.org/grpc",
			"google.golang.org/protobuf", "github.com/envoyproxy/go-control-plane/envoy",
		},
	},
	{
		path: "service/internal/admin", floor: 4, not: stores,
		also: []string{
			"service/internal/listen", "service/internal/capacity", "service/internal/server/rulesapi",
			"service/internal/server/problem",
			"service/internal/server/dashboard", "service/internal/server/session", "service/internal/server/rls",
			"service/internal/server/simulateapi", "service/internal/activity", "service/internal/config",
		},
	},
	{
		path: "service/internal/server/simulateapi", floor: 4, not: stores,
		also: []string{"service/internal/capacity", "service/internal/server/problem", "service/internal/activity"},
	},
	{
		path: "service/internal/rest", floor: 4, not: stores,
		also: []string{
			"service/internal/listen", "service/internal/capacity", "service/internal/holdcount", "service/internal/requestid",
			"service/internal/scrape", "service/internal/strictjson", "service/internal/server/problem",
			"service/internal/server/session",
			"service/internal/server/rls", "service/internal/server/rls/domains", "service/internal/server/resp",
			"service/internal/activity", "service/internal/config",
		},
		uses: []string{
			"github.com/prometheus/client_golang", "google.golang.org/grpc", "google.golang.org/protobuf",
			"github.com/envoyproxy/go-control-plane/envoy",
		},
	},
	{path: "service/internal/server", floor: 5, not: stores, uses: []string{"github.com/prometheus/client_golang"}},
	{
		path: "service/internal/server/rls", floor: 4, not: stores,
		also: []string{"service/internal/server/rls/domains", "service/internal/server/problem"},
		uses: []string{
			"github.com/prometheus/client_golang", "google.golang.org/grpc", "google.golang.org/protobuf",
			"github.com/envoyproxy/go-control-plane/envoy",
		},
	},
	{path: "service/internal/server/rls/domains", floor: 4, not: stores},
	{
		path: "service/internal/server/rls/xds", floor: 4, not: stores, also: []string{"service/internal/server/rls/domains"},
		uses: []string{
			"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
			"github.com/envoyproxy/go-control-plane/envoy", "github.com/envoyproxy/go-control-plane/ratelimit",
		},
	},
	{path: "service/internal/server/resp", floor: 4, not: stores},
	{path: "service/internal/server/dashboard", floor: 4, not: stores, also: []string{"service/internal/server/problem"}},
	{path: "service/internal/server/problem", floor: 4, not: stores},
	{
		path: "service/internal/server/rulesapi", floor: 4, not: stores, also: []string{"service/internal/server/problem"},
		uses: []string{"github.com/prometheus/client_golang"},
	},
	{path: "service/internal/server/session", floor: 4, not: stores, also: []string{"service/internal/server/problem"}},
	{path: "service/internal/activity", floor: 4, not: stores, also: []string{"service/internal/server/problem"}},
	{path: "service/internal/alerts", floor: 4, not: stores},
	{path: "service/internal/adminapi", floor: 3, not: stores},
	{path: "service/internal/config", floor: 4},
	{path: "service/internal/telemetry", floor: 4, not: stores, uses: []string{
		"github.com/prometheus/client_golang", "go.opentelemetry.io/otel", "go.opentelemetry.io/contrib/bridges/prometheus",
		"github.com/go-logr/logr",
	}},
	{path: "service/internal/board", floor: 5, not: stores},
	{path: "service/internal/demo", floor: 5, not: stores},
	{path: "service/internal/dropin", floor: 5},
	{path: "service/internal/domainsource", floor: 5, not: stores},
	{path: "service/internal/states", floor: 5, uses: []string{"github.com/prometheus/client_golang"}},
	{path: "service/internal/rulesource", floor: 5, also: []string{"service/internal/states"}},
	{path: "service/internal/doctor", floor: 5, also: []string{"service/internal/states", "service/internal/rulesource"}},
	{path: "service/cmd/stint", floor: 6, uses: []string{
		"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/prometheus/client_golang", "golang.org/x/term",
		"golang.org/x/net/netutil",
	}},
	{path: "service/internal/clienttest", floor: 5, testsOnly: true},
	{path: "service/internal/errortest", floor: 6, testsOnly: true},
	{path: "service/internal/testtls", floor: 5, testsOnly: true},
	{path: "service/internal/testmongo", floor: 0, testsOnly: true},

	// Programs and tests that know what users know.
	{path: "examples", floor: 5},
	{path: "examples/grpc", floor: 5, uses: []string{
		"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
	}},
	{path: "examples/mcp", floor: 5, uses: []string{"github.com/modelcontextprotocol/go-sdk"}},
	{path: "test", floor: 5, testsOnly: true},
	{path: "test/release", floor: 5, testsOnly: true, uses: []string{"github.com/CycloneDX/cyclonedx-go"}},

	{path: "deploy", floor: 5, testsOnly: true, uses: []string{
		"github.com/google/go-containerregistry", "github.com/goreleaser/nfpm/v2",
		"github.com/moby/buildkit", "helm.sh/helm/v3",
	}},

	{path: "internal/bounds", floor: -1},
	{path: "internal/apipath", floor: -1},
	{path: "internal/clip", floor: 0},
	{path: "internal/keyhash", floor: -1},
	{path: "internal/sleep", floor: -1},
	{path: "internal/waitqueue", floor: -1},
	{path: "internal/waiters", floor: -1},
	{path: "internal/prefix", floor: -1},
	{path: "internal/spell", floor: -1},
	{path: "internal/watchdog", floor: 1},
	{path: "internal/decide", floor: 1, also: []string{"internal/algorithm"}},
	{path: "internal/load", floor: 1},
	{path: "internal/measure", floor: 4},

	// Helpers of tests.
	{path: "internal/lint", floor: 0, testsOnly: true},
	{path: "internal/testredis", floor: 0, testsOnly: true},
	{path: "internal/testseed", floor: 0, testsOnly: true},
	{path: "internal/testconn", floor: 3, also: []string{"internal/testredis"}, testsOnly: true},
	{path: "internal/testrules", floor: 1, also: []string{"rules"}, uses: []string{"pgregory.net/rapid"}, testsOnly: true},
	{path: "internal/testtraffic", floor: 0, testsOnly: true},
	{path: "internal/oracle", floor: 0, testsOnly: true},
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
