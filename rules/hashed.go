package rules

import (
	"encoding/hex"
	"slices"
	"strings"
)

// hashPrefix begins what stands for a text that is not shown: its SHA-256 in lower hexadecimal
// digits follows. As a part of a client it can't be taken for a text, which has \\ for its \.
const hashPrefix = `\sha256:`

// hashBytes is how long such a part is.
const hashBytes = len(hashPrefix) + 64

// cutHash takes a part that stands for an API key off a client; "" if there is none at its beginning.
func cutHash(client string) (hash, after string) {
	digits, found := strings.CutPrefix(client, hashPrefix)
	if !found || len(client) < hashBytes || len(client) > hashBytes && client[hashBytes] != '|' {
		return "", ""
	}
	digits = digits[:hashBytes-len(hashPrefix)]
	if _, err := hex.DecodeString(digits); err != nil || strings.ToLower(digits) != digits {
		return "", ""
	}
	return client[:hashBytes], client[hashBytes:]
}

// HashedClient is what stands for a client, or a part of one, of which nothing may be shown: \sha256:
// and its SHA-256. It is the text itself if that is one already.
func HashedClient(client string) string {
	if hash, after := cutHash(client); hash != "" && after == "" {
		return client
	}
	return hashed(client)
}

// hashedClient is a client, as an [Override] names it, with the hash of its API key: the same for all
// names of a client. It is the name itself where the scope has no API key.
func (r *Rule) hashedClient(client string) string {
	if !r.counts(PerAPIKey) {
		return client
	}
	parts, err := splitKey(client, "")
	if err != nil || len(parts) != len(r.Scope) {
		return client
	}
	return joinHashed(r.Scope, func(i int) string { return parts[i].name() })
}

// name is the part as an override writes it.
func (p keyPart) name() string {
	if p.hashed {
		return p.text
	}
	return JoinKey(p.text)
}

// joinHashed joins the parts of a client, as overrides write them, with the hash of API keys.
func joinHashed(scope []string, part func(int) string) string {
	var client []byte
	for i := range scope {
		if i > 0 {
			client = append(client, '|')
		}
		name := part(i)
		if scope[i] == PerAPIKey && !strings.HasPrefix(name, hashPrefix) {
			name = hashed(name)
		}
		client = append(client, name...)
	}
	return string(client)
}

// misplacesHash reports whether a hash stands in the place of something that is no API key.
func (r *Rule) misplacesHash(parts []keyPart) bool {
	for i, p := range parts {
		if p.hashed && i < len(r.Scope) && r.Scope[i] != PerAPIKey {
			return true
		}
	}
	return false
}

// namesHashes reports whether an override of the rule names an API key by its hash.
func (r *Rule) namesHashes() bool {
	return r.counts(PerAPIKey) && slices.ContainsFunc(r.Overrides, func(o Override) bool { return strings.Contains(o.Key, hashPrefix) })
}
