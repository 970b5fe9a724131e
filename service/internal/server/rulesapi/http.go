package rulesapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// The media types of bodies.
var (
	jsonBody  = []string{"application/json"}
	patchBody = []string{"application/merge-patch+json", "application/json"}
	ruleBody  = []string{"application/json", "application/yaml", "application/x-yaml", "text/yaml"}
)

// body reads the request's body, which must be of one of the types; the first is JSON. The
// source names it in faults, as in document.Parse. The text is released after the call.
func (c *call) body(most int64, types []string) (text, source string, err error) {
	mediaType, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type"))
	if err != nil || !slices.Contains(types, mediaType) {
		return "", "", problem.New(
			http.StatusUnsupportedMediaType, "Content-Type is %q; allowed: %s", problem.Short(c.r.Header.Get("Content-Type")),
			strings.Join(types, ", "),
		)
	}
	source = "body.json"
	if slices.Contains(ruleBody[1:], mediaType) {
		source = "body.yaml"
	}
	text, c.release, err = c.api.config.ReadBody(c.w, c.r, most)
	return text, source, err
}

// parse reads the request's body, as body does, and calls do with it. Large bodies wait for each other,
// as those do that are large together with what is compiled beside them, in bytes.
func (c *call) parse(most int64, types []string, beside int, do func(source string, text []byte) error) error {
	text, source, err := c.body(most, types)
	if err != nil {
		return err
	}
	if len(text)+beside >= largeBody {
		select {
		case c.api.parsing <- struct{}{}:
			defer func() { <-c.api.parsing }()
		case <-c.r.Context().Done():
			return problem.New(
				http.StatusServiceUnavailable,
				"other large documents were being parsed until this request ended; try again",
			)
		}
	}
	return do(source, []byte(text))
}

// value reads a body of one value, JSON or YAML.
func (c *call) value(types []string) (value document.Value, err error) {
	err = c.parse(c.api.config.MaxBodyBytes, types, 0, func(source string, text []byte) error {
		var faults document.Faults
		value = document.Parse(source, text, len(text), &faults)
		return faults.Err()
	})
	return value, err
}

// readRule reads one rule from the body, and tells all that is wrong with it at once. A rule without an ID gets that of
// the path, if there is one.
func (c *call) readRule() (rule rules.Rule, err error) {
	written, err := c.value(ruleBody)
	if err != nil {
		return rule, err
	}
	var faults document.Faults
	if rule = rulefile.Rule(written, "the rule", &faults); rule.ID == "" {
		rule.ID = c.rule
	}
	list := document.Value{Kind: document.KindList, Items: []document.Value{written}, At: written.At}
	whole := document.Value{
		Kind:   document.KindMapping,
		Fields: []document.Field{{Name: "rules", Value: list, At: written.At}},
		At:     written.At,
	}
	rulefile.Check(whole, []rules.Rule{rule}, rules.Options{
		IPv6Prefix: c.api.config.IPv6Prefix, Alone: true, Review: true, Previous: c.api.config.Limiter.Set(),
	}, &faults)
	if err := faults.Err(); err != nil {
		return rule, err
	}
	if c.rule != "" && rule.ID != c.rule {
		return rule, invalid("id", rule.ID, c.rule+", as in the path, or none")
	}
	return rule, nil
}

// document reads a document of rules, in the format of rule files, and compiles them: a whole set, or a
// part of the one in force.
func (c *call) document(partial bool) (set *rules.Set, list []rules.Rule, err error) {
	parse, options, beside := rulefile.ParseSet, rules.Options{IPv6Prefix: c.api.config.IPv6Prefix, Review: true}, 0
	if partial {
		parse, options.Previous = rulefile.ParsePart, c.api.config.Limiter.Set()
		beside = options.Previous.Len() * ruleBytes
	}
	err = c.parse(rulefile.MaxBytes, ruleBody, beside, func(source string, text []byte) (fault error) {
		set, list, fault = parse(source, text, options)
		return fault
	})
	return set, list, err
}

// largeBody is the size in bytes from which documents are parsed one at a time. Parsing takes about a
// hundred times their size of memory, and continues after the client has left.
const largeBody = 64 << 10

// ruleBytes is how many bytes of a document need as much memory as a rule in force does that is
// compiled beside it.
const ruleBytes = 32

// empty answers without a body.
func (c *call) empty(status int) error {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	return nil
}

// show answers with a text and its ETag. If If-None-Match names the ETag, the answer is 304 without
// a body.
func (c *call) show(revision int64, tag string, text func() ([]byte, error)) error {
	header := c.w.Header()
	header.Set("Etag", tag)
	header.Set(adminapi.HeaderRevision, strconv.FormatInt(revision, 10))
	if c.conditions.noneMatch.has(tag) {
		return c.empty(http.StatusNotModified)
	}
	body, err := text()
	if err != nil {
		return err
	}
	problem.AnswerJSON(c.w, c.r, http.StatusOK, body)
	return nil
}

// stored answers an edit with the rule or override that it made.
func (c *call) stored(rule *rules.Rule, created bool) error {
	text, err := c.written(rule)
	if err != nil {
		return err
	}
	c.w.Header().Set("Etag", tagOf(text))
	if !created {
		problem.AnswerJSON(c.w, c.r, http.StatusOK, text)
		return nil
	}
	location := adminapi.PathRules + "/" + apipath.Segment(rule.ID)
	if c.client != "" {
		location += "/overrides/" + apipath.Segment(c.client)
	}
	c.w.Header().Set("Location", location)
	problem.AnswerJSON(c.w, c.r, http.StatusCreated, text)
	return nil
}

// comment is the author's comment on an edit.
func (c *call) comment() (string, error) {
	const most = 512
	text := c.query.Get("comment")
	if len(text) > most || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return "", invalid("comment", text, "up to 512 bytes of UTF-8 without control characters")
	}
	return text, nil
}

// parseNumber reads the number of a revision.
func parseNumber(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || strconv.FormatUint(n, 10) != text {
		return 0, invalid("number", text, "an integer in decimal")
	}
	return int64(n), nil
}

// tagOf is the entity tag of a text. Equal texts have equal tags.
func tagOf(text []byte) string {
	sum := sha256.Sum256(text)
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// listTag is the entity tag of the list of all rules: of its revision, or without one, of
// the rules' text.
func listTag(head rulestore.ID, list []rules.Rule) (string, error) {
	if head != (rulestore.ID{}) {
		return fmt.Sprintf(`"%d-%d"`, head.Number, head.At), nil
	}
	var all []byte
	for i := range list {
		text, err := rulefile.JSON(list[i])
		if err != nil {
			return "", err
		}
		all = append(append(all, text...), '\n')
	}
	return tagOf(all), nil
}

// tags are the entity tags of a conditional field.
type tags struct {
	any  bool // *
	list []string
}

// has reports whether the field names a tag. "" is the tag of something that does not exist.
func (t tags) has(tag string) bool { return tag != "" && (t.any || slices.Contains(t.list, tag)) }

func (t tags) given() bool { return t.any || t.list != nil }

// The conditional fields (RFC 9110, sections 13.1.1 and 13.1.2).
const (
	ifMatch     = "If-Match"
	ifNoneMatch = "If-None-Match"
)

// tagsOf reads a conditional field. All tags of this API are strong, but a proxy that compresses may make
// them weak. If-Match compares strongly, so weak tags are left out there. If-None-Match compares weakly, so
// they count as strong.
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
	if !tagList.MatchString(text) {
		return t, invalid(field, text, `entity tags such as "3f2a", joined by commas, or *`)
	}
	t.list = []string{}
	for _, tag := range oneTag.FindAllString(text, -1) {
		if strong, weak := strings.CutPrefix(tag, "W/"); !weak || field == ifNoneMatch {
			t.list = append(t.list, strong)
		}
	}
	return t, nil
}

var (
	oneTag  = regexp.MustCompile(`(?:W/)?"[^"]*"`)
	tagList = regexp.MustCompile(`^(?:[ \t,]*` + oneTag.String() + `)*[ \t,]*$`)
)

// conditions are the conditional fields of a request.
type conditions struct{ match, noneMatch tags }

func conditionsOf(header http.Header) (c conditions, err error) {
	if c.match, err = tagsOf(header, ifMatch); err == nil {
		c.noneMatch, err = tagsOf(header, ifNoneMatch)
	}
	return c, err
}

// check returns a 412 if the conditions do not hold for a tag. "" is the tag of something that does
// not exist.
func (c conditions) check(tag string) error {
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
