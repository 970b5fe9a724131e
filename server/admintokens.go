package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/stint-go/stint"
)

// An AdminRole says what the holder of a token may do on the admin listener. The zero value is
// RoleRead.
type AdminRole uint8

// The roles. Each may do what those before it may.
const (
	// RoleRead looks at rules, their versions and resets, validates and explains.
	RoleRead AdminRole = iota
	// RoleWrite changes rules, resets clients, and takes profiles, which show memory.
	RoleWrite
)

// String is read or write.
func (r AdminRole) String() string {
	if r == RoleWrite {
		return "write"
	}
	return "read"
}

// ParseAdminRole reads read or write.
func ParseAdminRole(name string) (AdminRole, error) {
	switch name {
	case "read":
		return RoleRead, nil
	case "write":
		return RoleWrite, nil
	default:
		return RoleRead, stint.Invalid("role", name, "read or write")
	}
}

// An AdminToken is a bearer token of the admin listener.
type AdminToken struct {
	// Token is the token itself: letters, digits and -._~+/ with = at the end.
	Token string
	// Role says what its holder may do.
	Role AdminRole
	// Name says who holds it, in the audit and in the versions of rules: up to 64 printable ASCII
	// characters. Default: "", which is token- and the first digits of its SHA-256.
	Name string
}

// String hides the token.
func (t AdminToken) String() string { return t.name() + " (" + t.Role.String() + ")" }

// name is the token's name, or what stands for it.
func (t AdminToken) name() string {
	if t.Name != "" {
		return t.Name
	}
	return byDigest("token", []byte(t.Token))
}

// byDigest names what has no name: its kind and the first digits of its SHA-256.
func byDigest(kind string, of []byte) string {
	sum := sha256.Sum256(of)
	return kind + "-" + hex.EncodeToString(sum[:4])
}

const (
	tokenForm = "tokens of letters, digits and -._~+/ with = at the end"
	// maxTokenName bounds a token's name.
	maxTokenName = 64
)

// validateAdminTokens reports everything that is wrong with tokens, without showing them.
func validateAdminTokens(tokens []AdminToken) (faults []error) {
	add := func(value, allowed string) {
		faults = append(faults, stint.Invalid("admin.tokens_file", value, allowed))
	}
	seen := map[string]bool{}
	for _, token := range tokens {
		switch {
		case !isBearerToken(token.Token):
			add(fmt.Sprintf("a token of %d bytes", len(token.Token)), tokenForm)
		case seen[token.Token]:
			add("a token that is there twice", "each token once, with one role")
		}
		seen[token.Token] = true
		if token.Role > RoleWrite {
			add(fmt.Sprintf("a token with role %d", token.Role), "RoleRead or RoleWrite")
		}
		unprintable := strings.ContainsFunc(token.Name, func(r rune) bool { return r < ' ' || r > '~' })
		if len(token.Name) > maxTokenName || unprintable {
			add(fmt.Sprintf("a token's name of %d bytes", len(token.Name)), fmt.Sprintf("names of up to %d printable ASCII characters", maxTokenName))
		}
	}
	return faults
}

// adminTokens are tokens with what they stand for.
type adminTokens struct {
	hashes tokenSet
	tokens []AdminToken // without the token itself
}

func newAdminTokens(tokens []AdminToken) adminTokens {
	var known adminTokens
	for _, token := range tokens {
		known.hashes = append(known.hashes, sha256.Sum256([]byte(token.Token)))
		known.tokens = append(known.tokens, AdminToken{Role: token.Role, Name: token.name()})
	}
	return known
}

// find tells whose token the lines of Authorization hold.
func (t adminTokens) find(lines []string) (who string, role AdminRole, err error) {
	place, err := t.hashes.find(lines)
	if err != nil {
		return "", 0, err
	}
	return t.tokens[place].Name, t.tokens[place].Role, nil
}
