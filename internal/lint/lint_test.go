package lint

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stint-go/stint/internal/must"
)

// TestTree applies the rules to the module.
func TestTree(t *testing.T) {
	tree := os.DirFS("../..")
	if _, err := fs.Stat(tree, "go.mod"); err != nil {
		t.Fatalf("not the module's tree: %v", err)
	}
	found := must.Get(Check(tree))(t)
	for _, f := range found {
		t.Error(f)
	}
}

// TestArchitecture holds ARCHITECTURE.md's table to this package's.
func TestArchitecture(t *testing.T) {
	tree := os.DirFS("../..")
	text := must.Get(fs.ReadFile(tree, "ARCHITECTURE.md"))(t)
	rows := make(map[string]string) // by folder
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 {
			continue
		}
		for _, cell := range strings.Split(cells[2], ",") {
			rows[strings.Trim(cell, " `/")] = strings.TrimSpace(cells[1])
		}
	}
	for _, f := range folders {
		if f.path == "" {
			continue
		}
		row, described := rows[f.path]
		entries := must.Get(fs.Glob(tree, f.path+"/*"))(t)
		switch exists := len(entries) > 0; {
		case exists && !described:
			t.Errorf("%s is not in the table", f.path)
		case !exists && described:
			t.Errorf("%s is in the table and does not exist", f.path)
		case exists && row != fmt.Sprint(f.floor) && !f.testsOnly:
			t.Errorf("%s is on floor %s in the table, not on %d", f.path, row, f.floor)
		}
	}
}

// fake is a tree of files by name, with a package comment where the source has
// none of its own.
func fake(files map[string]string) fs.FS {
	tree := fstest.MapFS{"go.mod": {Data: []byte("module " + module + "\n")}}
	for name, text := range files {
		if strings.HasSuffix(name, ".go") && !strings.Contains(text, "package ") {
			text = "// Package p is fake.\npackage p\n" + text
		}
		tree[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return tree
}

func TestRules(t *testing.T) {
	const own = `import _ "` + module
	for _, c := range []struct {
		name  string
		files map[string]string
		want  []string // the findings' beginnings, in order
	}{
		// Floors.
		{"a lower floor", map[string]string{"memstore/a.go": own + `/internal/algorithm"`}, nil},
		{"the root", map[string]string{"internal/algorithm/a.go": own + `"`}, nil},
		{"the folder above", map[string]string{"service/internal/server/rls/a.go": own + `/service/internal/server"`}, nil},
		{"the folder below", map[string]string{"service/internal/rulestore/a.go": own + `/service/internal/rulestore/mongo"`}, []string{"service/internal/rulestore/a.go:3: floors: service/internal/rulestore is on floor 2"}},
		{"a higher floor", map[string]string{"internal/algorithm/a.go": own + `/memstore"`}, []string{"internal/algorithm/a.go:3: floors: internal/algorithm is on floor 1 and may import lower floors only; memstore is on floor 2"}},
		{"the same floor", map[string]string{"redisstore/a.go": own + `/memstore"`}, []string{"redisstore/a.go:3: floors: redisstore is on floor 2"}},
		{"a room from above", map[string]string{"redisstore/a.go": own + "/redisstore/internal/queue\"\n" + own + `/redisstore/internal/layout"`}, nil},
		{"a room from a room above", map[string]string{"redisstore/internal/queue/a.go": own + `/redisstore/internal/wire"`, "redisstore/internal/wire/a.go": own + `/redisstore/internal/layout"`}, nil},
		{"upward arrows of rooms", map[string]string{
			"redisstore/internal/layout/a.go": own + `/redisstore/internal/wire"`, "redisstore/internal/queue/a.go": own + `/redisstore"`,
			"redisstore/internal/wire/a.go": own + `/redisstore/internal/queue"`,
		}, []string{
			"redisstore/internal/layout/a.go:3: floors: redisstore/internal/layout may not import redisstore/internal/wire: redisstore stands on it",
			"redisstore/internal/queue/a.go:3: floors: redisstore/internal/queue may not import redisstore: redisstore stands on it",
			"redisstore/internal/wire/a.go:3: floors: redisstore/internal/wire may not import redisstore/internal/queue: redisstore stands on it",
		}},
		{"anything from the root", map[string]string{"a.go": own + `/internal/algorithm"`}, []string{"a.go:3: floors: the root is on floor 0"}},
		{"a store in the service", map[string]string{"service/internal/server/a.go": own + `/memstore"`}, []string{"service/internal/server/a.go:3: floors: service/internal/server may not import memstore"}},
		{"everything in the program", map[string]string{"service/cmd/stint/a.go": own + "/service/internal/server\"\n" + own + "/redisstore\"\n" + own + `/service/internal/config"`}, nil},
		{"the program", map[string]string{"service/cmd/stint/internal/config/a.go": own + `/service/cmd/stint"`}, nil},
		{"the program elsewhere", map[string]string{"service/internal/server/a.go": own + `/service/cmd/stint"`}, []string{"service/internal/server/a.go:3: floors: service/internal/server is on floor 5"}},
		{"a test's store", map[string]string{"service/internal/server/a_test.go": own + `/memstore"`, "a_test.go": own + `/memstore"`}, nil},
		{"a test's program", map[string]string{"service/internal/server/a_test.go": own + `/service/cmd/stint/x"`}, []string{"service/internal/server/a_test.go:3: floors: tests of service/internal/server may not"}},
		{"a helper of tests", map[string]string{"service/cmd/stint/a.go": own + `/internal/testredis"`, "service/internal/server/a.go": own + `/storetest"`}, []string{
			"service/cmd/stint/a.go:3: floors: only tests may import internal/testredis", "service/internal/server/a.go:3: floors: only tests may import storetest",
		}},
		{"a helper of tests in tests", map[string]string{"redisstore/a_test.go": own + "/internal/testredis\"\n" + own + `/storetest"`}, nil},
		{"the module in a helper", map[string]string{"internal/testredis/a.go": own + `/memstore"`}, []string{"internal/testredis/a.go:3: floors: internal/testredis is on floor 0"}},
		{"below one entry", map[string]string{"storetest/a.go": own + `/storetest/internal/x"`}, nil},
		{"an unknown folder", map[string]string{"newcomer/a.go": ""}, []string{"newcomer: floors: the folder is not in the table"}},
		{"an unknown folder's import", map[string]string{"service/internal/server/a.go": own + `/newcomer"`}, []string{"service/internal/server/a.go:3: floors: service/internal/server imports newcomer, which is not in the table"}},
		{"others' code", map[string]string{"redisstore/rueidis/a.go": `import _ "github.com/redis/rueidis/internal/cmds"`, "a_test.go": `import _ "pgregory.net/rapid"`}, nil},
		{"others' code where there is none", map[string]string{"memstore/a.go": `import _ "github.com/redis/rueidis"`}, []string{"memstore/a.go:3: floors: memstore may not import github.com/redis/rueidis (only the standard library)"}},
		{"others' code of a like name", map[string]string{"redisstore/rueidis/a.go": `import _ "github.com/redis/rueidisx"`}, []string{"redisstore/rueidis/a.go:3: floors: redisstore/rueidis may not import github.com/redis/rueidisx"}},
		{"a module of its own", map[string]string{"bench/go.mod": "module x", "bench/a.go": `import _ "github.com/redis/rueidis"`}, nil},
		{"testdata", map[string]string{"api/testdata/a.go": own + `/newcomer"`}, nil},

		// Clocks.
		{"a clock", map[string]string{"internal/algorithm/a.go": "import \"time\"\nvar _ = time.Now\nfunc f() { _ = time.Since(time.Time{}) }"}, []string{"internal/algorithm/a.go:4: clock: time.Now", "internal/algorithm/a.go:5: clock: time.Since"}},
		{"a clock by another name", map[string]string{"clientip/a.go": "import clock \"time\"\nfunc f() { clock.Sleep(1) }"}, []string{"clientip/a.go:4: clock: time.Sleep"}},
		{"a test's clock", map[string]string{"rules/file/a_test.go": "import \"time\"\nvar _ = time.Until"}, []string{"rules/file/a_test.go:4: clock: time.Until"}},
		{"no clock", map[string]string{"internal/algorithm/a.go": "import \"time\"\nvar _ = time.UnixMicro\nfunc f(x struct{ Now int }) { _ = x.Now }"}, nil},
		{"a clock at the edge", map[string]string{"memstore/a.go": "import \"time\"\nfunc f() { _ = time.Now() }"}, nil},

		// Panics.
		{"a panic", map[string]string{"service/internal/server/a.go": "func f() { panic(1) }"}, []string{"service/internal/server/a.go:3: panic:"}},
		{"a panic with a reason", map[string]string{"service/internal/server/a.go": "func f() { panic(1) } //nolint:forbidigo // net/http asks for it"}, nil},
		{"a panic without a reason", map[string]string{"service/internal/server/a.go": "func f() { panic(1) } //nolint:forbidigo"}, []string{"service/internal/server/a.go:3: panic:"}},
		{"a panic elsewhere", map[string]string{"service/cmd/stint/a.go": "func f() { panic(1) }", "service/internal/server/a_test.go": "func f() { panic(1) }"}, nil},

		// State.
		{"init", map[string]string{"api/a.go": "func init() {}"}, []string{"api/a.go:3: state: an init function"}},
		{"a method init", map[string]string{"api/a.go": "type t int\nfunc (t) init() {}"}, nil},
		{"an assignment", map[string]string{"api/a.go": "var x int", "api/b.go": "func f() { x = 1 }"}, []string{"api/b.go:3: state: x is changed"}},
		{"a count", map[string]string{"api/a.go": "var x int\nfunc f() { x++; x += 2 }"}, []string{"api/a.go:4: state: x is changed", "api/a.go:4: state: x is changed"}},
		{"an element", map[string]string{"api/a.go": "var x = map[int]int{}\nfunc f() { x[1] = 1 }"}, []string{"api/a.go:4: state: x is changed"}},
		{"a field", map[string]string{"api/a.go": "var x struct{ n []int }\nfunc f() { x.n[0] = 1 }"}, []string{"api/a.go:4: state: x is changed"}},
		{"a pointer", map[string]string{"api/a.go": "var x = new(int)\nfunc f() { *(x) = 1 }"}, []string{"api/a.go:4: state: x is changed"}},
		{"a deletion", map[string]string{"api/a.go": "var x map[int]int\nfunc f() { delete(x, 1)\nclear(x) }"}, []string{"api/a.go:4: state: x is changed", "api/a.go:5: state: x is changed"}},
		{"a loop", map[string]string{"api/a.go": "var x int\nfunc f() { for x = range 3 {} }"}, []string{"api/a.go:4: state: x is changed"}},
		{"another package's variable", map[string]string{"api/a.go": "import \"net/http\"\nfunc f() { http.DefaultClient = nil }"}, []string{"api/a.go:4: state: a variable of package net/http is changed"}},
		{"a lock", map[string]string{"api/a.go": "import \"sync\"\nvar x sync.Map"}, []string{"api/a.go:4: state: x is made to be changed"}},
		{"an atomic", map[string]string{"api/a.go": "import \"sync/atomic\"\nvar x = struct{ n atomic.Int64 }{}"}, []string{"api/a.go:4: state: x is made to be changed"}},
		{"a table", map[string]string{"api/a.go": "var x = map[int]int{1: 2}\nfunc f() int { return x[1] }"}, nil},
		{"a name of its own", map[string]string{"api/a.go": "var x int\nfunc f(x int) { x = 1; { y := x; y++ } }\nfunc g() { x := 1; x++ }"}, nil},
		{"another's field", map[string]string{"api/a.go": "var x int\ntype t struct{ x int }\nfunc (t *t) f() { t.x = 1 }"}, nil},
		{"a test's state", map[string]string{"api/a_test.go": "var x int\nfunc f() { x = 1 }"}, nil},

		// The rest.
		{"a search", map[string]string{"redisstore/a.lua": "local k = KEYS[1]\nredis.call('scan', 0)\nredis.call(\"KEYS\", '*')"}, []string{"redisstore/a.lua:2: lua: 'scan'", "redisstore/a.lua:3: lua: \"KEYS\""}},
		{"pages", map[string]string{"redisstore/a.lua": "redis.call('HSCAN', key, at, 'COUNT', n)\nredis.call('hscan', key, at)\nredis.call('SCAN', at, 'COUNT', n)"}, []string{"redisstore/a.lua:2: lua: 'hscan'", "redisstore/a.lua:3: lua: 'SCAN'"}},
		{"no package comment", map[string]string{"api/a.go": "package p", "api/b.go": "package p"}, []string{"api: comment:"}},
		{"tests alone", map[string]string{"api/a_test.go": "package p_test"}, nil},
		{"a long file", map[string]string{"api/a.go": strings.Repeat("\n", maxLines-1)}, []string{"api/a.go: length: 601 lines"}},
		{"a file of the longest kind", map[string]string{"api/a.go": strings.Repeat("\n", maxLines-2), "internal/algorithm/a.lua": strings.Repeat("\n", maxLines)}, nil},
		{"a long script", map[string]string{"internal/algorithm/a.lua": strings.Repeat("\n", maxLines+1)}, []string{"internal/algorithm/a.lua: length: 601"}},
		{"a skip", map[string]string{"api/a_test.go": "import \"testing\"\nfunc TestX(t *testing.T) { t.Skip() }"}, []string{"api/a_test.go:4: skip:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			found := must.Get(Check(fake(c.files)))(t)
			if !slices.EqualFunc(found, c.want, func(f Finding, want string) bool { return strings.HasPrefix(f.String(), want) }) {
				t.Errorf("got %q\nwant %q", found, c.want)
			}
		})
	}
}

func TestBrokenSource(t *testing.T) {
	if _, err := Check(fake(map[string]string{"api/a.go": "package p\nfunc {"})); err == nil {
		t.Error("source that can't be read: no error")
	}
}

// A folder is in the table once, and what an entry names is there too.
func TestTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, f := range folders {
		if seen[f.path] {
			t.Errorf("%s is in the table twice", f.path)
		}
		seen[f.path] = true
	}
	for _, f := range folders {
		for _, other := range slices.Concat(f.also, f.not) {
			if !seen[other] {
				t.Errorf("%s names %s, which is not in the table", f.path, other)
			}
		}
	}
}
