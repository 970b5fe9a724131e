package redisstore

import (
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

// identity is all that tells apart one state from another.
type identity struct {
	prefix, key, policy, name string
	algorithm                 stint.Algorithm
	encoding                  LogEncoding
}

// redisKey is the key of the identity, as flights put it together.
func (id identity) redisKey() string {
	l := stint.Limit{Name: id.name, Algorithm: id.algorithm}
	return keyPrefix(id.prefix) + tag(id.key) + keySuffix(id.policy, l, id.encoding)
}

// valid reports whether options and policies accept the parts.
func (id identity) valid() bool {
	options := Options{KeyPrefix: id.prefix, LogEncoding: id.encoding}
	limit := stint.FixedWindow(1, stint.MinPeriod).Named(id.name)
	_, err := stint.NewPolicy(id.policy, limit)
	return err == nil && id.prefix != "" && options.validate() == nil && id.key != "" && len(id.key) <= stint.MaxKeyBytes
}

// hashTag is what a cluster hashes of a key: what stands between the first '{' and
// the first '}' after it, if that is not empty (Redis cluster specification, "Hash
// tags").
func hashTag(key string) string {
	_, after, opened := strings.Cut(key, "{")
	inside, _, closed := strings.Cut(after, "}")
	if !opened || !closed || inside == "" {
		return key
	}
	return inside
}

// checkPair fails the test when two identities share a key, or two limits of one
// client do not share a slot.
func checkPair(t *testing.T, a, b identity) {
	t.Helper()
	if (a.redisKey() == b.redisKey()) != (a == b) {
		t.Errorf("%+v has the key %q, %+v has %q", a, a.redisKey(), b, b.redisKey())
	}
	if (hashTag(a.redisKey()) == hashTag(b.redisKey())) != (a.key == b.key) {
		t.Errorf("%+v is hashed by %q, %+v by %q", a, hashTag(a.redisKey()), b, hashTag(b.redisKey()))
	}
}

// awkward are parts that become alike when they are joined without care.
var awkward = []string{
	"a", "a:b", "b", ":", "::", "a_b", "_", "{a}", "{", "}", "}{", "a}", "a}:token_bucket::", "%", "%25", "%7B", "%7D", "%3A", "%253A",
	" ", "sliding_window_log", "token_bucket", "packed", ".zset", "/", "*",
}

// Distinct identities never share a key, and a client's share a slot.
func TestKeysDistinct(t *testing.T) {
	var ids []identity
	names := append([]string{""}, awkward...)
	keys := append([]string{"a\nb", "a\r\nb", "\x00", "\xff\xfe", "naïve", "日本", strings.Repeat("{", stint.MaxKeyBytes)}, awkward...)
	for _, key := range keys {
		for _, policy := range names {
			ids = append(ids, identity{"p", key, policy, "n", stint.AlgorithmTokenBucket, LogPacked})
		}
		for _, name := range names {
			ids = append(ids, identity{"p", key, "q", name, stint.AlgorithmTokenBucket, LogPacked})
		}
	}
	for _, policy := range names {
		for _, name := range names {
			for _, algorithm := range stint.Algorithms() {
				ids = append(ids, identity{"p:a", "a", policy, name, algorithm, LogPacked})
			}
			for _, encoding := range []LogEncoding{LogZSet, LogStream} {
				ids = append(ids, identity{"p", "a", policy, name, stint.AlgorithmSlidingWindowLog, encoding})
			}
		}
	}
	seen := map[string]identity{}
	for _, id := range ids {
		if !id.valid() {
			t.Fatalf("%+v is no identity that could be used", id)
		}
		if other, taken := seen[id.redisKey()]; taken && other != id {
			t.Errorf("%+v and %+v have the key %q", id, other, id.redisKey())
		}
		seen[id.redisKey()] = id
		if got := tag(id.key); hashTag(id.redisKey()) != got {
			t.Errorf("%+v is hashed by %q, not by %q", id, hashTag(id.redisKey()), got)
		}
	}
	for i, id := range ids {
		checkPair(t, id, ids[(i*7919+1)%len(ids)])
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
	id := identity{prefix, key, policy, name, stint.Algorithms()[int(kind)%5], LogPacked}
	if id.algorithm == stint.AlgorithmSlidingWindowLog {
		id.encoding = []LogEncoding{LogPacked, LogZSet, LogStream}[int(kind)/5%3]
	}
	return id
}
