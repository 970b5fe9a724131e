// Package migrate holds the programs that docs/migrate.md and the pages below it show, as tests: each
// on another limiter, and the same on stint.
package migrate
