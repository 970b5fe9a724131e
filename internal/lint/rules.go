package lint

import (
	"fmt"
	"go/ast"
	"regexp"
	"strconv"
	"strings"
)

// maxLines is how long a file may be.
const maxLines = 600

// checkLength keeps files so short that one can be read at a sitting, and changed by two people
// without conflicts.
func checkLength(name string, lines []string) []Finding {
	if len(lines) <= maxLines {
		return nil
	}
	return []Finding{{name, fmt.Sprintf("length: %d lines; allowed: %d", len(lines), maxLines)}}
}

// luaSearch finds commands that walk over all keys of a server or all members of a
// key. A page of a key by its COUNT is none.
var (
	luaSearch = regexp.MustCompile(`(?i)["'](keys|[hsz]?scan|randomkey)["']`)
	luaPage   = regexp.MustCompile(`(?i)["'][hsz]scan["'],.*["']count["'], *\w`)
)

// checkLua finds commands of Redis whose time grows with the number of keys: a server that runs one
// decides nothing meanwhile.
func checkLua(name string, lines []string) (found []Finding) {
	for i, line := range lines {
		if command := luaSearch.FindString(line); command != "" && !luaPage.MatchString(line) {
			found = append(found, Finding{
				fmt.Sprintf("%s:%d", name, i+1), "lua: " + command + " takes as long as there are keys",
			})
		}
	}
	return found
}

// checkComment finds packages whose purpose nobody says.
func checkComment(p *pkg) []Finding {
	code := p.code()
	if len(code) == 0 {
		return nil // tests alone
	}
	for _, file := range code {
		if file.syntax.Doc != nil {
			return nil
		}
	}
	return []Finding{{p.dir, "comment: the package has none"}}
}

// clockless folders get the time as an argument, in their tests as well.
var clockless = []string{"internal/algorithm", "rules", "clientip"}

// clocks are what of package time reads a clock or waits for it.
var clocks = map[string]bool{
	"Now": true, "Since": true, "Until": true, "Sleep": true, "After": true, "AfterFunc": true,
	"Tick": true, "NewTicker": true, "NewTimer": true,
}

// checkClock finds readings of the clock in folders whose functions get the time as an argument:
// what they decide can then be repeated by tests, simulations and replays.
func checkClock(p *pkg) (found []Finding) {
	applies := false
	for _, dir := range clockless {
		applies = applies || contains(dir, p.dir)
	}
	if !applies {
		return nil
	}
	for _, file := range p.files {
		local := importName(file.syntax, "time")
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			if selector, ok := n.(*ast.SelectorExpr); ok && isIdent(selector.X, local) && clocks[selector.Sel.Name] {
				found = append(found, Finding{p.at(n), "clock: time." + selector.Sel.Name + "; the time is an argument here"})
			}
			return true
		})
	}
	return found
}

// importName is the name under which a file knows a package, or "".
func importName(file *ast.File, target string) string {
	for _, spec := range file.Imports {
		if spec.Path.Value != strconv.Quote(target) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return target[strings.LastIndexByte(target, '/')+1:]
	}
	return ""
}

// isIdent reports whether an expression is a plain name. No name is "".
func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && name != "" && id.Name == name
}

// excused says whether a line names the linter forbidigo, which looks for the same,
// and a reason. The general linter sees to it that there is one.
var excused = regexp.MustCompile(`//nolint:[a-z,]*\bforbidigo\b[a-z,]* // `)

// checkPanic finds panics in libraries, except those that are excused by the line.
func checkPanic(p *pkg) (found []Finding) {
	if !p.library() {
		return nil
	}
	for _, file := range p.code() {
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !isIdent(call.Fun, "panic") {
				return true
			}
			if line := file.lines[p.fset.Position(n.Pos()).Line-1]; !excused.MatchString(line) {
				found = append(found, Finding{p.at(n), "panic: a library returns an error"})
			}
			return true
		})
	}
	return found
}

// checkSkips finds tests that leave themselves out.
func checkSkips(p *pkg) (found []Finding) {
	for _, file := range p.files {
		if !file.test {
			continue
		}
		ast.Inspect(file.syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
				switch selector.Sel.Name {
				case "Skip", "Skipf", "SkipNow":
					found = append(found, Finding{p.at(n), "skip: a test that can't run fails"})
				}
			}
			return true
		})
	}
	return found
}
