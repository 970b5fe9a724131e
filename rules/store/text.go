package store

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

// MaxBytes bounds the rules of a revision, as Encode writes them. 100,000 rules of 200 bytes use a third.
const MaxBytes = 64 << 20

// Encode writes rules as a JSON array, one rule on each line. Equal rules give equal text. The
// error wraps stint.ErrInvalid if a rule can't be written, or all of them exceed MaxBytes.
func Encode(list []rules.Rule) ([]byte, error) {
	var text bytes.Buffer
	text.WriteString("[")
	for i := range list {
		line, err := file.JSON(list[i])
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", list[i].ID, err)
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
		text.Write(line)
		if text.Len() > MaxBytes {
			return nil, stint.Invalid("the rules", document.Verbatim(fmt.Sprintf("more than %d bytes of JSON", MaxBytes)), "fewer or smaller rules")
		}
	}
	text.WriteString("\n]\n")
	return text.Bytes(), nil
}

// Decode reads what [Encode] wrote; source names it in errors. An error wraps ErrUnreadable and
// [document.Faults], and so stint.ErrInvalid.
func Decode(source string, text []byte) ([]rules.Rule, error) {
	var faults document.Faults
	list := file.Rules(document.JSON(source, text, &faults), "rules", &faults)
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return list, nil
}

// A Decoder decodes texts of which each has most lines in common with the one before: only the
// other lines are read anew. The zero value is ready to use. It is safe for concurrent use.
type Decoder struct {
	mu    sync.Mutex
	lines map[string]rules.Rule // of the last text
}

// Known tells the decoder of rules and of the text that Encode wrote of them.
func (d *Decoder) Known(text []byte, list []rules.Rule) {
	written, ok := linesOf(text)
	if !ok || len(written) != len(list) {
		return
	}
	lines := make(map[string]rules.Rule, len(list))
	for i, line := range written {
		lines[line] = list[i]
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = lines
}

// linesOf takes the rules' lines out of a text. It reports whether the text has the form that Encode writes.
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

// Decode is the package's Decode.
func (d *Decoder) Decode(source string, text []byte) ([]rules.Rule, error) {
	lines, ok := linesOf(text)
	if !ok {
		return Decode(source, text)
	}
	d.mu.Lock()
	known := d.lines
	d.mu.Unlock()
	list := make([]rules.Rule, len(lines))
	var changed []int // places in the list
	var others []string
	for i, line := range lines {
		if list[i], ok = known[line]; !ok {
			changed, others = append(changed, i), append(others, line)
		}
	}
	read, err := Decode(source, []byte("["+strings.Join(others, ",")+"]"))
	if err != nil || len(read) != len(changed) {
		return Decode(source, text) // which names the lines
	}
	for i, at := range changed {
		list[at] = read[i]
	}
	d.Known(text, list)
	return list, nil
}
