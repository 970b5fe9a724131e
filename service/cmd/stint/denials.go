package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/service/internal/activity"
)

// denialsCommand is `stint denials`. The service asks all processes that share its Redis; the
// filters are the service's, too, so that a limit counts what is shown.
func denialsCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "denials", "List who was denied last, or whom rules in shadow would have denied",
		"List who was denied last by a service and the processes that share its Redis: each client of each\n"+
			"rule once, with its first and last denial, how often it was denied, and the last request. The\n"+
			"processes have up to 4 seconds to answer. With --shadow it lists whom rules in shadow would have "+
			"denied.\n\n"+
			"Clients are shown by name to holders of a token only. Programs that use the library record no denials,\n"+
			"and a process that ends takes its own with it.")
	flags := command.Flags()
	shadow := flags.Bool("shadow", false, "whom rules in shadow would have denied, and no denials")
	rule := flags.String("rule", "", "only those of the rule `ID`")
	client := flags.String("client", "", "only those of the client `NAME`; needs a token")
	since := flags.String("since", "", "only those denied since `TIME`, such as 2026-11-23T10:04:11Z, or for the last 15m")
	reason := flags.String("reason", "", "only those for the reason `WORD`, such as limit or banned")
	id := flags.String("id", "", "only those whose last request had the `ID` of X-Request-ID")
	limit := flags.Int("limit", 20, "at most `N` clients of rules")
	command.RunE = func(*cobra.Command, []string) error {
		begin, err := sinceTime(*since, time.Now())
		if err != nil {
			return err
		}
		query := queryOf(map[string]string{
			"limit": strconv.Itoa(*limit), "shadow": strconv.FormatBool(*shadow), "rule": *rule, "client": *client,
			"since": begin, "reason": *reason, "q": *id,
		})
		var answer activity.Denials
		body, _, err := a.do(call{method: http.MethodGet, path: activity.PathDenials, query: query}, &answer)
		if err != nil {
			return err
		}
		if a.json {
			return a.show(body)
		}
		if *id != "" {
			answer.Denials = slices.DeleteFunc(answer.Denials, func(d activity.Denial) bool { return d.RequestID != *id })
		}
		if len(answer.Denials) == 0 {
			if err := knownRule(a, *rule); err != nil {
				return err
			}
			return say(p.Out, "%s %s\n", map[bool]string{
				false: "no denials",
				true:  "nothing would have been denied in shadow",
			}[*shadow], searched(&answer, begin))
		}
		if err := a.show(body, denialRows(&answer)...); err != nil {
			return err
		}
		if cmp.Or(a.token, a.tokenFile, a.env(a.tokenVariable)) == "" {
			const pseudonyms = "clients have pseudonyms here; holders of a token of admin.tokens_file are shown names\n"
			if err := say(p.Out, pseudonyms); err != nil {
				return err
			}
		}
		if len(answer.Silent) == 0 && !answer.Unasked {
			return nil
		}
		return say(p.Out, "%s\n", silentText(&answer))
	}
	return command
}

// sinceTime is a time that was given as such, or as a span before now; "" is none.
func sinceTime(text string, now time.Time) (string, error) {
	if text == "" {
		return "", nil
	}
	since, err := activity.Since("--since", text, now)
	return since.Format(time.RFC3339Nano), err
}

// knownRule fails if the service has no rule of an ID. What is no rule's ID, but has a slash as algorithm/token_bucket
// has, may have been denied by all the same.
func knownRule(a *apiCommand, id string) error {
	if id == "" || strings.Contains(id, "/") {
		return nil
	}
	var list struct{ Rules []struct{ ID string } }
	if _, _, err := a.do(call{method: http.MethodGet, path: "/api/v1/rules"}, &list); err != nil {
		return err
	}
	var ids []string
	for _, rule := range list.Rules {
		if ids = append(ids, rule.ID); rule.ID == id {
			return nil
		}
	}
	return exit{exitFailed, fmt.Sprintf("there is no rule %q%s, and none of that ID denied anybody",
		id, spell.DidYouMean(id, ids))}
}

// denialRows are the lines of a table.
func denialRows(answer *activity.Denials) [][]string {
	rows := [][]string{{
		"LAST", "FIRST", "COUNT", "RULE", "CLASS", "CLIENT", "REASON", "LIMIT", "REQUEST", "PROCESS", "ID",
	}}
	for i := range answer.Denials {
		d := &answer.Denials[i]
		limit := ""
		if d.Limit > 0 {
			limit = fmt.Sprint(d.Limit, " ", cmp.Or(d.LimitName, strings.ToLower(d.Algorithm)))
		}
		row := []string{
			shortTime(d.At), shortTime(d.First), strconv.FormatInt(d.Count, 10), d.Rule, d.Class, d.Client, d.Reason, limit,
			strings.TrimSpace(d.Method + " " + d.Path), d.Process, d.RequestID,
		}
		for j := range row {
			row[j] = cmp.Or(row[j], "-")
		}
		rows = append(rows, row)
	}
	return rows
}

// shortTime is a time to the second.
func shortTime(at stint.Instant) string { return at.Time().UTC().Format(time.RFC3339) }

// searched says among what an answer found nothing.
func searched(answer *activity.Denials, since string) string {
	from := answer.From
	if begin, err := time.Parse(time.RFC3339, since); err == nil {
		from = max(from, stint.Instant(begin.UnixMicro()))
	}
	return fmt.Sprintf("among the last %s since %s; %s", counted(int(answer.Kept), "client")+" of rules", shortTime(from),
		silentText(answer))
}

// silentText says how many processes answered, and which did not.
func silentText(answer *activity.Denials) string {
	text := fmt.Sprintf("%d of %d processes answered", answer.Processes-len(answer.Silent), answer.Processes)
	switch {
	case answer.Unasked:
		text = "this process alone was asked, since the Redis that the processes share does not answer"
	case len(answer.Silent) > 0:
		text += ", and not " + strings.Join(answer.Silent, ", ")
	}
	return text + "; what processes that have ended denied is lost; programs that use the library record none"
}

// patchRuleCommand is `stint rules patch`. The patch is sent as it was given: the service applies
// it to the rule as it is then, and says what became of it.
func patchRuleCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "patch ID PATCH", "Change some parameters of one rule of a service",
		"Change the parameters of a rule that PATCH names, a JSON merge patch (RFC 7396): null removes one.\n\n"+
			"    stint rules patch login '{\"on_exceed\": \"shadow\"}'     # decides, and denies nobody\n"+
			"    stint rules patch login '{\"on_exceed\": \"reject\"}'     # enforced again")
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return fmt.Errorf("there are %d arguments; allowed: the ID of a rule, and a patch such as '{\"enabled\": false}'",
				len(args))
		}
		return nil
	}
	comment := command.Flags().String("comment", "", "`TEXT` that is kept with the revision")
	command.RunE = func(_ *cobra.Command, args []string) error {
		return ask(a, call{
			method: http.MethodPatch, path: "/api/v1/rules/" + url.PathEscape(args[0]),
			query: queryOf(map[string]string{"comment": *comment}), document: []byte(args[1]),
		}, func(rule *ruleRow) [][]string {
			return [][]string{{rule.ID + ": " + rule.state(), rule.matches(), rule.allows()}}
		})
	}
	return command
}
