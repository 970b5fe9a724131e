package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// maxPartition bounds an attribute's value that is a partition's tag as it is.
const maxPartition = 64

// partitionTag is a value as Redis Cluster reads it from a key: in braces. One that is long, or has
// braces, backslashes or control characters itself, is hashed, behind a backslash.
func partitionTag(value string) string {
	if len(value) > maxPartition || strings.ContainsAny(value, `{}\`) || !isPrintable(value) {
		sum := sha256.Sum256([]byte(value))
		value = `\` + hex.EncodeToString(sum[:maxPartition/4])
	}
	return "{" + value + "}"
}

// inPartition is a client's key behind the tag of its partition.
func inPartition(tag, key string) string {
	if len(tag)+len(key) > bounds.MaxKeyBytes {
		key = hashed([]byte(key))
	}
	return tag + key
}

// cutPartition takes the tag of a partition off a client, in which the value may stand as it is or hashed. Only one
// that is counted by address instead has none.
func (r *Rule) cutPartition(client string) (tag, rest string, err error) {
	if r.PartitionBy == "" || r.Missing == MissingIP && strings.HasPrefix(client, fallbackPrefix) {
		return "", client, nil
	}
	value, rest, found := strings.Cut(client, "}")
	if !found || len(value) < 2 || value[0] != '{' {
		return "", "", stint.Invalid("key", r.shownKey(client),
			"a client behind the value of "+r.PartitionBy+" in braces, as in {VALUE}CLIENT")
	}
	hash, isHash := strings.CutPrefix(value[1:], `\`)
	if isHash && len(hash) == maxPartition/2 && strings.Trim(hash, "0123456789abcdef") == "" {
		return value + "}", rest, nil
	}
	return partitionTag(value[1:]), rest, nil
}
