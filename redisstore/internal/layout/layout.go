// Package layout says where states are in the servers: the keys, the partitions of clients, the two generations of a
// partition's hash, the epochs that are part of keys' names, and the parameters by which a state is written. It sends
// nothing.
//
// Processes of several versions share states, so nothing here may change its meaning.
package layout

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint"
)

// MaxPartitions is how many partitions there may be, a power of two.
const MaxPartitions = 256

// The encodings of a sliding window log. Each has its own keys.
const (
	Packed = "packed" // one string of records of 4 to 11 bytes
	ZSet   = "zset"
	Stream = "stream"
)

// logLetters are the scripts' letters for the log's encodings.
var logLetters = map[string]string{Packed: "p", ZSet: "z", Stream: "x"}

// A Layout is how states are laid out in the servers. All processes that share them have one layout,
// which the servers remember. It is immutable, and policies are prepared for it.
type Layout struct {
	Prefix     string // of keys
	Partitions int
	Encoding   string
	Text       string   // as the servers remember it
	Tags       []string // of partitions, in keys

	owner byte // of the plans that policies carry
}

// New is a layout of a valid prefix, number of partitions and encoding.
func New(prefix string, partitions int, encoding string) *Layout {
	return &Layout{
		Prefix:     prefix,
		Partitions: partitions,
		Encoding:   encoding,
		Text:       fmt.Sprintf("%d %s", partitions, encoding),
		Tags:       partitionTags(partitions),
	}
}

// Parse reads a layout's text. It reports false if there is no such layout.
func Parse(text string) (partitions int, encoding string, ok bool) {
	number, encoding, _ := strings.Cut(text, " ")
	partitions, err := strconv.Atoi(number)
	return partitions, encoding, err == nil && ValidPartitions(partitions) && ValidEncoding(encoding)
}

// ValidPartitions reports whether there may be so many partitions.
func ValidPartitions(n int) bool { return n >= 1 && n <= MaxPartitions && n&(n-1) == 0 }

// ValidEncoding reports whether logs are kept so.
func ValidEncoding(encoding string) bool { return logLetters[encoding] != "" }

// ValidPrefix reports whether keys may begin with a prefix.
func ValidPrefix(prefix string) bool {
	valid := prefix != "" && len(prefix) <= 64
	for _, c := range []byte(prefix) {
		valid = valid && c > 0x20 && c < 0x7f && c != '{' && c != '}'
	}
	return valid
}

// AlgorithmKeys are the algorithms' names in keys.
var AlgorithmKeys = map[stint.Algorithm]string{
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
func identify(policy string, limit stint.Limit, encoding string) string {
	name := AlgorithmKeys[limit.Algorithm]
	if limit.Algorithm == stint.AlgorithmSlidingWindowLog && encoding != Packed {
		name += "." + encoding
	}
	return name + ":" + nameEscaper.Replace(policy) + ":" + nameEscaper.Replace(limit.Name)
}

// InEpoch is an identity in an epoch of its policy; in none, 0, it is the identity itself.
func InEpoch(identity string, epoch int64) string {
	if epoch == 0 {
		return identity
	}
	name, rest, _ := strings.Cut(identity, ":")
	return name + "." + strconv.FormatInt(epoch, 10) + ":" + rest
}

// Key is where a partition keeps the states of an identity: its hashes, by
// generation, or the log of a client. Only the tag stands in braces.
func (y *Layout) Key(partition int, identity, last string) string {
	return y.Prefix + ":{" + y.Tags[partition] + "}:" + identity + ":" + last
}

// GenerationKeys are the keys of a partition's hash in an epoch of the policy.
type GenerationKeys struct {
	Epoch     int64
	Cur, Prev string
}

// Hash is a partition's hash of the limit in an epoch of its policy. A later epoch than was known
// tells that nobody reads the hash of the earlier one any more, which is returned then, to be
// unlinked. The keys are made once for an epoch, since putting them together for each batch would
// cost an allocation each.
func (y *Layout) Hash(l *Limit, partition int32, epoch int64) (keys, dead *GenerationKeys) {
	at := &l.hashKeys[partition]
	known := at.Load()
	if known != nil && known.Epoch == epoch {
		return known, nil
	}
	identity := InEpoch(l.Identity.Value(), epoch)
	g := &GenerationKeys{
		Epoch: epoch,
		Cur:   y.Key(int(partition), identity, GenerationNow),
		Prev:  y.Key(int(partition), identity, GenerationBefore),
	}
	at.Store(g)
	if known != nil && known.Epoch > epoch {
		known = nil
	}
	return g, known
}

// The generations of a partition's hash.
const (
	GenerationNow    = "cur"
	GenerationBefore = "prev"
)

// Partition is where a client's states are. Clients whose keys have one hash tag in
// common, by the rule of Redis Cluster, are in one partition.
func (y *Layout) Partition(client string) int {
	return int(HashOf(client) % uint64(y.Partitions))
}

// HashOf tells in which partition a client is.
func HashOf(client string) uint64 { return fnv1a(hashTag(client)) }

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
			if Slot(tags[i])*n/clusterSlots == i {
				break
			}
		}
	}
	return tags
}

// Slot is the hash slot of a tag: CRC-16/XMODEM modulo the number of slots (Redis
// Cluster specification, "Key distribution model").
func Slot(tag string) int {
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

// SettingsKey is where the servers remember the layout.
func (y *Layout) SettingsKey() string { return y.Prefix + ":settings" }

// AllPolicies is the field of the settings with the epoch of all policies.
const AllPolicies = "all"

// EpochField is the field of the settings with the epoch of a policy.
func EpochField(policy string) string { return ":" + policy }

// Epochs are those of policies as a process knows them of one server, by the fields of the settings. Each is the
// larger of the epoch of all policies and the policy's own. The zero value knows none. It is safe for concurrent use.
type Epochs struct {
	mu  sync.RWMutex
	all int64
	of  map[string]int64
}

// Get returns a policy's epoch.
func (e *Epochs) Get(field string) int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return max(e.all, e.of[field])
}

// Raise notes an epoch. It reports whether that is news.
func (e *Epochs) Raise(field string, epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case epoch <= max(e.all, e.of[field]):
		return false
	case field == AllPolicies:
		e.all, e.of = epoch, nil
	case e.of == nil:
		e.of = map[string]int64{field: epoch}
	default:
		e.of[field] = epoch
	}
	return true
}
