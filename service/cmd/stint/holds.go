package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/service/internal/adminapi"
)

// holdsCommand is `stint holds`, for what a stuck program has taken and does not give back.
func holdsCommand(p process) *cobra.Command {
	command, a := administerCommand(p, "holds CLIENT",
		"List what is held of a client of a service's rules, and end a hold that is stuck",
		"List what is held of a client's permits by rule, the next to expire first. "+
			"The client is named as an override names it.\n"+
			"What is held by a key and a policy is not listed.\n"+
			"With --drop end a hold whose holder is stuck: what it has of this client is free at once. "+
			"With --key the client is the\n"+
			"key of a reserve by a policy.")
	command.Args = cobra.ExactArgs(1)
	id := command.Flags().String("drop", "", "end the hold `ID`")
	key := command.Flags().Bool("key", false, "with --drop: CLIENT is a key, not a client of rules")
	command.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case *id != "":
			return dropHold(a, *id, args[0], *key)
		case *key:
			return misused("--key is without --drop; allowed: with --drop, as the holds of rules' clients alone are listed")
		}
		return listHolds(a, args[0])
	}
	return command
}

// dropHold ends a hold of a client of rules, or of a key of policies, and says where it was found.
func dropHold(a *apiCommand, id, client string, key bool) error {
	query := url.Values{"client": {client}}
	if key {
		query = url.Values{"key": {client}}
	}
	return ask(a, call{method: http.MethodDelete, path: "/api/v1/holds/" + url.PathEscape(id), query: query},
		func(answer *adminapi.DroppedHold) [][]string {
			return [][]string{{"ended", id, "of " + strings.Join(append(answer.Rules, answer.Policies...), ", ")}}
		})
}

// listHolds shows what is held of a client, a row for each hold and limit. Limits without a name
// are shown by their algorithm.
func listHolds(a *apiCommand, client string) error {
	var answer adminapi.ClientExplanation
	body, _, err := a.do(call{method: http.MethodGet, path: "/api/v1/clients/" + url.PathEscape(client)}, &answer)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "RULE", "LIMIT", "PERMITS", "EXPIRES"}}
	for _, rule := range answer.Rules {
		for _, h := range rule.Holds {
			limit := "-"
			if h.Limit < len(rule.Limits) {
				if limit = rule.Limits[h.Limit].Name; limit == "" {
					limit = strings.ToLower(rule.Limits[h.Limit].Algorithm)
				}
			}
			expires := time.UnixMicro(h.ExpiresAt).UTC().Format(time.RFC3339)
			rows = append(rows, []string{h.ID, rule.Rule, limit, fmt.Sprint(h.Permits), expires})
		}
	}
	if len(rows) == 1 && !a.json {
		return say(a.Out, "nothing is held of the client %q by the %s that can count it; holds by a policy are not listed\n",
			client, counted(len(answer.Rules), "rule"))
	}
	return a.show(body, rows...)
}
