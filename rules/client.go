package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
)

// A part is one part of a scope, ready to be looked up.
type part struct {
	kind      partKind
	attribute string // or the path's parameter
}

type partKind uint8

const (
	globalPart partKind = iota
	addressPart
	userPart
	apiKeyPart
	attributePart
	parameterPart
)

func scopeOf(rule *Rule) []part {
	parts := make([]part, len(rule.Scope))
	for i, scope := range rule.Scope {
		switch scope {
		case Global:
			parts[i].kind = globalPart
		case PerIP:
			parts[i].kind = addressPart
		case PerUser:
			parts[i].kind = userPart
		case PerAPIKey:
			parts[i].kind = apiKeyPart
		default:
			parts[i] = customPart(rule, strings.TrimPrefix(scope, CustomPrefix))
		}
	}
	return parts
}

// customPart is a parameter of the rule's paths if there is one of the name, else an attribute.
func customPart(rule *Rule, name string) part {
	if rule.hasParameter(CustomPrefix + name) {
		return part{kind: parameterPart, attribute: name}
	}
	return part{kind: attributePart, attribute: name}
}

// value is what the request has for the part of a rule's scope, "" if it lacks it.
func (m *Matches) value(c *match, p part) string {
	switch p.kind {
	case globalPart:
		return "*"
	case addressPart:
		return m.request.Address
	case userPart:
		return m.request.User
	case apiKeyPart:
		return m.request.APIKey
	case parameterPart:
		return m.parameter(c, p.attribute)
	case attributePart:
		return m.request.Attributes[p.attribute]
	default:
		return ""
	}
}

// An Outcome is what a rule that matches does with a request. The zero value is Limited.
type Outcome uint8

// The outcomes.
const (
	// Limited requests are decided by the rule's limits, or its override's.
	Limited Outcome = iota
	// Skipped requests lack what the rule's scope asks for, and it does not hold for them.
	Skipped
	// Unlimited requests are not limited by the rule.
	Unlimited
	// Banned requests are denied.
	Banned
	// Lacking requests are denied as they lack what the rule's scope asks for.
	Lacking
)

var outcomeNames = []string{"limited", "skipped", "unlimited", "banned", "lacking"}

// String is the outcome in a word.
func (s Outcome) String() string { return nameOf(outcomeNames, uint8(s)) }

// A Matched rule is one that matches, with what it makes of the request's client.
type Matched struct {
	// Rule must not be changed.
	Rule *Rule
	// Outcome says whether Claim is to be decided.
	Outcome Outcome
	// Claim is the client's key, the rule's policy for it, and the cost. It is empty unless
	// Outcome is Limited.
	Claim stint.Claim
	// And are further claims of the client where limits of the rule have other costs, each with a policy of its own limits. Default: none.
	And []stint.Claim
	// Named is how many of the claims, Claim first, have costs that a request may name.
	Named int
}

// At tells what the i-th rule makes of the request. The error wraps stint.ErrInvalid: a cost
// that the request names and that is none.
//
// The claim's key is the client as an [Override] names it, with these exceptions, none of which can be the
// key of another client: an API key, and what is no printable text or longer than a key may be, appears as
// its SHA-256, behind \sha256: ; a client counted by address, as Missing says, appears behind \ip: .
func (m *Matches) At(i int) (Matched, error) {
	c := &m.rules[i]
	h := Matched{Rule: &c.Rule}
	lacks, plain := m.appendClient(c)
	if lacks {
		switch {
		case c.Missing == MissingSkip:
			h.Outcome = Skipped
			return h, nil
		case c.Missing == MissingIP && m.request.Address != "":
			m.key = append(append(m.key[:0], fallbackPrefix...), m.request.Address...)
			plain = isPrintable(m.request.Address)
		default:
			h.Outcome = Lacking
			return h, nil
		}
	}
	groups, unlimited := c.groups, c.Unlimited
	if len(c.overrides) > 0 && !lacks {
		if o := c.overrideOf(m.key, m.address, m.request.Address, &m.network); o != nil {
			groups, unlimited = o.groups, o.unlimited
		}
	}
	switch {
	case unlimited:
		h.Outcome = Unlimited
	case len(groups) == 0:
		h.Outcome = Banned
	default:
		if err := h.claim(m.stateKey(c, lacks, plain), groups, m.cost); err != nil {
			return Matched{Rule: h.Rule}, err
		}
	}
	return h, nil
}

// claim makes the claims of a client, of which cost tells the permits.
func (h *Matched) claim(key string, groups []group, cost func(*Cost) (int64, error)) error {
	for i := range groups {
		permits, err := cost(&groups[i].cost)
		if err != nil {
			return err
		}
		claim := stint.Claim{Key: key, Policy: groups[i].policy, Permits: permits}
		if i == 0 {
			h.Claim = claim
		} else {
			h.And = append(h.And, claim)
		}
		if groups[i].named() {
			h.Named++
		}
	}
	return nil
}

// appendClient writes the client as overrides name it into m.key. It reports whether the request
// lacks a part, and whether the text can be shown as it is.
func (m *Matches) appendClient(c *match) (lacks, plain bool) {
	m.key = m.key[:0]
	plain = true
	for i, p := range c.scope {
		value := m.value(c, p)
		if value == "" {
			return true, true
		}
		if i > 0 {
			m.key = append(m.key, '|')
		}
		if p.kind == addressPart {
			m.address = len(m.key)
		}
		m.key = appendPart(m.key, value)
		plain = plain && p.kind != apiKeyPart && isPrintable(value)
	}
	return false, plain
}

// Lacks are the scopes of the i-th rule that the request has nothing for, in the rule's order: nil if it
// lacks nothing. PerIP is the last of them also where the request would be counted by its address as Missing
// says, and has none.
func (m *Matches) Lacks(i int) []string {
	c := &m.rules[i]
	var lacks []string
	for j, p := range c.scope {
		if m.value(c, p) == "" {
			lacks = append(lacks, c.Scope[j])
		}
	}
	if len(lacks) > 0 && c.Missing == MissingIP && m.request.Address == "" && !slices.Contains(lacks, PerIP) {
		lacks = append(lacks, PerIP)
	}
	return lacks
}

// stateKey is the key under which the client's state is kept.
func (m *Matches) stateKey(c *match, fallback, plain bool) string {
	if fallback {
		return singleKey(m.key, plain)
	}
	if p := c.scope[0]; len(c.scope) == 1 && plain && (p.kind == addressPart || p.kind == globalPart) {
		if value := m.value(c, p); len(value) <= stint.MaxKeyBytes && value == string(m.key) {
			return value // which is not a part of a longer text that the key would keep
		}
	}
	return keyOf(c.scope, m.key, plain, func(i int) (string, bool) { return m.value(c, c.scope[i]), false })
}

// keyOf is the key of a client, whom overrides name by text. value tells the parts.
func keyOf(scope []part, text []byte, plain bool, value func(int) (text string, hashed bool)) string {
	if plain && len(text) <= stint.MaxKeyBytes || len(scope) == 1 {
		return singleKey(text, plain)
	}
	// Of several parts those that can be shown are.
	var key []byte
	for i, p := range scope {
		if i > 0 {
			key = append(key, '|')
		}
		switch value, isHash := value(i); {
		case isHash:
			key = append(key, value...)
		case p.kind == apiKeyPart || !isPrintable(value):
			key = append(key, hashed(JoinKey(value))...)
		default:
			key = append(key, JoinKey(value)...)
		}
	}
	return singleKey(key, true)
}

// singleKey is a text as a key, hashed if it is none or not to be shown.
func singleKey(text []byte, plain bool) string {
	if plain && len(text) <= stint.MaxKeyBytes {
		return string(text)
	}
	return hashed(string(text))
}

func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hashPrefix + hex.EncodeToString(sum[:])
}

// isPrintable reports whether the text is UTF-8 without control characters.
func isPrintable(text string) bool {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
		}
	}
	return true
}

// cost is what the request takes of limits.
func (m *Matches) cost(c *Cost) (int64, error) {
	text, named := "", ""
	switch {
	case c.Header != "":
		lines := m.request.Header[c.Header]
		if len(lines) > 1 {
			return 0, stint.Invalid(c.Header, strconv.Itoa(len(lines))+" lines", "one")
		}
		if len(lines) == 1 {
			text = lines[0]
		}
		named = c.Header
	case c.Attribute != "":
		text, named = m.request.Attributes[c.Attribute], c.Attribute
	}
	if text == "" {
		return c.Permits, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > stint.MaxPermits {
		const most = 64
		return 0, stint.Invalid(named, text[:min(len(text), most)], fmt.Sprintf("a cost, 1 to %d", stint.MaxPermits))
	}
	return n, nil
}
