package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
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
	return ask(a, call{method: http.MethodGet, path: path}, func(answer *adminapi.OverrideList) [][]string {
		rows := [][]string{{"CLIENT", "ALLOWS", "UNTIL"}}
		for _, text := range answer.Overrides {
			rows = append(rows, overrideRow(text, time.Now()))
		}
		return rows
	})
}

// change shows or changes the override at a path, that of a client.
func (f *overrideFlags) change(a *apiCommand, path, client string) error {
	row := func(text *json.RawMessage) [][]string { return [][]string{overrideRow(*text, time.Now())} }
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
	text, err := rulefile.OverrideJSON(override)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if string(text) != "null" {
		if err := json.Unmarshal(text, &members); err != nil {
			return nil, err
		}
	}
	for name, value := range map[string]string{"for": f.span, "until": f.until} {
		if value != "" {
			members[name], _ = json.Marshal(value) // texts can be written
		}
	}
	return json.Marshal(members)
}

// overrideRow shows an override: the client, what holds for it, and until when.
func overrideRow(text json.RawMessage, now time.Time) []string {
	var o struct {
		ruleRow

		Key   string    `json:"key"`
		Until time.Time `json:"until"`
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return []string{"?", strings.TrimSpace(string(text)), ""}
	}
	until := "removed"
	if !o.Until.IsZero() {
		until = o.Until.UTC().Format(time.RFC3339)
		if left := o.Until.Sub(now).Round(time.Second); left > 0 {
			until += ", " + left.String() + " left"
		} else {
			until += ", ended"
		}
	}
	return []string{o.Key, o.allows(), until}
}
