package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/redisstore"
)

// defaultsShown are the names and defaults of a section of docs/reference/defaults.md.
func defaultsShown(t *testing.T, section string) map[string]string {
	t.Helper()
	_, text, found := strings.Cut(pages(t)["docs/reference/defaults.md"], "\n## "+section+"\n")
	if !found {
		t.Fatalf("the page has no section %s", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	shown := map[string]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		var names []string
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			names = append(names, name[1])
		}
		// A comma with a space behind it separates values; one within a number has none.
		values := strings.Split(strings.ReplaceAll(strings.TrimSpace(cells[2]), "`", ""), ", ")
		for i, name := range names {
			switch {
			case len(values) == len(names):
				shown[name] = values[i]
			case len(values) == 1:
				shown[name] = values[0]
			default:
				t.Errorf("%s: %d names and %d values", line, len(names), len(values))
			}
		}
	}
	return shown
}

// Every field of the library whose comment tells a default has a row, whose value is in that comment.
func TestDefaultsOfTheLibrary(t *testing.T) {
	constants := strings.NewReplacer(
		"DefaultHoldTTL", duration.Format(bounds.DefaultHoldTTL), "DefaultMaxBytes", "1GiB",
		"DefaultKeyPrefix", redisstore.DefaultKeyPrefix, "DefaultLeaseTime", duration.Format(redisstore.DefaultLeaseTime),
		"DefaultMaxHolds", "1000", "DefaultMaxIdleConns", "64", "DefaultHeaders", strings.Join(clientip.DefaultHeaders(), ", "), "DefaultIPv6Prefix", "64",
	)
	if memstore.DefaultMaxBytes != 1<<30 || bounds.DefaultMaxHolds != 1000 || client.DefaultMaxIdleConns != 64 || clientip.DefaultIPv6Prefix != 64 {
		t.Error("a constant is not what this test takes it for")
	}
	timeouts := map[string]string{"client": duration.Format(client.DefaultTimeout), "failover": duration.Format(failover.DefaultTimeout)}
	told := map[string]string{}
	for _, structs := range []string{
		"limit.go Limit", "limiter.go Config", "hold.go Hold", "memstore/memstore.go Config", "redisstore/options.go Options",
		"redisstore/rueidis/config.go Config", "failover/failover.go Config", "client/options.go Options", "clientip/config.go Config",
		"httplimit/middleware.go Config", "httplimit/transport.go TransportConfig", "grpclimit/server.go Config", "mcplimit/middleware.go Config", "grpclimit/client.go ClientConfig", "enforce/enforce.go Config", "rules/set.go Options",
	} {
		name, kind, _ := strings.Cut(structs, " ")
		parsed := must.Get(parser.ParseFile(token.NewFileSet(), filepath.FromSlash(name), nil, parser.ParseComments))(t)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != kind {
				return true
			}
			fields, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range fields.Fields.List {
				text := strings.Join(strings.Fields(field.Doc.Text()), " ")
				_, value, found := strings.Cut(text, "Default: ")
				if !found {
					continue
				}
				value = constants.Replace(strings.ReplaceAll(value, "DefaultTimeout", timeouts[parsed.Name.Name]))
				told[parsed.Name.Name+"."+kind+"."+field.Names[0].Name] = value
			}
			return false
		})
	}
	shown := defaultsShown(t, "The library")
	for name, value := range told {
		if page, has := shown[name]; !has || !strings.Contains(value, page) {
			t.Errorf("the comment of %s says %q, and the page %q", name, value, page)
		}
	}
	for name := range shown {
		if _, has := told[name]; !has {
			// Fields that share a comment with another one.
			if !slices.Contains([]string{"redisstore.Options.Partitions"}, name) {
				t.Errorf("the comment of %s tells no default", name)
			}
		}
	}
	if len(told) < 60 {
		t.Errorf("only %d fields were found", len(told))
	}
}

// The flags of commands have the defaults that the page tells: those that --help shows, or none.
func TestDefaultsOfCommands(t *testing.T) {
	program := must.Get(stintProgram())(t)
	help := map[string]string{}
	defaultOf := func(command, flag string) (string, bool) {
		if help[command] == "" {
			arguments := append(strings.Fields(command), "--help")
			text := must.Get(exec.CommandContext(t.Context(), program, arguments...).Output())(t)
			help[command] = string(text)
		}
		line := regexp.MustCompile(`(?m)^ +--` + flag + ` .*$`).FindString(help[command])
		_, shown, _ := strings.Cut(line, "(default ")
		return strings.Trim(strings.TrimSuffix(shown, ")"), `"`), line != ""
	}
	_, text, _ := strings.Cut(pages(t)["docs/reference/defaults.md"], "\n## Commands\n")
	quoted, rows := regexp.MustCompile("`([^`]+)`"), 0
	for line := range strings.Lines(text) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `--") {
			continue
		}
		rows++
		flags, commands, _ := strings.Cut(cells[1], " of ")
		names, values := quoted.FindAllStringSubmatch(flags, -1), quoted.FindAllStringSubmatch(cells[2], -1)
		if commands == "a request that is described " {
			commands = "`check`, `bench`, `simulate`"
		}
		if len(names) != len(values) {
			t.Errorf("%s: %d names and %d values", line, len(names), len(values))
			continue
		}
		for i, name := range names {
			for _, command := range quoted.FindAllStringSubmatch(commands, -1) {
				got, found := defaultOf(command[1], strings.TrimPrefix(name[1], "--"))
				want := strings.ReplaceAll(values[i][1], ",", "")
				if zero := want == "0" && got == ""; !found || got != want && !zero {
					t.Errorf("stint %s has %s with the default %q (found: %t), and the page %q", command[1], name[1], got, found, want)
				}
			}
		}
	}
	if rows < 9 {
		t.Errorf("only %d rows were found", rows)
	}
}
