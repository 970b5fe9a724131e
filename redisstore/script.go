package redisstore

import (
	_ "embed" // the script's parts
	"regexp"

	"github.com/stint-go/stint/algorithm"
)

var (
	//go:embed logs.lua
	logsLua string
	//go:embed harness.lua
	harnessLua string
)

// Script is the source of the script that decides: the algorithms, the log's
// encodings and the harness. A [Conn] runs it.
func Script() string {
	return comments.ReplaceAllString(algorithm.Lua()+logsLua+harnessLua, "")
}

// comments are whole lines of comment and blank ones, which need not travel.
var comments = regexp.MustCompile(`(?m)^[ \t]*(--.*)?\n`)
