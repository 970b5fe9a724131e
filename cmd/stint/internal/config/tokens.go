package config

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/server"
)

// minTokenBytes keeps out tokens that can be guessed.
const minTokenBytes = 16

// readTokens reads bearer tokens: one a line, blank lines and lines that start with
// # left out. The file must not be writable for others than its owner, since who
// can write it can let anybody in; it may be readable, as mounted secrets are. All
// faults are reported at once, by line, without the tokens.
//
// With roles, a token may be followed by read or write, and that by the holder's name. Without a
// role it may write.
func readTokens(name string, roles bool) ([]server.AdminToken, []error) {
	data, err := file.Bytes(name, maxFileBytes)
	if err != nil {
		return nil, []error{fmt.Errorf("%s: %w", name, err)}
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, []error{err}
	}
	var faults []error
	if mode := info.Mode().Perm(); mode&0o022 != 0 && runtime.GOOS != "windows" {
		faults = append(faults, stint.Invalid(name+": mode", document.Verbatim(fmt.Sprintf("%#o", mode)), "one that only the owner can write, such as 0600"))
	}
	var tokens []server.AdminToken
	first := map[string]int{}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, i+1)
		token := server.AdminToken{Token: line, Role: server.RoleWrite}
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
			faults = append(faults, fmt.Errorf("%s: a token of %d characters; allowed: %d or more", at, utf8.RuneCountInString(line), minTokenBytes))
		case !server.IsBearerToken(line):
			faults = append(faults, fmt.Errorf("%s: a token with other characters; allowed: letters, digits and -._~+/ with = at the end", at))
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
func withRole(line string) (server.AdminToken, error) {
	fields := strings.Fields(line)
	token := server.AdminToken{Token: fields[0], Role: server.RoleWrite}
	if len(fields) > 3 {
		return token, fmt.Errorf("%d words; allowed: a token, perhaps with read or write, and that with a name", len(fields))
	}
	if len(fields) > 1 {
		role, err := server.ParseAdminRole(fields[1])
		if err != nil {
			return token, errors.New("the second word is another one; allowed: read or write") // it may be a token
		}
		token.Role = role
	}
	if len(fields) > 2 {
		token.Name = fields[2]
	}
	return token, nil
}
