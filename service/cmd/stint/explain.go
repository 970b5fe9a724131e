package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
)

// An example is a request that rules are explained with.
type example struct {
	file                  string
	method, path, host    string
	address, user, apiKey string
	headers, attributes   []string
	json                  bool
	loadStore             func() (config.Config, error)
}

// explainTimeout bounds the asking of a shared store, which connects first.
const explainTimeout = 5 * time.Second

func explainCommand(p process) *cobra.Command {
	e := &example{}
	command := &cobra.Command{
		Use:   "explain",
		Short: "Say which rules hold for a request, and what they decide, taking nothing",
		Long: "Say which rules hold for a request, whom each of them counts, and what they decide.\n" +
			"Nothing is taken. With --store, of a shared store, clients have what is kept there; else\n" +
			"they have done nothing yet. Rules are those of --rules, or of --config, or else those\n" +
			"that the store keeps.\n\n" +
			"It exits with 0 when the request would be allowed and with 3 when it would be denied.",
		Args: cobra.NoArgs,
	}
	flags := command.Flags()
	flags.StringVar(
		&e.file, "rules", "",
		"`PATH` of a file of rules or a folder of them; by default those of --config, or else of --store",
	)
	flags.StringVar(&e.method, "method", http.MethodGet, "the request's `METHOD`")
	flags.StringVar(&e.path, "path", "/", "its `PATH`, as it is sent")
	flags.StringVar(&e.host, "host", "", "the `NAME` of the host that is asked for")
	flags.StringVar(&e.address, "ip", "", "the client's `ADDRESS`")
	flags.StringVar(&e.user, "user", "", "`NAME` of the user")
	flags.StringVar(&e.apiKey, "api-key", "", "the API `KEY`")
	flags.StringArrayVar(&e.headers, "header", nil, "a header field, `NAME: VALUE`; may be given several times")
	flags.StringArrayVar(&e.attributes, "attribute", nil, "an attribute, `NAME=VALUE`; may be given several times")
	flags.BoolVar(&e.json, "json", false, "print the answer as JSON, as the admin API has it")
	e.loadStore = settingFlags(p, flags, append(storeSettings(), "ipv6_prefix", "ambiguous_paths", "rules_default")...)
	flags.Lookup("store").DefValue = "" // without it, a service is asked
	command.RunE = func(command *cobra.Command, _ []string) error {
		return e.explain(command.Context(), p)
	}
	return command
}

// explain prints what the rules make of the request.
func (e *example) explain(ctx context.Context, p process) error {
	loaded, err := e.loadStore()
	if err != nil {
		return err
	}
	if e.file != "" {
		loaded.RulesFrom = e.file
	}
	source, err := openRules(loaded, nil, nil)
	if err != nil {
		return err
	}
	defer source.close()
	ctx, cancel := context.WithTimeout(ctx, explainTimeout)
	defer cancel()
	set, err := source.Set(ctx)
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return misconfigured(err)
	case err != nil:
		return unreachable(fmt.Errorf("the rules of %s: %s", source.place, document.Redact(err.Error())))
	}
	request, err := e.request(loaded)
	if err != nil {
		return err
	}
	var store stint.Store = memstore.New(memstore.Config{})
	if !loaded.Store.Memory() {
		states, err := openBackend(loaded)
		if err != nil {
			return err
		}
		defer states.close()
		if err := states.ping(ctx); err != nil {
			return storeFault(loaded.Store, err)
		}
		store = states
	}
	return e.explainWith(ctx, p, enforce.Config{Store: store, Set: set, RejectAmbiguousPaths: loaded.RejectAmbiguousPaths, DenyByDefault: loaded.DenyByDefault}, request)
}

// request is the request as the rules see it.
func (e *example) request(loaded config.Config) (*rules.Request, error) {
	r := &rules.Request{
		Method: e.method, Path: e.path, Host: e.host, User: e.user, APIKey: e.apiKey,
		Header: http.Header{}, Attributes: map[string]string{},
	}
	if e.address != "" {
		address, err := netip.ParseAddr(e.address)
		if err != nil {
			return nil, misused("--ip is %q; allowed: an address such as 192.0.2.1 or 2001:db8::1", e.address)
		}
		resolver, err := clientip.New(clientip.Config(loaded.ClientIP))
		if err != nil {
			return nil, misconfigured(err)
		}
		r.Address = resolver.KeyOf(address.WithZone("").Unmap())
	}
	for _, text := range e.headers {
		name, value, found := strings.Cut(text, ":")
		if !found || name == "" {
			return nil, misused("--header is %q; allowed: NAME: VALUE", text)
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	for _, text := range e.attributes {
		name, value, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, misused("--attribute is %q; allowed: NAME=VALUE", text)
		}
		r.Attributes[name] = value
	}
	return r, nil
}

// explainWith prints a line for each rule that matches, and the verdict of all.
func (e *example) explainWith(ctx context.Context, p process, config enforce.Config, r *rules.Request) error {
	limiter, err := enforce.New(config)
	if err != nil {
		return failed(err)
	}
	x, err := limiter.ExplainEach(ctx, r)
	if errors.Is(err, stint.ErrInvalid) {
		return misused("%v", err)
	}
	if err != nil {
		return failed(err)
	}
	if e.json {
		if err := sayJSON(p.Out, rulesapi.Explanation(x), ""); err != nil {
			return err
		}
		return deniedExit(x.Verdict.Allowed)
	}
	rows := [][]string{{"RULE", "OUTCOME", "KEY", "COST", "ALLOWED", "REMAINING", "RETRY AFTER"}}
	for i := range x.Rules {
		rule := &x.Rules[i]
		row := []string{rule.Rule.ID, outcome(&rule.Matched), "-", "-", "-", "-", "-"}
		if rule.Fault != nil {
			row[1] += ", " + prefix.Trim(rule.Fault.Error())
		}
		if d := rule.Decision; rule.Claim.Policy != nil {
			row = append(
				row[:2], rule.Claim.Key, fmt.Sprint(rule.Claim.Permits), yesOrNo(d.Allowed), fmt.Sprint(d.Remaining),
				waitText(api.Micros(d.RetryAfter)),
			)
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		if err := sayTable(p.Out, rows); err != nil {
			return err
		}
	}
	if err := say(p.Out, "path %s: allowed %s, %s\n", x.Path, yesOrNo(x.Verdict.Allowed), x.Why()); err != nil {
		return err
	}
	return deniedExit(x.Verdict.Allowed)
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
func outcome(matched *rules.Matched) string {
	text := matched.Outcome.String()
	if matched.Rule.OnExceed != rules.Reject {
		text += ", " + matched.Rule.OnExceed.String()
	}
	return text
}
