package main

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

// overrideFlags are what `stint rules override` is told.
type overrideFlags struct {
	Limit             []string
	Unlimited, Banned bool
	For, Until        string
	Reset, Remove     bool
	Comment           string
}

// overrideCommand is `stint rules override`: it lists a rule's overrides, and makes, replaces and removes one.
func overrideCommand(p process) *cobra.Command {
	var f overrideFlags
	command, a := administerCommand(p, "rules override", &f)
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 && len(args) != 2 {
			return fmt.Errorf("there are %d arguments; allowed: the ID of a rule, and a client of it", len(args))
		}
		if slices.Contains(args, "") {
			return errors.New(`an argument is ""; allowed: the ID of a rule, and a client of it`)
		}
		return nil
	}
	command.RunE = func(command *cobra.Command, args []string) error {
		for name, text := range map[string]string{"for": f.For, "until": f.Until} {
			if text == "" && command.Flags().Changed(name) {
				return misused(`--%s is ""; allowed: a duration with --for or a time with --until, or neither for ever`, name)
			}
		}
		path := "/api/v1/rules/" + apipath.Segment(args[0]) + "/overrides"
		if len(args) == 1 {
			return f.list(a, path)
		}
		return f.change(a, path+"/"+apipath.Segment(args[1]), args[1])
	}
	return command
}

// changes reports whether a flag asks for a change.
func (f *overrideFlags) changes() bool {
	return f.holds() || f.Remove || f.Comment != ""
}

// holds reports whether a flag says what is to hold.
func (f *overrideFlags) holds() bool {
	return len(f.Limit) > 0 || f.Unlimited || f.Banned || f.Reset || f.For != "" || f.Until != ""
}

// list shows all overrides of the rule at a path.
func (f *overrideFlags) list(a *apiCommand, path string) error {
	if f.changes() {
		return misused("no client is named; allowed: one, whose override is to change")
	}
	return ask(a, call{path: path}, func(answer *overrideRows) [][]string {
		rows := [][]string{{"CLIENT", "ALLOWS", "UNTIL"}}
		for i := range answer.Overrides {
			rows = append(rows, answer.Overrides[i].row(time.Now()))
		}
		return rows
	})
}

// change shows or changes the override at a path, that of a client.
func (f *overrideFlags) change(a *apiCommand, path, client string) error {
	row := func(o *overrideRow) [][]string { return [][]string{o.row(time.Now())} }
	query := queryOf(map[string]string{"comment": f.Comment})
	switch {
	case !f.changes():
		return ask(a, call{path: path}, row)
	case f.Remove:
		if f.holds() {
			return misused("--remove is given with what is to hold; allowed: alone, or with --comment")
		}
		if _, _, err := a.do(call{method: http.MethodDelete, path: path, query: query}, nil); err != nil {
			return err
		}
		return a.show([]byte("{}\n"), []string{client + ": no override any more"})
	}
	if len(f.Limit) == 0 && !f.Unlimited && !f.Banned {
		return misused("nothing says what %s may do; allowed: --limit, --unlimited or --banned", client)
	}
	body, err := f.document()
	if err != nil {
		return err
	}
	if f.Reset {
		query.Set("reset", "true")
	}
	return ask(a, call{method: http.MethodPut, path: path, query: query, document: body}, row)
}

// document is the override as the service reads it, which says what is wrong with it.
func (f *overrideFlags) document() ([]byte, error) {
	override := rules.Override{Unlimited: f.Unlimited, Banned: f.Banned}
	for _, text := range f.Limit {
		limit, err := parseLimit(spelledOut(text))
		if err != nil {
			return nil, err
		}
		override.Limits = append(override.Limits, limit)
	}
	written, err := rulefile.WrittenOverride(override)
	if err != nil {
		return nil, err
	}
	for _, field := range [][2]string{{"for", f.For}, {"until", f.Until}} {
		if name, text := field[0], field[1]; text != "" {
			value := document.Value{Kind: document.KindText, Text: text}
			written.Fields = append(written.Fields, document.Field{Name: name, Value: value})
		}
	}
	return written.JSON(), nil
}

// overrideRows are the overrides of a rule, as a list shows them.
type overrideRows struct {
	Overrides []overrideRow `json:"overrides"`
}

// An overrideRow is what a list shows of an override.
type overrideRow struct {
	ruleRow

	Key   string    `json:"key"`
	Until time.Time `json:"until"`
}

// row is the client, what holds for it, and until when.
func (o *overrideRow) row(now time.Time) []string {
	until := "removed"
	if !o.Until.IsZero() {
		until = o.Until.UTC().Format(time.RFC3339)
		if left := o.Until.Sub(now).Truncate(time.Second); left > 0 {
			until += ", " + left.String() + " left"
		} else {
			until += ", ended"
		}
	}
	return []string{o.Key, o.allows(), until}
}
