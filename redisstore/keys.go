package redisstore

import (
	"strings"

	"github.com/stint-go/stint"
)

// algorithmKeys are the algorithms' names in keys.
var algorithmKeys = map[stint.Algorithm]string{
	stint.AlgorithmTokenBucket:          "token_bucket",
	stint.AlgorithmLeakyBucket:          "leaky_bucket",
	stint.AlgorithmFixedWindow:          "fixed_window",
	stint.AlgorithmSlidingWindowLog:     "sliding_window_log",
	stint.AlgorithmSlidingWindowCounter: "sliding_window_counter",
}

var (
	// A brace in a client's key would end or fake the hash tag.
	clientEscaper = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")
	// A colon in a policy's name would run into the limit's.
	policyEscaper = strings.NewReplacer("%", "%25", ":", "%3A")
)

// keyPrefix is the part of a key up to the client's own.
func keyPrefix(prefix string) string { return prefix + ":{" }

// keySuffix is the part of a key behind the client's own.
func keySuffix(policy string, limit stint.Limit, encoding LogEncoding) string {
	name := algorithmKeys[limit.Algorithm]
	if limit.Algorithm == stint.AlgorithmSlidingWindowLog && encoding != LogPacked {
		name += "." + string(encoding)
	}
	return "}:" + name + ":" + policyEscaper.Replace(policy) + ":" + limit.Name
}

// tag is the part of a client's keys that a cluster hashes.
func tag(client string) string { return clientEscaper.Replace(client) }
