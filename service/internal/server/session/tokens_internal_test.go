package session

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

func TestIsLocalHost(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LOCALHOST:8079": true, "127.0.0.1": true, "127.0.0.1:8079": true, "127.9.9.9:1": true,
		"[::1]": true, "[::1]:8079": true, "::1": true,
		"": false, "example.com": false, "example.com:8079": false, "localhost.example.com": false,
		"127.0.0.1.example.com": false, "10.0.0.1:8079": false, "[2001:db8::1]:80": false, "0.0.0.0:80": false,
		"localhost@example.com": false,
	} {
		if got := isLocalHost(host); got != want {
			t.Errorf("isLocalHost(%q) = %v, want %v", host, got, want)
		}
	}
}

// Tokens are compared in constant time: by crypto/subtle, every one of them, as hashes
// of one length; nothing else in the package looks at one.
func TestTokensAreComparedInConstantTime(t *testing.T) {
	text := must.Get(os.ReadFile("tokens.go"))(t)
	file := must.Get(parser.ParseFile(token.NewFileSet(), "tokens.go", text, 0))(t)
	compares := 0
	for _, declaration := range file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Name.Name != "Index" {
			continue
		}
		ast.Inspect(function.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.IfStmt, *ast.BranchStmt, *ast.SwitchStmt:
				t.Errorf("a branch at %v makes the time depend on the token", n.Pos())
			case *ast.RangeStmt:
				ast.Inspect(n.Body, func(n ast.Node) bool {
					switch n := n.(type) {
					case *ast.ReturnStmt:
						t.Error("the loop ends early")
					case *ast.SelectorExpr:
						if n.Sel.Name == "ConstantTimeCompare" {
							compares++
						}
					}
					return true
				})
			}
			return true
		})
	}
	if compares != 1 || !strings.Contains(string(text), `"crypto/subtle"`) {
		t.Errorf("Index compares with crypto/subtle in %d places of its loop, want 1", compares)
	}
}
