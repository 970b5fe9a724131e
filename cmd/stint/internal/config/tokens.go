package config

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules/file"
	"github.com/stint-go/stint/rules/notation"
)

// minTokenBytes keeps out tokens that can be guessed.
const minTokenBytes = 16

// readTokens reads bearer tokens: one a line, blank lines and lines that start with
// # left out. The file must not be writable for others than its owner, since who
// can write it can let anybody in; it may be readable, as mounted secrets are. All
// faults are reported at once, by line, without the tokens.
func readTokens(name string) ([]string, []error) {
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
		faults = append(faults, stint.Invalid(name+": mode", notation.Verbatim(fmt.Sprintf("%#o", mode)), "one that only the owner can write, such as 0600"))
	}
	var tokens []string
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		at := fmt.Sprintf("%s:%d", name, i+1)
		switch {
		case len(line) < minTokenBytes:
			faults = append(faults, fmt.Errorf("%s: a token of %d characters; allowed: %d or more", at, utf8.RuneCountInString(line), minTokenBytes))
		case !isBearerToken(line):
			faults = append(faults, fmt.Errorf("%s: a token with other characters; allowed: letters, digits and -._~+/ with = at the end", at))
		default:
			tokens = append(tokens, line)
		}
	}
	if len(tokens) == 0 && len(faults) == 0 {
		faults = append(faults, fmt.Errorf("%s: no token; allowed: one or more, one a line", name))
	}
	return tokens, faults
}

// isBearerToken reports whether the text is a b64token (RFC 6750, section 2.1).
func isBearerToken(text string) bool {
	body := strings.TrimRight(text, "=")
	return body != "" && !strings.ContainsFunc(body, func(r rune) bool {
		return !isLetterOrDigit(r) && !strings.ContainsRune("-._~+/", r)
	})
}
