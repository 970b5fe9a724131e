package lint

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
)

// checkState finds global state: init functions, and package-level variables that
// are changed outside their declaration or made to be changed. Variables that the
// linker or the compiler fills in (-X, go:embed) do not count.
func checkState(p *pkg) (found []Finding) {
	var files []*ast.File
	for _, file := range p.code() {
		files = append(files, file.syntax)
	}
	if len(files) == 0 {
		return nil
	}
	s := stateRule{pkg: p, uses: make(map[*ast.Ident]types.Object)}
	// Only the package's own names matter. What it imports stays unknown, and the
	// faults that come of it are not reported.
	config := types.Config{Importer: noImporter{}, Error: func(error) {}}
	s.scope, _ = config.Check(p.dir, p.fset, files, &types.Info{Uses: s.uses})
	for _, file := range files {
		for _, decl := range file.Decls {
			s.declaration(decl)
		}
		ast.Inspect(file, s.statement)
	}
	return s.found
}

// noImporter imports nothing: the package is checked by itself, which needs no build of what it
// imports.
type noImporter struct{}

func (noImporter) Import(string) (*types.Package, error) { return nil, errors.New("not needed") }

// A stateRule looks at one package. uses says which object each name means, and scope tells the
// package's own variables from local ones of the same name.
type stateRule struct {
	pkg   *pkg
	scope *types.Package
	uses  map[*ast.Ident]types.Object
	found []Finding
}

// report adds a finding at a node.
func (s *stateRule) report(n ast.Node, what string) {
	s.found = append(s.found, Finding{s.pkg.at(n), "state: " + what})
}

// declaration looks for init functions, and for package-level variables of types that are made to be
// changed. What a function literal declares is local.
func (s *stateRule) declaration(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil && d.Name.Name == "init" {
			s.report(d, "an init function; let the caller call it")
		}
	case *ast.GenDecl:
		if d.Tok != token.VAR {
			return
		}
		for _, spec := range d.Specs {
			v := spec.(*ast.ValueSpec)
			ast.Inspect(v, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncLit:
					return false // what it holds is not global
				case *ast.SelectorExpr:
					if isIdent(n.X, "sync") || isIdent(n.X, "atomic") {
						s.report(v, v.Names[0].Name+" is made to be changed; make it a field")
						return false
					}
				}
				return true
			})
		}
	}
}

// statement looks for changes of package-level variables.
func (s *stateRule) statement(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			s.changed(n.Lhs...)
		}
	case *ast.RangeStmt:
		if n.Tok == token.ASSIGN {
			s.changed(n.Key, n.Value)
		}
	case *ast.IncDecStmt:
		s.changed(n.X)
	case *ast.CallExpr:
		if len(n.Args) > 0 && (isIdent(n.Fun, "delete") || isIdent(n.Fun, "clear")) {
			s.changed(n.Args[0])
		}
	}
	return true
}

// changed reports the targets that are, or are part of, a package-level variable.
func (s *stateRule) changed(targets ...ast.Expr) {
	for _, target := range targets {
		id := s.root(target)
		if id == nil {
			continue
		}
		switch object := s.uses[id].(type) {
		case *types.PkgName:
			s.report(id, "a variable of package "+object.Imported().Path()+" is changed")
		case *types.Var:
			if object.Parent() == s.scope.Scope() {
				s.report(id, id.Name+" is changed after its declaration; make it a field")
			}
		}
	}
}

// root is the variable at the bottom of x, x.f, x[i], *x and (x).
func (s *stateRule) root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}
