// Package migrate holds what docs/migrate.md shows, as tests: programs on other limiters, and the same on stint.
package migrate
