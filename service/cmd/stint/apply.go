package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
)

// applyCommand is `stint rules apply`: compare, show, and put. The ETag of the rules that were
// compared goes with the put (If-Match, RFC 9110, section 13.1.1), so an edit in between makes it
// fail and nothing is lost. What is printed before the put is thus exactly what the put changes.
func applyCommand(p process) *cobra.Command {
	var f struct{ Comment string }
	command, a := administerCommand(p, "rules apply", &f)
	compare := compareFlags(p, command, a)
	command.RunE = func(_ *cobra.Command, args []string) error {
		c, err := compare(args[0])
		if err != nil {
			return err
		}
		if !a.JSON {
			if err := c.print(p); err != nil {
				return err
			}
		}
		return a.edit(call{
			method: http.MethodPut, path: "/api/v1/rules", query: queryOf(map[string]string{"comment": f.Comment}),
			document: c.document, header: map[string]string{"If-Match": c.tag},
		})
	}
	return command
}

// diffCommand is `stint rules diff`, apply without the put. Its exit code tells a script whether
// there is a difference.
func diffCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "rules diff")
	compare := compareFlags(p, command, a)
	command.RunE = func(_ *cobra.Command, args []string) error {
		c, err := compare(args[0])
		if err != nil {
			return err
		}
		if a.JSON {
			if err := sayJSON(p.Out, c.changes, ""); err != nil {
				return err
			}
		} else if err := c.print(p); err != nil {
			return err
		}
		if c.none() {
			return nil
		}
		return exit{code: exitFailed}
	}
	return command
}

// A comparison is how a service's rules differ from those of a file. Added, removed and changed
// rules are listed by ID. document is all that apply sends.
type comparison struct {
	tag      string // of the service's rules
	document []byte // the file's rules as JSON
	changes  adminapi.RuleChanges
	// of changed rules: lines that say what changed
	parts map[string][]string
}

// none reports whether there is no difference.
func (c *comparison) none() bool {
	return len(c.changes.Added)+len(c.changes.Removed)+len(c.changes.Changed) == 0
}

// compareFlags makes a command take a path, and returns what compares its rules.
func compareFlags(p process, command *cobra.Command, a *apiCommand) func(path string) (*comparison, error) {
	command.Args = cobra.ExactArgs(1)
	load := settingFlags(p, command.Flags(), "ipv6_prefix")
	return func(path string) (*comparison, error) {
		loaded, err := load()
		if err != nil {
			return nil, err
		}
		set, err := rulefile.ReadSet(path, rules.Options{IPv6Prefix: loaded.ClientIP.IPv6Prefix, Review: true})
		if err != nil {
			return nil, misused("%v", err)
		}
		var current adminapi.RuleList
		_, tag, err := a.do(call{path: "/api/v1/rules"}, &current)
		if err != nil {
			return nil, err
		}
		return newComparison(tag, current.Rules, set.Rules())
	}
}

// newComparison compares rules by their JSON as the service writes it, which rulefile.JSON does, too:
// the same rule has the same bytes. Rules that this program does not know everything about, of a
// newer service, are compared byte by byte, too.
func newComparison(tag string, current []json.RawMessage, next []rules.Rule) (*comparison, error) {
	c := &comparison{tag: tag, parts: map[string][]string{}}
	c.changes = adminapi.RuleChanges{Added: []string{}, Removed: []string{}, Changed: []string{}} // JSON has null for nil
	before, after := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	for _, text := range current {
		var rule ruleRow
		if err := json.Unmarshal(text, &rule); err != nil {
			return nil, fmt.Errorf("reading a rule of the answer: %w", err)
		}
		before[rule.ID] = text
	}
	texts := make([][]byte, 0, len(next))
	for _, rule := range next {
		text, err := rulefile.JSON(rule)
		if err != nil {
			return nil, err
		}
		after[rule.ID] = text
		texts = append(texts, text)
	}
	c.document = slices.Concat([]byte("["), bytes.Join(texts, []byte(",\n")), []byte("]"))
	for id, rule := range pairs(before, after) {
		c.add(id, rule)
	}
	return c, nil
}

// add adds a rule that may differ.
func (c *comparison) add(id string, rule pair) {
	switch {
	case rule.was == nil:
		c.changes.Added = append(c.changes.Added, id)
	case rule.is == nil:
		c.changes.Removed = append(c.changes.Removed, id)
	default:
		if lines := differences(rule.was, rule.is); len(lines) > 0 {
			c.changes.Changed = append(c.changes.Changed, id)
			c.parts[id] = lines
		}
	}
}

// A pair is a value as it was and as it is, nil if it was not, or is not any more.
type pair struct{ was, is json.RawMessage }

// pairs are the values that differ, in the order of their names. It is used for rules by ID, and
// then for the parameters of a rule by name.
func pairs(before, after map[string]json.RawMessage) iter.Seq2[string, pair] {
	all := map[string]json.RawMessage{}
	maps.Copy(all, before)
	maps.Copy(all, after)
	return func(yield func(string, pair) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if p := (pair{before[name], after[name]}); !bytes.Equal(p.was, p.is) && !yield(name, p) {
				return
			}
		}
	}
}

// differences are the parameters in which two rules differ, each a line with both values.
func differences(was, is []byte) (lines []string) {
	var before, after map[string]json.RawMessage
	if json.Unmarshal(was, &before) != nil || json.Unmarshal(is, &after) != nil {
		return []string{"it can't be compared"}
	}
	for name, value := range pairs(before, after) {
		lines = append(lines, fmt.Sprintf("%s: %s -> %s", name, valueText(value.was), valueText(value.is)))
	}
	return lines
}

// valueText shows a parameter; one that is not written has its default.
func valueText(text []byte) string {
	if text == nil {
		return "(default)"
	}
	return string(text)
}

// print shows the comparison for people.
func (c *comparison) print(p process) error {
	var text strings.Builder
	for _, part := range []struct {
		sign string
		ids  []string
	}{{"+", c.changes.Added}, {"-", c.changes.Removed}, {"~", c.changes.Changed}} {
		for _, id := range part.ids {
			fmt.Fprintf(&text, "%s %s\n", part.sign, id)
			for _, line := range c.parts[id] {
				fmt.Fprintf(&text, "    %s\n", line)
			}
		}
	}
	if text.Len() == 0 {
		text.WriteString("no difference\n")
	}
	return say(p.Out, "%s", text.String())
}

// changesText says how many rules changed, and which if they are few. More than three of a kind are
// counted, so that it stays one line.
func changesText(c *adminapi.RuleChanges) string {
	const most = 3
	var parts []string
	for _, part := range []struct {
		what string
		ids  []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}} {
		switch n := len(part.ids); {
		case n == 0:
		case n <= most:
			parts = append(parts, part.what+" "+strings.Join(part.ids, ", "))
		default:
			parts = append(parts, fmt.Sprintf("%s %d rules", part.what, n))
		}
	}
	if len(parts) == 0 {
		return "nothing changed"
	}
	return strings.Join(parts, "; ")
}
