package redis

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by it; nothing is kept safe by it
	_ "embed"     // the scripts
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/stint-go/stint/redisstore"
)

var (
	//go:embed commit.lua
	commitLua string
	//go:embed load.lua
	loadLua string
	//go:embed versions.lua
	versionsLua string
)

// script is a script of this package by its source.
func script(source string) *redisstore.Script {
	sum := sha1.Sum([]byte(source)) //nolint:gosec // as above
	return &redisstore.Script{Source: source, Digest: hex.EncodeToString(sum[:])}
}

// fields reads a script's reply: strings, each as its length in bytes, a colon and itself. It
// reports whether it is one.
func fields(reply string) ([]string, bool) {
	var list []string
	for reply != "" {
		digits, rest, found := strings.Cut(reply, ":")
		length, err := strconv.Atoi(digits)
		if !found || err != nil || length < 0 || length > len(rest) {
			return nil, false
		}
		list = append(list, rest[:length])
		reply = rest[length:]
	}
	return list, true
}
