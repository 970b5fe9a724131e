package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rulesource"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// An example is a request that rules are explained with. It is answered by a running service (ask,
// askDomain), or here, by rules that are read and a store that is opened as serve would (explain).
// Both print the same.
type example struct {
	*apiCommand
	exampleFlags
	loadStore func() (config.Config, error)
}

// exampleFlags are where the rules are, and the request, or one of Envoy's rate limit service.
type exampleFlags struct {
	Rules string
	description
	Domain     string
	Descriptor []string
}

// explainTimeout bounds the asking of a shared store, which connects first.
const explainTimeout = 5 * time.Second

// explainCommand is `stint rules explain`. Who is asked follows from the flags: a service with
// --domain, --admin or STINT_ADMIN; the rules and the store of this process if a flag names them.
func explainCommand(p process) *cobra.Command {
	const path = "rules explain"
	command, a := newAdminCommand(p, path, explainTimeout)
	flags := command.Flags()
	e := &example{apiCommand: a, exampleFlags: exampleFlags{description: standardRequest}}
	flags.Lookup("admin").DefValue = "" // without it, none is asked
	addFlags(flags, path, &e.exampleFlags)
	e.loadStore = settingFlags(p, flags, append(storeSettings(), "ipv6_prefix", "ambiguous_paths", "rules_default")...)
	flags.Lookup("store").DefValue = "" // without it, clients have done nothing
	command.RunE = func(command *cobra.Command, _ []string) error {
		if flags.Changed("domain") || flags.Changed("descriptor") {
			return e.askDomain()
		}
		own := flagBeside(flags, descriptionFlags...) // one that names rules, a store or how they are read
		switch {
		case own != "" && flags.Changed("admin"):
			return misused("--%s is given beside --admin; allowed: one of the two, as a service goes by its own", own)
		case flags.Changed("admin") || own == "" && p.env("STINT_ADMIN") != "":
			return e.ask()
		default:
			return e.explain(command.Context())
		}
	}
	return command
}

// flagBeside names a given flag that is none of these and does not say how a service is asked, ""
// if there is none.
func flagBeside(flags *pflag.FlagSet, names ...string) (other string) {
	known := append([]string{"json", "admin", "timeout", "token", "token-file"}, names...)
	flags.Visit(func(f *pflag.Flag) {
		if !slices.Contains(known, f.Name) {
			other = f.Name
		}
	})
	return other
}

// ask prints what a running service says. With --json it is the service's own answer, byte by byte.
func (e *example) ask() error {
	document, err := e.document()
	if err != nil {
		return err
	}
	var answer adminapi.Explanation
	body, _, err := e.do(call{method: http.MethodPost, path: "/api/v1/rules/explain", document: document}, &answer)
	if err != nil {
		return err
	}
	if e.JSON {
		err = say(e.Out, "%s\n", bytes.TrimSpace(body))
	} else {
		err = e.print(&answer)
	}
	if err != nil {
		return err
	}
	return deniedExit(answer.Allowed)
}

// askDomain prints what a running service says of a request of Envoy's rate limit service.
func (e *example) askDomain() error {
	if other := flagBeside(e.command.Flags(), "domain", "descriptor"); other != "" {
		return misused("--%s is given beside --domain; allowed: --descriptor alone, as Envoy sends nothing else", other)
	}
	var list []map[string]any
	for _, text := range e.Descriptor {
		var entries []map[string]string
		for part := range strings.SplitSeq(text, ",") {
			key, value, found := strings.Cut(part, "=")
			if !found || key == "" {
				return misused("--descriptor is %q; allowed: KEY=VALUE,KEY=VALUE and so on", text)
			}
			entries = append(entries, map[string]string{"key": key, "value": value})
		}
		list = append(list, map[string]any{"entries": entries})
	}
	document, err := json.Marshal(map[string]any{"domain": e.Domain, "descriptors": list})
	if err != nil {
		return err
	}
	var x rls.Explanation
	body, _, err := e.do(call{method: http.MethodPost, path: "/api/v1/domains/explain", document: document}, &x)
	if err != nil {
		return err
	}
	rows := [][]string{{"DESCRIPTOR", "OUTCOME", "LIMIT", "REMAINING", "RESETS IN", "KEY"}}
	for i := range x.Descriptors {
		d := &x.Descriptors[i]
		limit, remaining, resets := "-", "-", "-"
		if d.Limit != nil {
			limit = fmt.Sprintf("%s, %d per %s", d.Limit.ID, d.Limit.Requests, d.Limit.Unit)
			if d.Limit.Unit == "" {
				limit = fmt.Sprintf("%s, %d at once", d.Limit.ID, d.Limit.Requests)
			}
			if d.Limit.Unlimited {
				limit = d.Limit.ID + ", unlimited"
			}
		}
		if d.Key != "" {
			remaining, resets = fmt.Sprint(d.Remaining), fmt.Sprintf("%ds", d.ResetSeconds)
		}
		rows = append(rows, []string{d.Entries, d.Outcome, limit, remaining, resets, cmp.Or(d.Key, "-")})
	}
	if err := e.show(body, rows...); err != nil {
		return err
	}
	switch {
	case !e.JSON && !x.Known:
		err = say(e.Out, "allowed yes: there is no domain %q\n", e.Domain)
	case !e.JSON:
		err = say(e.Out, "allowed %s\n", yesOrNo(x.Allowed))
	}
	if err != nil {
		return err
	}
	return deniedExit(x.Allowed)
}

// explain prints what the rules make of the request. The store is peeked at, which takes nothing.
// Without one, a store in this process knows no client, and all limits are full.
func (e *example) explain(ctx context.Context) error {
	loaded, err := e.loadStore()
	if err != nil {
		return err
	}
	if e.Rules != "" {
		loaded.RulesFrom = e.Rules
	}
	if loaded.Store.Memory() && len(loaded.Rules) == 0 &&
		(loaded.RulesFrom == "" || loaded.RulesFrom == config.RulesFromStore) {
		return misused("no rules are named; allowed: the URL of a service with --admin or STINT_ADMIN, files with --rules, " +
			"or a configuration or a shared store that has rules, with --config or --store")
	}
	source, err := rulesource.Open(loaded, nil, nil)
	if err != nil {
		return misconfigured(err)
	}
	defer source.Close()
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	set, err := source.Set(ctx)
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return misconfigured(err)
	case err != nil:
		return unreachable(fmt.Errorf("the rules of %s: %s", source.Place, document.Redact(err.Error())))
	}
	request, err := e.request(loaded)
	if err != nil {
		return err
	}
	var store stint.Store = memstore.New(memstore.Config{})
	if !loaded.Store.Memory() {
		opened, err := openStates(ctx, loaded)
		if err != nil {
			return err
		}
		defer opened.Close()
		store = opened
	}
	return e.explainWith(ctx, enforce.Config{
		Store: store, Set: set,
		RejectAmbiguousPaths: loaded.RejectAmbiguousPaths, DenyByDefault: loaded.DenyByDefault,
	}, request)
}

// explainWith prints what a limiter makes of the request.
func (e *example) explainWith(ctx context.Context, config enforce.Config, r *rules.Request) error {
	limiter, err := enforce.New(config)
	if err != nil {
		return err
	}
	x, err := limiter.Explain(ctx, r)
	if errors.Is(err, stint.ErrInvalid) {
		return misused("%v", err)
	}
	if err != nil {
		return err
	}
	shown := rulesapi.Explanation(x)
	if e.JSON {
		err = sayJSON(e.Out, shown, "")
	} else {
		err = e.print(&shown)
	}
	if err != nil {
		return err
	}
	return deniedExit(x.Verdict.Allowed)
}

// print prints a line for each rule that matches, and the verdict of all. Of a rule's limits the
// row shows the least that remains and the longest wait: a request has to satisfy all of them.
func (e *example) print(x *adminapi.Explanation) error {
	rows := [][]string{{"RULE", "OUTCOME", "KEY", "COST", "ALLOWED", "REMAINING", "RETRY AFTER"}}
	for i := range x.Rules {
		rule := &x.Rules[i]
		row := []string{rule.Rule, outcome(rule), "-", "-", "-", "-", "-"}
		if len(rule.Limits) > 0 {
			limits := decidingLimits(rule)
			least := slices.MinFunc(limits, func(a, b adminapi.ExplainedLimit) int {
				return cmp.Compare(a.Remaining, b.Remaining)
			})
			// -1 is never, which is the longest.
			last := slices.MaxFunc(limits, func(a, b adminapi.ExplainedLimit) int {
				return cmp.Compare(uint64(a.RetryAfterMicros), uint64(b.RetryAfterMicros))
			})
			row = append(
				row[:2], rule.Key, fmt.Sprint(rule.Cost), yesOrNo(rule.Allowed), fmt.Sprint(least.Remaining),
				waitText(last.RetryAfterMicros),
			)
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		if err := sayTable(e.Out, rows); err != nil {
			return err
		}
	}
	for i := range x.Rules {
		if available := x.Rules[i].Available; available != nil {
			if err := say(e.Out, "rule %s, all ways together: %d permits\n", x.Rules[i].Rule, *available); err != nil {
				return err
			}
		}
		for _, way := range x.Rules[i].Ways {
			text := "admits"
			if !way.Allowed {
				text = "denies: " + way.Why
			}
			if err := say(e.Out, "rule %s, %s %s\n", x.Rules[i].Rule, cmp.Or(way.Via, "limits"), text); err != nil {
				return err
			}
		}
	}
	return say(e.Out, "path %s: allowed %s, %s\n", x.Path, yesOrNo(x.Allowed), x.Why)
}

// decidingLimits are those of the way that is charged, or of which the wait is the shortest, and all of
// a rule without ways.
func decidingLimits(rule *adminapi.ExplainedRule) []adminapi.ExplainedLimit {
	var best []adminapi.ExplainedLimit
	shortest := uint64(0)
	for i := range rule.Ways {
		var limits []adminapi.ExplainedLimit
		longest := uint64(0) // -1 is never, which is the longest
		for _, limit := range rule.Limits {
			if limit.Way == i+1 {
				limits, longest = append(limits, limit), max(longest, uint64(limit.RetryAfterMicros))
			}
		}
		if rule.Ways[i].Allowed {
			return limits
		}
		if best == nil || longest < shortest {
			best, shortest = limits, longest
		}
	}
	if best == nil {
		return rule.Limits
	}
	return best
}

// deniedExit is how a command ends that was told whether a request is allowed.
func deniedExit(allowed bool) error {
	if allowed {
		return nil
	}
	return exit{code: exitDenied}
}

// outcome says what the rule makes of the request, and what it does when it denies, unless it
// rejects.
func outcome(rule *adminapi.ExplainedRule) string {
	text := rule.Outcome
	if rule.By != "" {
		text += " by " + rule.By
	}
	if rule.OnExceed != rules.Reject.String() {
		text += ", " + rule.OnExceed
	}
	if rule.ByReserve {
		text += ", by reserves alone"
	}
	if rule.Error != "" {
		text += ", " + rule.Error
	}
	return text
}
