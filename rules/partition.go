package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/stint-go/stint"
)

// maxPartition bounds an attribute's value that is a partition's tag as it is.
const maxPartition = 64

// partitionTag is a value as Redis Cluster reads it from a key: in braces. One that is long, or has braces or control
// characters itself, is hashed. Of "" it is "".
func partitionTag(value string) string {
	if value == "" {
		return ""
	}
	if len(value) > maxPartition || strings.ContainsAny(value, "{}") || !isPrintable(value) {
		sum := sha256.Sum256([]byte(value))
		value = hex.EncodeToString(sum[:maxPartition/4])
	}
	return "{" + value + "}"
}

// inPartition is a client's key behind the tag of its partition.
func inPartition(tag, key string) string {
	if tag != "" && len(tag)+len(key) > stint.MaxKeyBytes {
		key = hashed([]byte(key))
	}
	return tag + key
}

// cutPartition takes the tag of a partition off a client, if the rule has partitions.
func (r *Rule) cutPartition(client string) (tag, rest string) {
	if value, rest, found := strings.Cut(client, "}"); found && r.PartitionBy != "" && strings.HasPrefix(value, "{") {
		return value + "}", rest
	}
	return "", client
}
