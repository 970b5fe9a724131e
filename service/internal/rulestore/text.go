package rulestore

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// MaxBytes bounds the rules of a revision, as Encode writes them. 100,000 rules of 200 bytes use a
// third.
const MaxBytes = 64 << 20

// Encode writes rules as a JSON array, one rule on each line. Equal rules give equal text. The
// error wraps stint.ErrInvalid if a rule can't be written, or all of them exceed MaxBytes.
func Encode(list []rules.Rule) ([]byte, error) { return new(Codec).Encode(list) }

// Decode reads what [Encode] wrote; source names it in errors. An error wraps ErrUnreadable and
// [document.Faults], and so stint.ErrInvalid.
func Decode(source string, text []byte) ([]rules.Rule, error) {
	var faults document.Faults
	list := rulefile.Rules(document.JSON(source, text, &faults), "rules", &faults)
	if err := faults.Err(); err != nil {
		return nil, prefix.Errorf("%w: %w", ErrUnreadable, err)
	}
	return list, nil
}

// A Codec encodes and decodes lists of rules. Each list has most rules in common with the one
// before, so only changed rules are encoded and decoded. The zero value is ready to use. It is safe
// for concurrent use. It remembers the lines of the last text it saw: an edit of one rule among
// 100,000 then costs a comparison of lines and the encoding of one.
type Codec struct {
	last atomic.Pointer[map[string]written]
}

// A written rule is a rule of the last text, with its line.
type written struct {
	line string
	rule rules.Rule
}

// known are the rules of the last text.
func (c *Codec) known() map[string]written {
	if last := c.last.Load(); last != nil {
		return *last
	}
	return nil
}

// Encode is the package's Encode. A rule that equals the one remembered by its ID has that one's
// line.
func (c *Codec) Encode(list []rules.Rule) ([]byte, error) { return c.encode(list, nil) }

// Next encodes the rules of a revision that is put, and notes how many and how long they are.
func (c *Codec) Next(next *Revision) (text []byte, err error) {
	if text, err = c.encode(next.Rules, next.Texts); err == nil {
		next.Count, next.Bytes = len(next.Rules), int64(len(text))
	}
	return text, err
}

// encode is Encode, with the texts of rules that were written already.
func (c *Codec) encode(list []rules.Rule, texts map[string][]byte) ([]byte, error) {
	known := c.known()
	var text bytes.Buffer
	text.WriteString("[")
	for i := range list {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
		if was, is := known[list[i].ID]; is && was.rule.Equal(&list[i]) {
			text.WriteString(was.line)
		} else if changed := texts[list[i].ID]; changed != nil {
			text.Write(changed)
		} else {
			written, err := rulefile.JSON(list[i])
			if err != nil {
				return nil, prefix.Errorf("rule %q: %w", list[i].ID, err)
			}
			text.Write(written)
		}
		if text.Len() > MaxBytes {
			return nil, stint.Invalid(
				"the rules", document.Verbatim(fmt.Sprintf("more than %d bytes of JSON", MaxBytes)), "fewer or smaller rules",
			)
		}
	}
	text.WriteString("\n]\n")
	return text.Bytes(), nil
}

// Known gives the codec rules and the text that Encode made of them.
func (c *Codec) Known(text []byte, list []rules.Rule) {
	lines, ok := linesOf(text)
	if !ok || len(lines) != len(list) {
		return
	}
	last := make(map[string]written, len(list))
	for i, line := range lines {
		last[list[i].ID] = written{line, list[i]}
	}
	c.last.Store(&last)
}

// linesOf returns the rules' lines of a text. It reports whether the text has the form that Encode
// writes. The form is [, a rule on each line with a comma behind all but the last, ].
func linesOf(text []byte) (lines []string, ok bool) {
	rest, begins := strings.CutPrefix(string(text), "[\n")
	rest, ends := strings.CutSuffix(rest, "]\n")
	for rest != "" {
		line, after, found := strings.Cut(rest, "\n")
		line, more := strings.CutSuffix(line, ",")
		if !found || more == (after == "") || !strings.HasPrefix(line, "{") {
			return nil, false
		}
		lines, rest = append(lines, line), after
	}
	return lines, begins && ends
}

// Decode is the package's Decode. Lines that are known are not parsed. A text that is not in the
// form that Encode writes is decoded as a whole, slowly, and so is one with a fault, whose error
// then names the right lines.
func (c *Codec) Decode(source string, text []byte) ([]rules.Rule, error) {
	lines, ok := linesOf(text)
	if !ok {
		return Decode(source, text)
	}
	known := c.known()
	list := make([]rules.Rule, len(lines))
	var changed []int // indices in the list
	var others []string
	for i, line := range lines {
		id, _, _ := strings.Cut(strings.TrimPrefix(line, `{"id":"`), `"`)
		if was := known[id]; was.line == line {
			list[i] = was.rule
		} else {
			if !json.Valid([]byte(line)) { // a rule may go over several lines of a text that Encode did not write
				return Decode(source, text)
			}
			changed, others = append(changed, i), append(others, line)
		}
	}
	read, err := Decode(source, []byte("["+strings.Join(others, ",")+"]"))
	if err != nil || len(read) != len(changed) {
		return Decode(source, text) // its error names the lines
	}
	for i, at := range changed {
		list[at] = read[i]
	}
	c.Known(text, list)
	return list, nil
}
