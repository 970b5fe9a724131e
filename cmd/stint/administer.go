package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/api"
)

// An administrator asks the admin API of a running service.
type administrator struct {
	process

	token, tokenFile string
	json             bool
	timeout          time.Duration
	command          *cobra.Command
}

const (
	defaultAdmin = "http://127.0.0.1:8079"
	// maxAdminBytes bounds an answer of the admin API: 100,000 rules of 600 bytes.
	maxAdminBytes = 64 << 20
)

// administerCommand makes a command that asks the admin API.
func administerCommand(p process, use, short, long string) (*cobra.Command, *administrator) {
	command := &cobra.Command{Use: use, Short: short, Long: long + "\n\nIt asks the admin listener of a running service.", Args: cobra.NoArgs}
	a := &administrator{process: p, command: command}
	flags := command.Flags()
	flags.String("admin", defaultAdmin, "`URL` of the service's admin listener [STINT_ADMIN]")
	flags.StringVar(&a.token, "token", "", "bearer `TOKEN`; other users may see a flag [STINT_ADMIN_TOKEN]")
	flags.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the token in its first line")
	flags.BoolVar(&a.json, "json", false, "print the answer as JSON")
	a.timeout = 30 * time.Second
	flags.Var((*timeoutFlag)(&a.timeout), "timeout", "longest `DURATION` to wait for an answer")
	return command, a
}

// A call is one request to the admin API.
type call struct {
	method, path string // below /api/v1/
	query        url.Values
	document     []byte // sent as JSON; nil for no body
	match        string // If-Match; "" for none
}

// do makes a call, decodes the answer and returns it as it came, with its ETag.
func (a *administrator) do(c call, answer any) (body []byte, tag string, err error) {
	base, err := serviceURL(a.process, a.command.Flags(), "admin", "STINT_ADMIN", defaultAdmin)
	if err != nil {
		return nil, "", err
	}
	token, err := a.bearer()
	if err != nil {
		return nil, "", err
	}
	target := base.JoinPath("/api/v1/", c.path)
	target.RawQuery = c.query.Encode()
	ctx, cancel := context.WithTimeout(a.command.Context(), a.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, c.method, target.String(), bytes.NewReader(c.document))
	if err != nil {
		return nil, "", failed(err)
	}
	if c.document != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.match != "" {
		request.Header.Set("If-Match", c.match)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	client := noRedirects()
	defer client.CloseIdleConnections()
	response, body, err := exchange(client, request, base, "--admin", maxAdminBytes)
	if err != nil {
		return nil, "", err
	}
	if response.StatusCode == http.StatusPreconditionFailed {
		return nil, "", failed(errors.New("somebody else edited the rules meanwhile; nothing was changed. Run the command again"))
	}
	return body, response.Header.Get("ETag"), understand(base, response, body, answer)
}

// bearer is the token to send, "" for none.
func (a *administrator) bearer() (string, error) {
	if a.tokenFile == "" {
		return cmp.Or(a.token, a.env("STINT_ADMIN_TOKEN")), nil
	}
	if a.token != "" {
		return "", misused("--token and --token-file are given; allowed: one of them")
	}
	text, err := os.ReadFile(a.tokenFile)
	if err != nil {
		return "", failed(err)
	}
	token, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(token), nil
}

// show prints an answer as it came if JSON is asked for, else as rows.
func (a *administrator) show(body []byte, rows [][]string) error {
	if a.json {
		return say(a.Out, "%s\n", bytes.TrimSpace(body))
	}
	return ruleTable(a.Out, rows)
}

// A ruleRow is what a list shows of a rule. Parameters that it does not show are not decoded.
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
	Scope     json.RawMessage  `json:"scope"`
	Limits    []map[string]any `json:"limits"`
	Unlimited bool             `json:"unlimited"`
	Banned    bool             `json:"banned"`
}

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

func (r *ruleRow) matches() string {
	m := &r.Match
	var parts []string
	for _, part := range []string{
		strings.Join(m.Methods, ","), strings.Join(append(m.Hosts, list(m.Host)...), ","), strings.Join(append(m.Paths, list(m.Path)...), ","),
	} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return cmp.Or(strings.Join(parts, " "), "all requests")
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// allows says what the rule lets each client do.
func (r *ruleRow) allows() string {
	switch {
	case r.Unlimited:
		return "unlimited"
	case r.Banned:
		return "banned"
	}
	var limits []string
	for _, l := range r.Limits {
		var text string
		switch {
		case l["capacity"] != nil:
			rate := l["refill"]
			if rate == nil {
				rate = l["leak"]
			}
			text = fmt.Sprintf("%v at %v", l["capacity"], rate)
		case l["calendar"] != nil:
			text = fmt.Sprintf("%v per %v", l["limit"], l["calendar"])
		default:
			text = fmt.Sprintf("%v per %v", l["limit"], l["window"])
		}
		limits = append(limits, fmt.Sprintf("%s (%v)", text, l["algorithm"]))
	}
	return strings.Join(limits, "; ")
}

// scopeText is a scope or the parts of a composite one.
func (r *ruleRow) scopeText() string {
	var parts []string
	if json.Unmarshal(r.Scope, &parts) == nil {
		return strings.Join(parts, "+")
	}
	return strings.Trim(string(r.Scope), `"`)
}

func listRulesCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "list", "List a service's rules", "List the rules, sorted by ID.")
	query := url.Values{}
	flags := command.Flags()
	set := flags.String("set", "", "only rules of the set `NAME`")
	labels := flags.StringArray("label", nil, "only rules with the label `NAME:VALUE`; may be given several times")
	prefix := flags.String("prefix", "", "only rules whose IDs begin with `TEXT`")
	enabled := flags.Bool("enabled", true, "only rules that are enabled, or with =false only those that are not")
	command.RunE = func(*cobra.Command, []string) error {
		for name, text := range map[string]string{"set": *set, "prefix": *prefix} {
			if text != "" {
				query.Set(name, text)
			}
		}
		query["label"] = *labels
		if flags.Changed("enabled") {
			query.Set("enabled", strconv.FormatBool(*enabled))
		}
		var answer api.RuleList
		body, _, err := a.do(call{method: http.MethodGet, path: "rules", query: query}, &answer)
		if err != nil {
			return err
		}
		rows := [][]string{{"ID", "STATE", "SCOPE", "MATCHES", "ALLOWS"}}
		for _, text := range answer.Rules {
			var r ruleRow
			if err := json.Unmarshal(text, &r); err != nil {
				return failed(fmt.Errorf("reading a rule of the answer: %w", err))
			}
			rows = append(rows, []string{r.ID, r.state(), r.scopeText(), r.matches(), r.allows()})
		}
		return a.show(body, rows)
	}
	return command
}

func revisionsCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "revisions [NUMBER]", "List the revisions of a service's rules, or show one",
		"List who changed which rules and when, the newest revision first. With a number, show what that revision changed.")
	command.Args = cobra.MaximumNArgs(1)
	flags := command.Flags()
	rule := flags.String("rule", "", "only revisions that changed the rule `ID`")
	limit := flags.Int("limit", 20, "at most `N` revisions")
	command.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			var answer json.RawMessage
			body, _, err := a.do(call{method: http.MethodGet, path: "rule-versions/" + url.PathEscape(args[0])}, &answer)
			if err != nil {
				return err
			}
			var pretty bytes.Buffer
			if a.json || json.Indent(&pretty, body, "", "  ") != nil {
				return say(p.Out, "%s\n", bytes.TrimSpace(body))
			}
			return say(p.Out, "%s\n", bytes.TrimSpace(pretty.Bytes()))
		}
		query := url.Values{"limit": {fmt.Sprint(*limit)}}
		if *rule != "" {
			query.Set("rule", *rule)
		}
		var answer api.RuleVersionList
		body, _, err := a.do(call{method: http.MethodGet, path: "rule-versions", query: query}, &answer)
		if err != nil {
			return err
		}
		rows := [][]string{{"REVISION", "TIME", "BY", "ACTION", "RULES", "COMMENT"}}
		for i := range answer.Versions {
			v := &answer.Versions[i]
			rows = append(rows, []string{
				fmt.Sprint(v.Version), v.At.UTC().Format(time.RFC3339), v.By, v.Action, fmt.Sprint(v.Rules), v.Comment,
			})
		}
		return a.show(body, rows)
	}
	return command
}

func rollbackCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "rollback NUMBER", "Make a service's rules what they were at a revision",
		"Make the rules what they were at a revision. This is a new revision; 0 is before the first.")
	command.Args = cobra.ExactArgs(1)
	comment := command.Flags().String("comment", "", "`TEXT` that is kept with the revision")
	command.RunE = func(_ *cobra.Command, args []string) error {
		var answer api.Edited
		path := "rule-versions/" + url.PathEscape(args[0]) + "/rollback"
		body, _, err := a.do(call{method: http.MethodPost, path: path, query: commentQuery(*comment)}, &answer)
		if err != nil {
			return err
		}
		return a.edited(body, &answer)
	}
	return command
}

func resetAllCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "reset-all", "Clear the state of all clients of a service, or of a rule",
		"Clear the state of all clients of everything that the service's store keeps under its key prefix, or with --rule of one\n"+
			"rule. Rules stay. It needs --yes.")
	rule := command.Flags().String("rule", "", "only the clients of the rule `ID`")
	yes := command.Flags().Bool("yes", false, "say that this is meant")
	command.RunE = func(*cobra.Command, []string) error {
		if !*yes {
			return misused("--yes is missing; allowed: with --yes, as all clients may use their limits anew")
		}
		path, what := "reset", "everything"
		if *rule != "" {
			path, what = "rules/"+url.PathEscape(*rule)+"/reset", "rule "+*rule
		}
		var answer api.RuleReset
		body, _, err := a.do(call{method: http.MethodPost, path: path, document: []byte(`{"all": true}`)}, &answer)
		if err != nil {
			return err
		}
		return a.show(body, [][]string{{"reset of " + what + ": " + answer.State}})
	}
	return command
}

func commentQuery(comment string) url.Values {
	if comment == "" {
		return nil
	}
	return url.Values{"comment": {comment}}
}

// edited prints what an edit of all rules did.
func (a *administrator) edited(body []byte, answer *api.Edited) error {
	return a.show(body, [][]string{{fmt.Sprintf("revision %d: %s", answer.Version, changesText(&answer.RuleChanges))}})
}
