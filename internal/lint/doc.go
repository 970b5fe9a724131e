// Package lint holds the module's own rules, which its test applies to the whole tree: the
// direction of imports, no clock below the stores' edge, no panic in libraries, no global state,
// and a few more. What a general linter can say better stands in .golangci.yml.
//
// [Check] reads a tree and returns a [Finding] for each place that breaks a rule. The rules are
// functions of one package (a folder's files, parsed) or of one file's lines; floors.txt has the
// table of who may import whom, which is that of ARCHITECTURE.md.
package lint
