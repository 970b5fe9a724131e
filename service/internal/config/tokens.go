package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
)

// IsBearerToken reports whether the text can stand in an Authorization field (RFC 6750, section
// 2.1). The grammar is b64token = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"=".
func IsBearerToken(token string) bool {
	body := strings.TrimRight(token, "=")
	for i := range len(body) {
		c := body[i]
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		digit := '0' <= c && c <= '9'
		if !letter && !digit && strings.IndexByte("-._~+/", c) < 0 {
			return false
		}
	}
	return body != ""
}

// An AdminRole says what the holder of a token may do on the admin listener. The zero value is
// RoleRead.
type AdminRole uint8

// The roles. Each may do what those before it may.
const (
	// RoleRead looks at rules, their revisions and resets, validates and explains.
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
	// Name says who holds it, in the audit and in the revisions of rules: up to 64 printable ASCII
	// characters. Default: "", which is token- and the first digits of its SHA-256.
	Name string
}

// String hides the token.
func (t AdminToken) String() string { return t.Holder() + " (" + t.Role.String() + ")" }

// Holder is the token's name, or what stands for it.
func (t AdminToken) Holder() string {
	if t.Name != "" {
		return t.Name
	}
	return DigestName("token", []byte(t.Token))
}

// DigestName names what has no name: its kind and the first digits of its SHA-256.
func DigestName(kind string, of []byte) string {
	sum := sha256.Sum256(of)
	return kind + "-" + hex.EncodeToString(sum[:4])
}

const (
	tokenCharacters = "letters, digits and -._~+/ with = at the end"
	tokenForm       = "tokens of " + tokenCharacters
	// MaxTokenName bounds a token's name, in bytes.
	MaxTokenName = 64
)

// tokenNames are what isTokenName admits.
var tokenNames = fmt.Sprintf("names of up to %d printable ASCII characters", MaxTokenName)

func isTokenName(name string) bool {
	return len(name) <= MaxTokenName && bounds.Printable(name)
}

// validateAdminTokens reports everything that is wrong with tokens, without showing them.
func validateAdminTokens(tokens []AdminToken) (faults []error) {
	add := func(value, allowed string) {
		faults = append(faults, stint.Invalid("admin.tokens_file", value, allowed))
	}
	seen := map[string]bool{}
	for _, token := range tokens {
		switch {
		case !IsBearerToken(token.Token):
			add(fmt.Sprintf("a token of %d bytes", len(token.Token)), tokenForm)
		case seen[token.Token]:
			add("a token that is there twice", "each token once, with one role")
		}
		seen[token.Token] = true
		if token.Role > RoleWrite {
			add(fmt.Sprintf("a token with role %d", token.Role), "RoleRead or RoleWrite")
		}
		if !isTokenName(token.Name) {
			add(fmt.Sprintf("a token's name of %d bytes", len(token.Name)), tokenNames)
		}
	}
	return faults
}

// minTokenBytes keeps out tokens that can be guessed.
const minTokenBytes = 16

// readTokens reads bearer tokens: one a line, blank lines and lines that start with
// # left out. The file must not be writable for others than its owner, since who
// can write it can let anybody in; it may be readable, as mounted secrets are. All
// faults are reported at once, by line, without the tokens.
//
// With roles, a token may be followed by read or write, and that by the holder's name. Without a
// role it may write.
func readTokens(name string, roles bool) ([]AdminToken, []error) {
	data, err := rulefile.Bytes(name, maxFileBytes)
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", name, err)}
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, []error{err}
	}
	var faults []error
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" {
		faults = append(faults, stint.Invalid(name+": mode", document.Verbatim(fmt.Sprintf("%#o", mode)),
			"one that only the owner can write, such as 0600"))
	}
	var tokens []AdminToken
	first := map[string]int{}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, i+1)
		token := AdminToken{Token: line, Role: RoleWrite}
		if roles {
			if token, err = withRole(line); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", at, err))
				continue
			}
		}
		line = token.Token
		switch {
		case first[line] > 0 && roles:
			faults = append(faults, fmt.Errorf("%s: the token of line %d again; allowed: each token once", at, first[line]))
		case len(line) < minTokenBytes:
			faults = append(faults, fmt.Errorf("%s: a token of %d characters; allowed: %d or more", at,
				utf8.RuneCountInString(line), minTokenBytes))
		case !IsBearerToken(line):
			faults = append(faults,
				fmt.Errorf("%s: a token with other characters; allowed: %s", at, tokenCharacters))
		default:
			tokens, first[line] = append(tokens, token), i+1
		}
	}
	if len(tokens) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s: no token; allowed: one or more, one a line", name))
	}
	return tokens, faults
}

// withRole takes a line apart: TOKEN [read|write] [NAME].
func withRole(line string) (AdminToken, error) {
	fields := strings.Fields(line)
	token := AdminToken{Token: fields[0], Role: RoleWrite}
	if len(fields) > 3 {
		return token, fmt.Errorf("%d words; allowed: a token, perhaps with read or write, and that with a name", len(fields))
	}
	if len(fields) > 1 {
		role, err := ParseAdminRole(fields[1])
		if err != nil {
			return token, errors.New("the second word is another one; allowed: read or write") // it may be a token
		}
		token.Role = role
	}
	if len(fields) > 2 {
		if token.Name = fields[2]; !isTokenName(token.Name) {
			return token, fmt.Errorf("a name of %d bytes; allowed: %s", len(token.Name), tokenNames)
		}
	}
	return token, nil
}
