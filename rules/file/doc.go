// Package file reads files: bounded in size, and as YAML with the place of every value.
package file
