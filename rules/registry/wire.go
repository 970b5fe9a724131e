package registry

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
)

// A writtenVersion is a version as backends keep it and the API shows it.
type writtenVersion struct {
	Number  int64           `json:"version"`
	At      int64           `json:"at"`
	By      string          `json:"by,omitempty"`
	Action  string          `json:"action,omitempty"`
	Comment string          `json:"comment,omitempty"`
	Changes []writtenChange `json:"changes"`
}

type writtenChange struct {
	ID     string          `json:"id"`
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// MarshalJSON writes the version as backends keep it, the rules as [notation.JSON] does.
func (v Version) MarshalJSON() ([]byte, error) {
	w := writtenVersion{Number: v.Number, At: v.At, By: v.By, Action: v.Action, Comment: v.Comment, Changes: make([]writtenChange, len(v.Changes))}
	for i, c := range v.Changes {
		w.Changes[i].ID = c.ID
		for _, side := range []struct {
			rule *rules.Rule
			text *json.RawMessage
		}{{c.Before, &w.Changes[i].Before}, {c.After, &w.Changes[i].After}} {
			if side.rule == nil {
				continue
			}
			text, err := notation.JSON(*side.rule)
			if err != nil {
				return nil, fmt.Errorf("rule %q: %w", c.ID, err)
			}
			*side.text = text
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(w)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON wrote. The error wraps stint.ErrInvalid.
func (v *Version) UnmarshalJSON(text []byte) error {
	var w writtenVersion
	if err := json.Unmarshal(text, &w); err != nil {
		return stint.Invalid("version", err.Error(), "JSON as the registry writes it")
	}
	*v = Version{Head: Head{w.Number, w.At}, Author: Author{w.By, w.Action, w.Comment}, Changes: make([]Change, len(w.Changes))}
	for i, c := range w.Changes {
		v.Changes[i].ID = c.ID
		for _, side := range []struct {
			text json.RawMessage
			rule **rules.Rule
		}{{c.Before, &v.Changes[i].Before}, {c.After, &v.Changes[i].After}} {
			if side.text == nil {
				continue
			}
			rule, err := ParseRule(fmt.Sprintf("version %d", w.Number), side.text)
			if err != nil {
				return err
			}
			*side.rule = &rule
		}
	}
	return nil
}

// check reports what keeps the version from being kept: its size, that of a rule, and text that
// would be read as another.
func (v *Version) check() error {
	for _, c := range v.Changes {
		if c.After == nil {
			continue
		}
		if err := CheckSize(c.After); err != nil {
			return err
		}
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return err
	}
	if len(text) > MaxVersionBytes {
		return stint.Invalid("the edit", fmt.Sprintf("%d bytes", len(text)), fmt.Sprintf("at most %d bytes; make several", MaxVersionBytes))
	}
	var read Version
	if err := read.UnmarshalJSON(text); err != nil {
		return err
	}
	if read.Author != v.Author {
		return stint.Invalid("the author", v.Author, "text in UTF-8")
	}
	for i, c := range v.Changes {
		if c.After != nil && !c.After.Equal(read.Changes[i].After) {
			return stint.Invalid(fmt.Sprintf("rule %q", c.ID), "a rule that would be read as another", "text in UTF-8")
		}
	}
	return nil
}

// CheckSize reports that a rule is above MaxRuleBytes. The error wraps stint.ErrInvalid.
func CheckSize(rule *rules.Rule) error {
	text, err := notation.JSON(*rule)
	if err != nil {
		return fmt.Errorf("rule %q: %w", rule.ID, err)
	}
	if len(text) > MaxRuleBytes {
		return stint.Invalid(fmt.Sprintf("rule %q", rule.ID), notation.Verbatim(fmt.Sprintf("%d bytes of JSON", len(text))),
			fmt.Sprintf("at most %d bytes; make several rules", MaxRuleBytes))
	}
	return nil
}

// ParseRule reads a rule of a backend. The error is [notation.Faults], with source as the name of
// the place.
func ParseRule(source string, text []byte) (rules.Rule, error) {
	var faults notation.Faults
	rule := notation.Rule(notation.ParseJSON(source, text, &faults), "the rule", &faults)
	return rule, faults.Err()
}
