package store

import (
	"bytes"
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// MaxBytes bounds the rules of a revision, as Encode writes them. 100,000 rules of 200 bytes use a third.
const MaxBytes = 64 << 20

// Encode writes rules as a JSON array, one rule on each line. Equal rules give equal text. The
// error wraps stint.ErrInvalid if a rule can't be written, or all of them exceed MaxBytes.
func Encode(list []rules.Rule) ([]byte, error) {
	var text bytes.Buffer
	text.WriteString("[")
	for i := range list {
		line, err := notation.JSON(list[i])
		if err != nil {
			return nil, fmt.Errorf("rule %q: %w", list[i].ID, err)
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('\n')
		text.Write(line)
		if text.Len() > MaxBytes {
			return nil, stint.Invalid("the rules", notation.Verbatim(fmt.Sprintf("more than %d bytes of JSON", MaxBytes)), "fewer or smaller rules")
		}
	}
	text.WriteString("\n]\n")
	return text.Bytes(), nil
}

// Decode reads what Encode wrote; source names it in errors. An error is [notation.Faults], which wraps stint.ErrInvalid, and
// ErrUnreadable.
func Decode(source string, text []byte) ([]rules.Rule, error) {
	var faults notation.Faults
	list := notation.Rules(notation.ParseJSON(source, text, &faults), "rules", &faults)
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return list, nil
}
