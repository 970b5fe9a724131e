package main

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/service/internal/adminapi"
)

// holdsCommand is `stint holds`, for what a stuck program has taken and does not give back.
func holdsCommand(p process) *cobra.Command {
	var f struct {
		Drop string
		Key  bool
	}
	command, a := administerCommand(p, "holds", &f)
	command.Args = cobra.ExactArgs(1)
	command.RunE = func(_ *cobra.Command, args []string) error {
		switch {
		case command.Flags().Changed("drop") && f.Drop == "":
			return misused(`--drop is ""; allowed: the ID of a hold`)
		case f.Drop != "":
			return dropHold(a, f.Drop, args[0], f.Key)
		case f.Key:
			return misused("--key is without --drop; allowed: with --drop, as the holds of rules' clients alone are listed")
		}
		return listHolds(a, args[0])
	}
	return command
}

// dropHold ends a hold of a client of rules, or of a key of policies, and says where it was found.
func dropHold(a *apiCommand, id, client string, key bool) error {
	of := "client"
	if key {
		of = "key"
	}
	query := url.Values{of: {client}}
	return ask(a, call{method: http.MethodDelete, path: "/api/v1/holds/" + apipath.Segment(id), query: query},
		func(answer *adminapi.DroppedHold) [][]string {
			return [][]string{{"ended", id, "of " + strings.Join(append(answer.Rules, answer.Policies...), ", ")}}
		})
}

// listHolds shows what is held of a client, a row for each hold and limit. Limits without a name
// are shown by their algorithm.
func listHolds(a *apiCommand, client string) error {
	var answer adminapi.ClientExplanation
	body, _, err := a.do(call{path: "/api/v1/clients/" + apipath.Segment(client)}, &answer)
	if err != nil {
		return err
	}
	rows := [][]string{{"ID", "RULE", "LIMIT", "PERMITS", "EXPIRES"}}
	for _, rule := range answer.Rules {
		for _, h := range rule.Holds {
			limit := "-"
			if h.Limit < len(rule.Limits) {
				limit = cmp.Or(rule.Limits[h.Limit].Name, strings.ToLower(rule.Limits[h.Limit].Algorithm))
			}
			expires := time.UnixMicro(h.ExpiresAt).UTC().Format(time.RFC3339)
			rows = append(rows, []string{h.ID, rule.Rule, limit, fmt.Sprint(h.Permits), expires})
		}
	}
	if len(rows) == 1 && !a.JSON {
		return say(a.Out, "nothing is held of the client %q by the %s that can count it; holds by a policy are not listed\n",
			client, counted(len(answer.Rules), "rule"))
	}
	return a.show(body, rows...)
}
