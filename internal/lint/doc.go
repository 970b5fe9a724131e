// Package lint holds the module's own rules, which its test applies to the whole tree: the
// direction of imports, no clock below the stores' edge, no panic in libraries, no global state,
// and a few more. What a general linter can say better stands in .golangci.yml.
package lint
