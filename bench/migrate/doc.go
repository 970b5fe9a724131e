// Package migrate holds what docs/migrate.md and the pages below it show, as tests: programs on other limiters, and the same on stint.
package migrate
