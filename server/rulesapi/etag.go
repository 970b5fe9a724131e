package rulesapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/server/problem"
)

// tagOf is the entity tag of a text: equal texts have equal ones.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// ruleTag is the entity tag of a rule.
func ruleTag(rule *rules.Rule) (string, error) {
	text, err := notation.JSON(*rule)
	return tagOf(text), err
}

// listTag is the entity tag of all rules. Where no versions are counted it is that of what the
// rules say.
func listTag(head store.ID, list []rules.Rule) (string, error) {
	if head != (store.ID{}) {
		return fmt.Sprintf(`"%d-%d"`, head.Number, head.At), nil
	}
	var all []byte
	for i := range list {
		text, err := notation.JSON(list[i])
		if err != nil {
			return "", err
		}
		all = append(append(all, text...), '\n')
	}
	return tagOf(all), nil
}

// tags are what a conditional field names.
type tags struct {
	any  bool // *
	list []string
}

// has reports whether a tag is named. "" is what does not exist.
func (t tags) has(tag string) bool { return tag != "" && (t.any || slices.Contains(t.list, tag)) }

func (t tags) given() bool { return t.any || t.list != nil }

// The conditional fields (RFC 9110, sections 13.1.1 and 13.1.2).
const (
	ifMatch     = "If-Match"
	ifNoneMatch = "If-None-Match"
)

// tagsOf reads a conditional field. All tags of this API are strong: a weak one, as a proxy that
// compresses makes of it, is like none in If-Match, whose comparison is strong, and like the
// strong one in If-None-Match, whose comparison is weak.
func tagsOf(header http.Header, field string) (tags, error) {
	var t tags
	lines := header.Values(field)
	if len(lines) == 0 {
		return t, nil
	}
	text := strings.TrimSpace(strings.Join(lines, ","))
	if text == "*" {
		t.any = true
		return t, nil
	}
	t.list = []string{}
	for rest := text; ; {
		rest = strings.TrimLeft(rest, " \t,")
		if rest == "" {
			return t, nil
		}
		strong, weak := strings.CutPrefix(rest, "W/")
		end := strings.IndexByte(strong[min(1, len(strong)):], '"')
		if strong == "" || strong[0] != '"' || end < 0 {
			return t, invalid(field, text, `entity tags such as "3f2a", joined by commas, or *`)
		}
		if !weak || field == ifNoneMatch {
			t.list = append(t.list, strong[:end+2])
		}
		rest = strong[end+2:]
	}
}

// conditions are what a request asks of what it edits.
type conditions struct{ match, noneMatch tags }

func conditionsOf(header http.Header) (c conditions, err error) {
	if c.match, err = tagsOf(header, ifMatch); err == nil {
		c.noneMatch, err = tagsOf(header, ifNoneMatch)
	}
	return c, err
}

// hold reports how the conditions are broken by what is there; tag "" is nothing.
func (c conditions) hold(tag string) error {
	var detail string
	switch {
	case c.match.given() && !c.match.has(tag):
		detail = "If-Match does not hold: it was changed meanwhile"
		if tag == "" {
			detail = "If-Match does not hold: it does not exist"
		}
	case c.noneMatch.has(tag):
		detail = "If-None-Match does not hold: it exists"
	default:
		return nil
	}
	failed := problem.New(http.StatusPreconditionFailed, "%s", detail)
	if tag != "" {
		failed.Field, failed.Value = "Etag", tag
	}
	return failed
}
