package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
)

// administerCommand makes a command that asks the admin API, with the flags of structs. It has the flags --admin,
// --token, --token-file, --json and --timeout, too. A token in a file does not show in the list of processes.
func administerCommand(p process, path string, flags ...any) (*cobra.Command, *apiCommand) {
	command, a := newAdminCommand(p, path, 30*time.Second)
	command.Long += "\n\nIt asks the admin listener of a running service."
	for _, fields := range flags {
		addFlags(command.Flags(), path, fields)
	}
	return command, a
}

// newAdminCommand makes a command that calls a service's admin listener, or may do so.
func newAdminCommand(p process, path string, timeout time.Duration) (*cobra.Command, *apiCommand) {
	command, a := newAPICommand(p, path, "admin", "http://127.0.0.1:8079", "STINT_ADMIN_TOKEN", timeout)
	command.Flags().StringVar(&a.tokenFile, "token-file", "", flagHelp(path, "token-file"))
	return command, a
}

// ruleRows are rules, as a list shows them.
type ruleRows struct {
	Rules []ruleRow `json:"rules"`
}

// A ruleRow is what a list shows of a rule. Parameters that it does not show are not decoded. So a
// newer service may have rules with parameters that this program does not know.
type ruleRow struct {
	ID       string `json:"id"`
	Enabled  *bool  `json:"enabled"`
	OnExceed string `json:"on_exceed"`
	Match    struct {
		Methods []string `json:"methods"`
		Host    string   `json:"host"`
		Hosts   []string `json:"hosts"`
		Path    string   `json:"path"`
		Paths   []string `json:"paths"`
	} `json:"match"`
	Scope     json.RawMessage `json:"scope"`
	Limits    []limitRow      `json:"limits"`
	Unlimited bool            `json:"unlimited"`
	Banned    bool            `json:"banned"`
}

// state is disabled, shadow or enforced.
func (r *ruleRow) state() string {
	switch {
	case r.Enabled != nil && !*r.Enabled:
		return "disabled"
	case r.OnExceed == "shadow":
		return "shadow"
	default:
		return "enforced"
	}
}

// matches shows methods, hosts and paths in one column. It shows the form with one path or host and
// that with lists alike.
func (r *ruleRow) matches() string {
	m := &r.Match
	hosts, paths := append(m.Hosts, m.Host), append(m.Paths, m.Path)
	return cmp.Or(joined(" ", joined(",", m.Methods...), joined(",", hosts...), joined(",", paths...)), "all requests")
}

// joined joins texts that are not "".
func joined(between string, texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), between)
}

// A limitRow is what a list shows of a limit.
type limitRow struct {
	Algorithm string `json:"algorithm"`
	// Limit and Capacity are as they are written: a float64 would show a million as 1e+06.
	Limit    json.Number `json:"limit"`
	Capacity json.Number `json:"capacity"`
	Refill   string      `json:"refill"`
	Leak     string      `json:"leak"`
	Window   string      `json:"window"`
	Calendar string      `json:"calendar"`
	Start    string      `json:"start"`
}

// text reads "100 at 10/s" of a bucket, "100 per 1m" of a window and "5 at once" of a concurrency limit.
func (l *limitRow) text() string {
	var text string
	switch rate := cmp.Or(l.Refill, l.Leak); {
	case rate != "":
		text = fmt.Sprintf("%s at %s", l.Capacity, rate)
	case l.Capacity != "":
		text = fmt.Sprintf("%s at once", l.Capacity)
	default:
		text = fmt.Sprintf("%s per %s", l.Limit, cmp.Or(l.Calendar, l.Window))
	}
	if l.Start != "" {
		text += " from the first request"
	}
	return fmt.Sprintf("%s (%s)", text, l.Algorithm)
}

// allows says what the rule lets each client do. Several limits follow one another.
func (r *ruleRow) allows() string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Banned:
		return "banned"
	}
	var limits []string
	for i := range r.Limits {
		limits = append(limits, r.Limits[i].text())
	}
	return strings.Join(limits, "; ")
}

// scopeText is a scope or the parts of a composite one. A composite scope reads per_ip+per_user.
func (r *ruleRow) scopeText() string {
	var parts []string
	if json.Unmarshal(r.Scope, &parts) == nil {
		return strings.Join(parts, "+")
	}
	return strings.ReplaceAll(string(r.Scope), `"`, "")
}

// listRulesCommand is `stint rules list`; the service does the filtering.
func listRulesCommand(p process) *cobra.Command {
	f := struct {
		Set     string
		Label   []string
		Prefix  string
		Enabled bool
	}{Enabled: true}
	command, a := administerCommand(p, "rules list", &f)
	flags := command.Flags()
	flags.Lookup("enabled").DefValue = "" // without it, all are listed
	command.RunE = func(*cobra.Command, []string) error {
		query := queryOf(map[string]string{"set": f.Set, "prefix": f.Prefix})
		query["label"] = f.Label
		if flags.Changed("enabled") {
			query.Set("enabled", strconv.FormatBool(f.Enabled))
		}
		return ask(a, call{path: "/api/v1/rules", query: query}, func(answer *ruleRows) [][]string {
			rows := [][]string{{"ID", "STATE", "SCOPE", "MATCHES", "ALLOWS"}}
			for i := range answer.Rules {
				r := &answer.Rules[i]
				rows = append(rows, []string{r.ID, r.state(), r.scopeText(), r.matches(), r.allows()})
			}
			return rows
		})
	}
	return command
}

// revisionsCommand is `stint rules revisions`: the list, or one revision's changes.
func revisionsCommand(p process) *cobra.Command {
	f := struct {
		Rule  string
		Limit int
	}{Limit: 20}
	command, a := administerCommand(p, "rules revisions", &f)
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return oneRevision(args)
	}
	command.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			if flags := command.Flags(); flags.Changed("rule") || flags.Changed("limit") {
				return misused("--rule or --limit is given with a number; allowed: in the list of revisions only")
			}
			var answer adminapi.RuleRevisionDiff
			body, _, err := a.do(call{path: "/api/v1/rule-revisions/" + apipath.Segment(args[0])}, &answer)
			if err != nil {
				return err
			}
			if a.JSON {
				return a.show(body)
			}
			return sayRevision(p, &answer)
		}
		query := queryOf(map[string]string{"limit": fmt.Sprint(f.Limit), "rule": f.Rule})
		var answer adminapi.RuleRevisionList
		body, _, err := a.do(call{path: "/api/v1/rule-revisions", query: query}, &answer)
		if err != nil {
			return err
		}
		if answer.RulesFrom != "" && !a.JSON {
			return say(p.Out, "there are no revisions: rules come from %s\n", answer.RulesFrom)
		}
		rows := [][]string{{"REVISION", "TIME", "BY", "ACTION", "RULES", "COMMENT"}}
		for i := range answer.Revisions {
			r := &answer.Revisions[i]
			rows = append(rows, []string{
				fmt.Sprint(r.Revision), r.At.UTC().Format(time.RFC3339), r.By, r.Action, fmt.Sprint(r.Rules), r.Comment,
			})
		}
		return a.show(body, rows...)
	}
	return command
}

// oneRevision reports arguments that are not the number of one revision.
func oneRevision(args []string) error {
	const allowed = "the number of one, as `stint rules revisions` lists them"
	if len(args) != 1 {
		return fmt.Errorf("there are %d revisions; allowed: %s", len(args), allowed)
	}
	if n, err := strconv.ParseInt(args[0], 10, 64); err != nil || n < 0 {
		return stint.Invalid("revision", args[0], allowed)
	}
	return nil
}

// sayRevision prints a revision, and how its rules differ from those before.
func sayRevision(p process, d *adminapi.RuleRevisionDiff) error {
	line := fmt.Sprintf("revision %d of %s", d.Revision, d.At.UTC().Format(time.RFC3339))
	if d.By != "" {
		line += " by " + d.By
	}
	for _, text := range []string{d.Action, d.Comment} {
		if text != "" {
			line += "; " + text
		}
	}
	if err := say(p.Out, "%s; compared with revision %d\n", oneLine.Replace(line), d.Since); err != nil {
		return err
	}
	c := comparison{parts: map[string][]string{}}
	for i := range d.Changes {
		change := &d.Changes[i]
		c.add(change.ID, pair{change.Before, change.After})
	}
	return c.print(p)
}

// rollbackCommand is `stint rules rollback`. It makes a new revision with old rules, so that it can
// be undone the same way.
func rollbackCommand(p process) *cobra.Command {
	var f struct{ Rule, Comment string }
	command, a := administerCommand(p, "rules rollback", &f)
	command.Args = func(_ *cobra.Command, args []string) error { return oneRevision(args) }
	command.RunE = func(_ *cobra.Command, args []string) error {
		path := "/api/v1/rule-revisions/" + apipath.Segment(args[0]) + "/rollback"
		query := url.Values{}
		for name, text := range map[string]string{"comment": f.Comment, "rule": f.Rule} {
			if command.Flags().Changed(name) {
				query.Set(name, text)
			}
		}
		return a.edit(call{method: http.MethodPost, path: path, query: query})
	}
	return command
}

// resetAllCommand is `stint reset-all`. It gives all clients their limits anew, so it wants --yes,
// also in scripts.
func resetAllCommand(p process) *cobra.Command {
	var f struct {
		Rule string
		Yes  bool
	}
	command, a := administerCommand(p, "reset-all", &f)
	command.RunE = func(*cobra.Command, []string) error {
		if !f.Yes {
			return misused("--yes is missing; allowed: with --yes, as all clients may use their limits anew")
		}
		if command.Flags().Changed("rule") && f.Rule == "" {
			return misused(`--rule is ""; allowed: the ID of a rule, or no --rule for the clients of everything`)
		}
		path, what := "/api/v1/reset", "everything"
		if f.Rule != "" {
			path, what = "/api/v1/rules/"+apipath.Segment(f.Rule)+"/reset", "rule "+f.Rule
		}
		return ask(a, call{method: http.MethodPost, path: path, document: []byte(`{"all": true}`)},
			func(answer *adminapi.RuleReset) [][]string {
				return [][]string{{"reset of " + what + ": " + answer.State}}
			})
	}
	return command
}

// edit makes a call that edits rules, and prints what it did.
func (a *apiCommand) edit(c call) error {
	return ask(a, c, func(answer *adminapi.Edited) [][]string {
		return [][]string{{fmt.Sprintf("revision %d: %s", answer.Revision, changesText(&answer.RuleChanges))}}
	})
}
