package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/service/internal/activity"
)

// denialsCommand is `stint denials`. The service gathers the denials of all processes that share
// its Redis; the filters are the service's, too, so that a limit counts what is shown.
func denialsCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "denials", "List the last denials, or what rules in shadow would have denied",
		"List the last denials of a service and of the processes that share its Redis, the newest first:\n"+
			"when, by which rule, of which class, whom and why. With --shadow it lists what rules in shadow would have "+
			"denied.\n\n"+
			"Clients are shown by name to holders of a token only.")
	flags := command.Flags()
	shadow := flags.Bool("shadow", false, "what rules in shadow would have denied, and no denials")
	rule := flags.String("rule", "", "only those of the rule `ID`")
	client := flags.String("client", "", "only those of the client `NAME`; needs a token")
	limit := flags.Int("limit", 20, "at most `N` denials")
	command.RunE = func(*cobra.Command, []string) error {
		query := queryOf(map[string]string{
			"limit": strconv.Itoa(*limit), "shadow": strconv.FormatBool(*shadow), "rule": *rule, "client": *client,
		})
		var answer activity.Denials
		body, _, err := a.do(call{method: http.MethodGet, path: activity.PathDenials, query: query}, &answer)
		if err != nil {
			return err
		}
		rows := [][]string{{"TIME", "RULE", "CLASS", "CLIENT", "REASON", "PROCESS", "REQUEST"}}
		for i := range answer.Denials {
			d := &answer.Denials[i]
			row := []string{d.At.Time().UTC().Format(time.RFC3339), d.Rule, d.Class, d.Client, d.Reason, d.Process, d.RequestID}
			for j := range row {
				row[j] = cmp.Or(row[j], "-")
			}
			rows = append(rows, row)
		}
		if len(answer.Denials) == 0 && !a.json {
			return say(p.Out, "%s\n", map[bool]string{
				false: "no denials",
				true:  "nothing would have been denied in shadow",
			}[*shadow])
		}
		return a.show(body, rows...)
	}
	return command
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
