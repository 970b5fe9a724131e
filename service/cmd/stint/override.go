package main

import (
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
)

// overrideFlags are what `stint rules override` is told.
type overrideFlags struct {
	limits            []string
	unlimited, banned bool
	remove, reset     bool
	span, until       string
	comment           string
}

// overrideCommand is `stint rules override`: it lists a rule's overrides, and makes, replaces and removes one.
func overrideCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "override RULE [CLIENT]", "List a rule's overrides, or change that of one client",
		"List what holds for single clients of a rule, and for how long, or let something else hold for one of them:\n\n"+
			"    stint rules override login ann --limit 100/1h --for 2h     # then the rule's own limits again\n"+
			"    stint rules override login ann --unlimited                 # until it is removed\n"+
			"    stint rules override login ann --remove\n\n"+
			"What the client has used stays used, unless --reset clears it.")
	var f overrideFlags
	flags := command.Flags()
	flags.StringArrayVar(&f.limits, "limit", nil, "what the client may do: "+shortForms+"; may be given several times")
	flags.BoolVar(&f.unlimited, "unlimited", false, "the rule does not limit the client")
	flags.BoolVar(&f.banned, "banned", false, "the rule denies all of the client's requests")
	flags.StringVar(&f.span, "for", "", "how long it holds, a `DURATION` such as 2h; without it and --until for ever")
	flags.StringVar(&f.until, "until", "", "the `TIME` at which it ends, such as 2026-12-24T18:00:00Z")
	flags.BoolVar(&f.reset, "reset", false, "clear what the client has used of the rule")
	flags.BoolVar(&f.remove, "remove", false, "remove the client's override")
	flags.StringVar(&f.comment, "comment", "", "`TEXT` that is kept with the revision")
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 1 && len(args) != 2 {
			return fmt.Errorf("there are %d arguments; allowed: the ID of a rule, and a client of it", len(args))
		}
		return nil
	}
	command.RunE = func(_ *cobra.Command, args []string) error {
		path := "/api/v1/rules/" + url.PathEscape(args[0]) + "/overrides"
		if len(args) == 1 {
			return f.list(a, path)
		}
		return f.change(a, path+"/"+url.PathEscape(args[1]), args[1])
	}
	return command
}

// changes reports whether a flag asks for a change.
func (f *overrideFlags) changes() bool {
	return f.holds() || f.remove || f.comment != ""
}

// holds reports whether a flag says what is to hold.
func (f *overrideFlags) holds() bool {
	return len(f.limits) > 0 || f.unlimited || f.banned || f.reset || f.span != "" || f.until != ""
}

// list shows all overrides of the rule at a path.
func (f *overrideFlags) list(a *apiCommand, path string) error {
	if f.changes() {
		return misused("no client is named; allowed: one, whose override is to change")
	}
	return ask(a, call{method: http.MethodGet, path: path}, func(answer *overrideRows) [][]string {
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
	query := queryOf(map[string]string{"comment": f.comment})
	switch {
	case !f.changes():
		return ask(a, call{method: http.MethodGet, path: path}, row)
	case f.remove:
		if f.holds() {
			return misused("--remove is given with what is to hold; allowed: alone, or with --comment")
		}
		if _, _, err := a.do(call{method: http.MethodDelete, path: path, query: query}, nil); err != nil {
			return err
		}
		return a.show([]byte("{}\n"), []string{client + ": no override any more"})
	}
	if len(f.limits) == 0 && !f.unlimited && !f.banned {
		return misused("nothing says what %s may do; allowed: --limit, --unlimited or --banned", client)
	}
	body, err := f.document()
	if err != nil {
		return err
	}
	if f.reset {
		query.Set("reset", "true")
	}
	return ask(a, call{method: http.MethodPut, path: path, query: query, document: body}, row)
}

// document is the override as the service reads it, which says what is wrong with it.
func (f *overrideFlags) document() ([]byte, error) {
	override := rules.Override{Unlimited: f.unlimited, Banned: f.banned}
	for _, text := range f.limits {
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
	for _, field := range [][2]string{{"for", f.span}, {"until", f.until}} {
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
