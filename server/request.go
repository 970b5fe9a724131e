package server

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	cliptext "github.com/stint-go/stint/internal/clip"
)

// A member is one of the things that a request may say: a query parameter or a
// member of a JSON object. A set of them is their sum.
type member uint8

const (
	keyMember member = 1 << iota
	algorithmMember
	policyMember
	permitsMember
	detailsMember // of a query only

	claimMembers = keyMember | algorithmMember | policyMember
	costMembers  = claimMembers | permitsMember
)

// memberNamed returns the member of that name, or 0.
func memberNamed(name string) member {
	switch name {
	case "key":
		return keyMember
	case "algorithm":
		return algorithmMember
	case "policy":
		return policyMember
	case "permits":
		return permitsMember
	case "details":
		return detailsMember
	default:
		return 0
	}
}

// String lists the members' names.
func (m member) String() string {
	var names []string
	for i, name := range []string{"key", "algorithm", "policy", "permits", "details"} {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// A request is what a caller asked for, as it was written; permits is an integer
// in decimal, or something that claims to be one.
type request struct {
	present                         member
	key, algorithm, policy, permits string
	details                         bool
}

// has reports whether the request says any of the members.
func (q *request) has(m member) bool { return q.present&m != 0 }

// set notes a member, which must be among the allowed ones and not be there yet.
func (q *request) set(name, value string, allowed member) error {
	m := memberNamed(name)
	if m&allowed == 0 {
		return stint.Invalid("parameter", clip(name), allowed.String())
	}
	if q.has(m) {
		return badRequest(fmt.Sprintf("%s is repeated; allowed: once", name))
	}
	q.present |= m
	switch m {
	case keyMember:
		q.key = value
	case algorithmMember:
		q.algorithm = value
	case policyMember:
		q.policy = value
	case permitsMember:
		q.permits = value
	case detailsMember:
		if q.details = value == "true"; !q.details && value != "false" {
			return stint.Invalid(name, clip(value), "true or false")
		}
	case claimMembers, costMembers: // sets of members, not one
	}
	return nil
}

// checkKey reports what is wrong with a key that a caller named.
func checkKey(key string) error {
	if key == "" || len(key) > stint.MaxKeyBytes {
		return stint.Invalid("key", clip(key), fmt.Sprintf("1 to %d bytes; it has %d", stint.MaxKeyBytes, len(key)))
	}
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return checkUnicodeKey(key)
		}
	}
	return nil
}

func checkUnicodeKey(key string) error {
	if !utf8.ValidString(key) {
		return stint.Invalid("key", clip(key), "UTF-8")
	}
	if strings.ContainsFunc(key, unicode.IsControl) {
		return stint.Invalid("key", clip(key), "no control characters")
	}
	return nil
}

var errNotInteger = errors.New("not an integer of 64 bits")

// parseInteger reads an integer in decimal: digits, perhaps after a minus sign.
func parseInteger(text string) (int64, error) {
	digits := strings.TrimPrefix(text, "-")
	negative := len(digits) < len(text)
	if digits == "" {
		return 0, errNotInteger
	}
	var n int64 // -|value|, which reaches one further than |value|
	for i := range len(digits) {
		c := digits[i]
		const last, lastDigit = -(1 << 63) / 10, 8
		if c < '0' || c > '9' || n < last || n == last && c-'0' > lastDigit {
			return 0, errNotInteger
		}
		n = n*10 - int64(c-'0')
	}
	if negative {
		return n, nil
	}
	if n == -1<<63 {
		return 0, errNotInteger
	}
	return -n, nil
}

// clip shortens what came to what is worth repeating.
func clip(s string) string {
	const most = 64
	return cliptext.To(most, s)
}

// A batch's size is bounded by what one store call should carry.
func errBatchSize(came string) error {
	return badRequest(fmt.Sprintf("the array has %s; allowed: 1 to %d elements", came, api.MaxBatch))
}
