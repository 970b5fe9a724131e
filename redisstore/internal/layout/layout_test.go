package layout

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
)

// identity is all that tells apart one state from another.
type identity struct {
	prefix, key, policy, name string
	algorithm                 stint.Algorithm
	encoding                  string
}

// place is where a state is: in a field of a hash, or in a key of its own.
type place struct{ key, field string }

// testPartitions is how many partitions the identities' stores have.
const testPartitions = 16

var testTags = partitionTags(testPartitions)

// place is the place of the identity in a generation, as batches put it together.
func (id identity) place(generation string) place {
	y := &Layout{Prefix: id.prefix, Partitions: testPartitions, Tags: testTags}
	l := stint.Limit{Name: id.name, Algorithm: id.algorithm}
	identity := identify(id.policy, l, id.encoding)
	if id.algorithm == stint.AlgorithmSlidingWindowLog {
		return place{y.Key(y.Partition(id.key), identity, id.key), ""}
	}
	return place{y.Key(y.Partition(id.key), identity, generation), id.key}
}

// valid reports whether options and policies accept the parts.
func (id identity) valid() bool {
	limit := stint.FixedWindow(1, bounds.MinPeriod).Named(id.name)
	_, err := stint.NewPolicy(id.policy, limit)
	return err == nil && ValidPrefix(id.prefix) && ValidEncoding(id.encoding) && id.key != "" && len(id.key) <= bounds.MaxKeyBytes
}

// ruleTag is what a cluster hashes of a key: what stands between the first '{' and
// the first '}' after it, if that is not empty (Redis cluster specification, "Hash
// tags").
func ruleTag(key string) string {
	_, after, opened := strings.Cut(key, "{")
	inside, _, closed := strings.Cut(after, "}")
	if !opened || !closed || inside == "" {
		return key
	}
	return inside
}

// checkPair fails the test when two identities share a state, when a state's
// generations do, or when two limits of one client, or of clients with one hash tag,
// do not share a slot.
func checkPair(t *testing.T, a, b identity) {
	t.Helper()
	now, before, other := a.place(GenerationNow), a.place(GenerationBefore), b.place(GenerationNow)
	if (now == other) != (a == b) {
		t.Errorf("%+v is at %q, %+v at %q", a, now, b, other)
	}
	if log := a.algorithm == stint.AlgorithmSlidingWindowLog; (now == before) != log || before == other && a != b {
		t.Errorf("%+v is at %q and %q, %+v at %q", a, now, before, b, other)
	}
	tags := [...]string{ruleTag(now.key), ruleTag(before.key), ruleTag(other.key)}
	if tags[0] != tags[1] || ruleTag(a.key) == ruleTag(b.key) && tags[0] != tags[2] {
		t.Errorf("%+v is hashed by %q and %q, %+v by %q", a, tags[0], tags[1], b, tags[2])
	}
	if !slices.Contains(testTags, tags[0]) {
		t.Errorf("%+v is hashed by %q, which is no partition's tag", a, tags[0])
	}
}

// awkward are parts that become alike when they are joined without care.
var awkward = []string{
	"a", "a:b", "b", ":", "::", "a_b", "_", "{a}", "{", "}", "}{", "a}", "a}:token_bucket::", "%", "%25", "%7B", "%7D", "%3A", "%253A",
	" ", "sliding_window_log", "token_bucket", "packed", ".zset", "/", "*",
}

// Distinct identities never share a state, and a client's share a slot.
func TestKeysDistinct(t *testing.T) {
	var ids []identity
	names := append([]string{""}, awkward...)
	keys := append([]string{
		"a\nb", "a\r\nb", "\x00", "\xff\xfe", "naïve", "日本", strings.Repeat("{", bounds.MaxKeyBytes), "cur", "prev", "a:cur", "{a}b", "b{a}",
	}, awkward...)
	for _, algorithm := range []stint.Algorithm{stint.AlgorithmTokenBucket, stint.AlgorithmSlidingWindowLog} {
		for _, key := range keys {
			for _, policy := range names {
				ids = append(ids, identity{"p", key, policy, "n", algorithm, Packed})
			}
			for _, name := range names {
				ids = append(ids, identity{"p", key, "q", name, algorithm, Packed})
			}
		}
	}
	for _, policy := range names {
		for _, name := range names {
			for _, algorithm := range notation.Algorithms() {
				ids = append(ids, identity{"p:a", "a", policy, name, algorithm, Packed})
			}
			for _, encoding := range []string{ZSet, Stream} {
				ids = append(ids, identity{"p", "a", policy, name, stint.AlgorithmSlidingWindowLog, encoding})
			}
		}
	}
	seen := map[place]identity{}
	for _, id := range ids {
		if !id.valid() {
			t.Fatalf("%+v is no identity that could be used", id)
		}
		for _, generation := range []string{GenerationNow, GenerationBefore} {
			at := id.place(generation)
			if other, taken := seen[at]; taken && other != id {
				t.Errorf("%+v and %+v are at %q", id, other, at)
			}
			seen[at] = id
			if at.key == id.prefix+":partitions" {
				t.Errorf("%+v is where the number of partitions is", id)
			}
		}
	}
	for i, id := range ids {
		checkPair(t, id, ids[(i*7919+1)%len(ids)])
	}
}

// Redis cluster specification, "Hash tags", with its examples.
func TestHashTag(t *testing.T) {
	for key, want := range map[string]string{
		"{user1000}.following": "user1000", "foo{}{bar}": "foo{}{bar}", "foo{{bar}}zap": "{bar", "foo{bar}{zap}": "bar",
		"": "", "a": "a", "{": "{", "{a": "{a", "}a{b}": "b", "{}": "{}",
	} {
		if got := hashTag(key); got != want || ruleTag(key) != want {
			t.Errorf("%q is hashed by %q, want %q", key, got, want)
		}
	}
}

// The slots of partitions are spread evenly: each has one in its part of all.
func TestPartitionTags(t *testing.T) {
	if got := Slot("123456789"); got != 0x31c3%clusterSlots { // CRC-16/XMODEM's check value
		t.Errorf("slot %d, want %d", got, 0x31c3%clusterSlots)
	}
	seen := map[string]int{}
	for _, n := range []int{1, 2, 8, 16, MaxPartitions} {
		for i, tag := range partitionTags(n) {
			if other, taken := seen[tag]; taken {
				t.Errorf("the tag %q is of %d partitions and of %d", tag, other, n)
			}
			seen[tag] = n
			first, end := (i*clusterSlots+n-1)/n, ((i+1)*clusterSlots+n-1)/n
			if at := Slot(tag); ruleTag(tag) != tag || at < first || at >= end {
				t.Errorf("partition %d of %d, %q, has slot %d, want %d to %d", i, n, tag, at, first, end-1)
			}
		}
	}
}

// Clients are spread evenly over the partitions.
func TestPartitionsOfClients(t *testing.T) {
	for hash, text := range map[uint64]string{ // FNV-1a's test vectors, by its authors
		0xcbf29ce484222325: "", 0xaf63dc4c8601ec8c: "a", 0x85944171f73967e8: "foobar",
	} {
		if got, want := fnv1a(text), hash^hash>>32; got != want {
			t.Errorf("%q has the hash %x, want %x", text, got, want)
		}
	}
	const clients = 20_000
	for _, n := range []int{2, 16, MaxPartitions} {
		y := &Layout{Partitions: n}
		for _, name := range []string{"%d", "user:%d", "10.0.0.%d", "%d@example.org", "%016x"} {
			counts := make([]int, n)
			for i := range clients {
				counts[y.Partition(fmt.Sprintf(name, i))]++
			}
			mean := float64(clients) / float64(n)
			if slack := 6 * math.Sqrt(mean); float64(slices.Min(counts)) < mean-slack || float64(slices.Max(counts)) > mean+slack {
				t.Errorf("clients %q in %d partitions: %d to %d of %d in each, want about %.0f",
					name, n, slices.Min(counts), slices.Max(counts), clients, mean)
			}
		}
	}
}

// Processes of several versions share states, so where these are may not change.
func TestLayoutIsKept(t *testing.T) {
	for _, c := range []struct {
		id   identity
		want place
	}{
		{
			identity{"rate_limiter", "user:42", "", "", stint.AlgorithmTokenBucket, Packed},
			place{"rate_limiter:{16.6.0}:token_bucket:::cur", "user:42"},
		},
		{
			identity{"rate_limiter", "{eu}user:42", "a:b", "x%", stint.AlgorithmSlidingWindowCounter, Packed},
			place{"rate_limiter:{16.8.2}:sliding_window_counter:a%3Ab:x%25:cur", "{eu}user:42"},
		},
		{
			identity{"p", "10.0.0.1", "api", "", stint.AlgorithmSlidingWindowLog, Packed},
			place{"p:{16.0.22}:sliding_window_log:api::10.0.0.1", ""},
		},
		{
			identity{"p", "10.0.0.1", "api", "", stint.AlgorithmSlidingWindowLog, ZSet},
			place{"p:{16.0.22}:sliding_window_log.zset:api::10.0.0.1", ""},
		},
	} {
		if got := c.id.place(GenerationNow); got != c.want {
			t.Errorf("%+v is at %q, want %q", c.id, got, c.want)
		}
	}
}

func FuzzKeys(f *testing.F) {
	for i, part := range awkward {
		other := awkward[(i+1)%len(awkward)]
		f.Add("p", part, part, other, byte(i), "p", other, part, part, byte(i+1))
		f.Add("p:"+part, part, "", part, byte(0), "p", part, part, "", byte(0))
	}
	f.Fuzz(func(t *testing.T, prefixA, keyA, policyA, nameA string, kindA byte, prefixB, keyB, policyB, nameB string, kindB byte) {
		a, b := identityOf(prefixA, keyA, policyA, nameA, kindA), identityOf(prefixB, keyB, policyB, nameB, kindB)
		if !a.valid() || !b.valid() {
			return
		}
		checkPair(t, a, b)
		checkPair(t, a, a)
		// One part that differs, and parts that swap places.
		for _, c := range []identity{
			{b.prefix, a.key, a.policy, a.name, a.algorithm, a.encoding},
			{a.prefix, b.key, a.policy, a.name, a.algorithm, a.encoding},
			{a.prefix, a.key, b.policy, a.name, a.algorithm, a.encoding},
			{a.prefix, a.key, a.policy, b.name, a.algorithm, a.encoding},
			{a.prefix, a.key, a.name, a.policy, a.algorithm, a.encoding},
			{a.prefix, a.key, a.policy, a.name, b.algorithm, b.encoding},
		} {
			checkPair(t, a, c)
		}
	})
}

func identityOf(prefix, key, policy, name string, kind byte) identity {
	id := identity{prefix, key, policy, name, notation.Algorithms()[int(kind)%5], Packed}
	if id.algorithm == stint.AlgorithmSlidingWindowLog {
		id.encoding = []string{Packed, ZSet, Stream}[int(kind)/5%3]
	}
	return id
}
