package redisstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

// layout is how states are laid out in the servers. All processes that share them have one layout,
// which the servers remember. It is immutable; a change of the settings in Redis makes another one,
// and policies are prepared for it anew.
type layout struct {
	prefix     string // of keys
	partitions int
	encoding   LogEncoding
	text       string     // as the servers remember it
	tags       []string   // of partitions, in keys
	batchers   []*batcher // one, or on a cluster one for each partition
}

// algorithmKeys are the algorithms' names in keys.
var algorithmKeys = map[stint.Algorithm]string{
	stint.AlgorithmTokenBucket:          "token_bucket",
	stint.AlgorithmLeakyBucket:          "leaky_bucket",
	stint.AlgorithmFixedWindow:          "fixed_window",
	stint.AlgorithmSlidingWindowLog:     "sliding_window_log",
	stint.AlgorithmSlidingWindowCounter: "sliding_window_counter",
	stint.AlgorithmConcurrency:          "concurrency",
}

// nameEscaper escapes a policy's or a limit's name, so that its colons don't run
// into what follows.
var nameEscaper = strings.NewReplacer("%", "%25", ":", "%3A")

// identify is what tells apart the states of one client: the algorithm and the
// names of the policy and the limit.
func identify(policy string, limit stint.Limit, encoding LogEncoding) string {
	name := algorithmKeys[limit.Algorithm]
	if limit.Algorithm == stint.AlgorithmSlidingWindowLog && encoding != LogPacked {
		name += "." + string(encoding)
	}
	return name + ":" + nameEscaper.Replace(policy) + ":" + nameEscaper.Replace(limit.Name)
}

// inEpoch is an identity in an epoch of its policy; in none, 0, it is the identity itself.
func inEpoch(identity string, epoch int64) string {
	if epoch == 0 {
		return identity
	}
	name, rest, _ := strings.Cut(identity, ":")
	return name + "." + strconv.FormatInt(epoch, 10) + ":" + rest
}

// key is where a partition keeps the states of an identity: its hashes, by
// generation, or the log of a client. Only the tag stands in braces.
func (y *layout) key(partition int, identity, last string) string {
	return y.prefix + ":{" + y.tags[partition] + "}:" + identity + ":" + last
}

// generationKeys are the keys of a partition's hash in an epoch of the policy.
type generationKeys struct {
	epoch     int64
	cur, prev string
}

// hash is a partition's hash of the limit in an epoch of its policy. A later epoch than was known
// tells that nobody reads the hash of the earlier one any more, which is returned then, to be
// unlinked. The keys are made once for an epoch, since putting them together for each batch would
// cost an allocation each.
func (y *layout) hash(l *limit, partition int32, epoch int64) (keys, dead *generationKeys) {
	at := &l.hashKeys[partition]
	known := at.Load()
	if known != nil && known.epoch == epoch {
		return known, nil
	}
	identity := inEpoch(l.identity.Value(), epoch)
	g := &generationKeys{
		epoch: epoch,
		cur:   y.key(int(partition), identity, generationNow),
		prev:  y.key(int(partition), identity, generationBefore),
	}
	at.Store(g)
	if known != nil && known.epoch > epoch {
		known = nil
	}
	return g, known
}

// The generations of a partition's hash.
const (
	generationNow    = "cur"
	generationBefore = "prev"
)

// partition is where a client's states are. Clients whose keys have one hash tag in
// common, by the rule of Redis Cluster, are in one partition.
func (y *layout) partition(client string) int {
	return int(hashOf(client) % uint64(y.partitions))
}

// batcherOf is where operations on a client are sent from.
func (y *layout) batcherOf(client string) *batcher {
	if len(y.batchers) == 1 {
		return y.batchers[0]
	}
	return y.batchers[y.partition(client)]
}

// hashOf tells in which partition a client is.
func hashOf(client string) uint64 { return fnv1a(hashTag(client)) }

// fnv1a is the hash of Fowler, Noll and Vo, FNV-1a, in 64 bits, with its bits mixed once more,
// since the low ones are weak. It is part of the layout in Redis. Another hash would look for
// clients in other partitions, and find none.
func fnv1a(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	h ^= h >> 32
	return h
}

// hashTag is what Redis Cluster hashes of a key: what stands between the first '{'
// and the first '}' after it, unless that is nothing.
func hashTag(key string) string {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			return key[open+1 : open+1+length]
		}
	}
	return key
}

// clusterSlots is the number of hash slots of a Redis Cluster.
const clusterSlots = 16384

// partitionTags names n partitions so that their hash slots are spread evenly over a cluster:
// partition i has a slot in the i-th of n equal parts. A tag says how many partitions there are, so
// processes that disagree about it share no state. It tries salts until the tag's slot is in the
// part: n tries on average.
func partitionTags(n int) []string {
	tags := make([]string, n)
	for i := range tags {
		for salt := 0; ; salt++ {
			tags[i] = fmt.Sprintf("%d.%d.%d", n, i, salt)
			if slot(tags[i])*n/clusterSlots == i {
				break
			}
		}
	}
	return tags
}

// slot is the hash slot of a tag: CRC-16/XMODEM modulo the number of slots (Redis
// Cluster specification, "Key distribution model").
func slot(tag string) int {
	crc := uint16(0)
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			carry := crc & 0x8000
			crc <<= 1
			if carry != 0 {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % clusterSlots
}

// keyCopies are copies of the keys of callers that may leave before a batch has been answered, and may then use
// the memory of their keys for others. They are copied one behind another, so that an
// allocation lasts for many batches. Copies are never overwritten: a connection may still have
// to send a command whose batch was given up. The zero value is ready to use.
type keyCopies struct{ room strings.Builder }

// keyCopiesBytes is how much room is made at once.
const keyCopiesBytes = 4096

// keep returns a copy of a name.
func (n *keyCopies) keep(name string) string {
	if n.room.Cap()-n.room.Len() < len(name) {
		n.room.Reset()
		n.room.Grow(max(keyCopiesBytes, len(name)))
	}
	from := n.room.Len()
	n.room.WriteString(name)
	return n.room.String()[from:]
}
