package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/service/internal/activity"
)

// denialsCommand is `stint denials`. The service asks all processes that share its Redis; the
// filters are the service's, too, so that a limit counts what is shown; that by an ID looks at more.
func denialsCommand(p process) *cobra.Command {
	f := struct {
		Shadow                          bool
		Rule, Client, Since, Reason, ID string
		Limit                           int
	}{Limit: 20}
	command, a := administerCommand(p, "denials", &f)
	command.RunE = func(*cobra.Command, []string) error {
		begin, err := sinceTime(f.Since, time.Now())
		if err != nil {
			return misused("%v\nsee 'stint denials --help'", err)
		}
		most := f.Limit
		if f.ID != "" && 0 < most && most < activity.MaxAsked {
			most = activity.MaxAsked // the service looks for an ID in all texts of a request
		}
		query := queryOf(map[string]string{
			"limit": strconv.Itoa(most), "shadow": strconv.FormatBool(f.Shadow), "rule": f.Rule, "client": f.Client,
			"since": begin, "reason": f.Reason, "q": f.ID,
		})
		var answer activity.Denials
		body, _, err := a.do(call{path: activity.PathDenials, query: query}, &answer)
		if err != nil {
			return err
		}
		if f.ID != "" {
			answer.Denials = slices.DeleteFunc(answer.Denials, func(d activity.Denial) bool { return d.RequestID != f.ID })
			if len(answer.Denials) > f.Limit {
				answer.Denials, answer.More = answer.Denials[:f.Limit], true
			}
		}
		switch {
		case a.JSON && f.ID != "":
			return sayJSON(p.Out, &answer, "")
		case a.JSON:
			return a.show(body)
		}
		if len(answer.Denials) == 0 {
			if err := knownRule(a, f.Rule); err != nil {
				return err
			}
			none := "no denials"
			if f.Shadow {
				none = "nothing would have been denied in shadow"
			}
			return say(p.Out, "%s %s\n", none, searched(&answer, begin))
		}
		if err := a.show(body, denialRows(&answer)...); err != nil {
			return err
		}
		if cmp.Or(a.Token, a.tokenFile, a.env(a.tokenVariable)) == "" {
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
	if _, _, err := a.do(call{path: "/api/v1/rules"}, &list); err != nil {
		return err
	}
	var ids []string
	for _, rule := range list.Rules {
		if ids = append(ids, rule.ID); rule.ID == id {
			return nil
		}
	}
	return fmt.Errorf("there is no rule %q%s, and none of that ID denied anybody", id, spell.DidYouMean(id, ids))
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
	var f struct{ Comment string }
	command, a := administerCommand(p, "rules patch", &f)
	command.Args = func(_ *cobra.Command, args []string) error {
		if len(args) != 2 {
			return fmt.Errorf("there are %d arguments; allowed: the ID of a rule, and a patch such as '{\"enabled\": false}'",
				len(args))
		}
		return nil
	}
	command.RunE = func(_ *cobra.Command, args []string) error {
		return ask(a, call{
			method: http.MethodPatch, path: "/api/v1/rules/" + apipath.Segment(args[0]),
			query: queryOf(map[string]string{"comment": f.Comment}), document: []byte(args[1]),
		}, func(rule *ruleRow) [][]string {
			return [][]string{{rule.ID + ": " + rule.state(), rule.matches(), rule.allows()}}
		})
	}
	return command
}
