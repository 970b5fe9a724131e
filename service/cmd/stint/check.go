package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/rest"
	"github.com/stint-go/stint/service/internal/server"
)

// A keyCommand is check, peek or reset: a command about one key, which calls a service or opens a
// store itself.
//
// The service in between is the same in either case: a remote one, or one in this process that
// listens nowhere (connectStore), so that limits are found, headers are read and answers are worded
// by the same code.
type keyCommand struct {
	*apiCommand
	keyFlags
	costFlags
	loadStore func() (config.Config, error)
}

// keyFlags say which limit is asked about.
type keyFlags struct{ Algorithm, Policy, Limit, Name string }

// costFlags say what a check costs, or a peek asks about.
type costFlags struct{ Permits, Keep int64 }

// limitSpace begins the names of limits that are given on the command line, apart from those of the
// configuration's policies. A --limit can thus never change the state of a policy that has the same
// name.
const limitSpace = "check/"

// newKeyCommand makes a command about one key. The flags of the store are those of serve, since
// with --store this process stands where a service would.
func newKeyCommand(p process, name string) (*cobra.Command, *keyCommand) {
	command, a := newServerCommand(p, name)
	command.Args = cobra.ExactArgs(1)
	command.Long += "\n\n" + strings.TrimSpace(strings.ReplaceAll(helpOf("of a key"), "{command}", name))
	k := &keyCommand{apiCommand: a, keyFlags: keyFlags{Name: "default"}, costFlags: costFlags{Permits: 1}}
	flags := command.Flags()
	addFlags(flags, name, &k.keyFlags)
	k.loadStore = settingFlags(p, flags, storeSettings()...)
	store := flags.Lookup("store")
	store.DefValue = "" // without it, a service is asked
	store.Usage = strings.Replace(store.Usage, "[STINT_STORE]", "[with --limit also STINT_STORE]", 1)
	return command, k
}

// call calls the service about a key, as the flags say. A parameter is sent only if its flag was
// given, so that the service's defaults hold, whatever its version.
func (k *keyCommand) call(s *service, method, path, key string, query url.Values, answer any) ([]byte, error) {
	query.Set("key", key)
	for name, text := range map[string]string{"algorithm": k.Algorithm, "policy": k.Policy} {
		if k.command.Flags().Changed(name) || name == "policy" && k.Limit != "" {
			query.Set(name, text)
		}
	}
	body, _, err := k.callOn(s, call{method: method, path: path, query: query}, answer)
	return body, err
}

// cost is the part of a query that the flags of the cost say. Parameters that an older service refuses
// are left out unless they are given.
func (k *keyCommand) cost(refused ...string) url.Values {
	query := url.Values{"permits": {fmt.Sprint(k.Permits)}, "keep": {fmt.Sprint(k.Keep)}}
	for _, name := range refused {
		if !k.command.Flags().Changed(name) {
			query.Del(name)
		}
	}
	return query
}

// withStore are the flags that say something only beside --store, or --limit.
var withStore = []string{"config", "store-timeout", "store-key-prefix", "store-log-encoding", "store-partitions"}

// connect returns the service that the flags name, or one in this process on the store that they
// name. It has to be closed. --config without --store would say nothing: a service has its own.
// Flags that would have no effect are refused rather than ignored.
func (k *keyCommand) connect() (*service, error) {
	flags := k.command.Flags()
	if flags.Changed("name") && !flags.Changed("limit") {
		return nil, misused("--name is given without --limit; allowed: only with it")
	}
	if flags.Changed("store") || flags.Changed("limit") {
		if flags.Changed("server") {
			return nil, misused("--server is given beside --store or --limit; allowed: without these, " +
				"as a service decides by its own limits")
		}
		return k.connectStore()
	}
	for _, name := range withStore {
		if flags.Changed(name) {
			return nil, misused("--%s is given; allowed: only with --store", name)
		}
	}
	return k.service()
}

// connectStore makes a service without a listener in this process, so that a store
// is asked exactly as a service would ask it. It fails rather than guess when the
// store is unreachable, and lets the caller name keys.
func (k *keyCommand) connectStore() (*service, error) {
	ctx, cancel := context.WithTimeout(k.command.Context(), k.Timeout)
	defer cancel()
	loaded, err := k.loadStore()
	if err != nil {
		return nil, err
	}
	switch given := k.command.Flags().Changed("store"); {
	case !loaded.Store.Memory():
	case given:
		return nil, misused(
			"--store is memory://, which lives in a service's process; allowed: the URL of a shared store, or --server",
		)
	default:
		return nil, misused("--limit is given without a store; allowed: with the URL of a shared one in --store or " +
			"STINT_STORE")
	}
	if k.command.Flags().Changed("limit") {
		limit, err := k.readLimit()
		if err != nil {
			return nil, err
		}
		k.Policy = limitSpace + k.Name
		loaded.Policies[k.Policy] = []stint.Limit{limit}
	}
	loaded.OnStoreFailure = failover.Closed
	opened, err := openStates(ctx, loaded)
	if err != nil {
		return nil, err
	}
	store, closing, err := decideBy(opened, loaded)
	if err != nil {
		return nil, err
	}
	loaded.API = config.API{ExplicitKeys: true, Open: true}
	s, err := server.New(server.Config{Config: rest.Config{
		Settings: loaded, Build: build(), Logger: slog.New(slog.DiscardHandler), Store: store,
		StoreHealth: store.Health, StoreRequired: true,
	}})
	if err != nil {
		closing()
		return nil, misconfigured(err)
	}
	client := &http.Client{Transport: inProcess{s.Handler()}}
	return &service{base: &url.URL{Scheme: "http", Host: "store"}, client: client, close: closing}, nil
}

// readLimit reads --limit.
func (k *keyCommand) readLimit() (limit stint.Limit, err error) {
	for _, name := range []string{"algorithm", "policy"} {
		if k.command.Flags().Changed(name) {
			return limit, misused("--limit and --%s are given; allowed: one of them", name)
		}
	}
	if _, err := stint.NewPolicy(limitSpace+k.Name, stint.FixedWindow(1, time.Second)); err != nil || k.Name == "" {
		most := bounds.MaxNameBytes - len(limitSpace)
		return limit, misused("--name is %q; allowed: 1 to %d characters of printable ASCII", k.Name, most)
	}
	return parseLimit(k.Limit)
}

// parseLimit reads a limit of the command line. The short form is a sliding window log: it alone
// keeps to what "never more than N in any such time" says.
func parseLimit(text string) (limit stint.Limit, err error) {
	if !strings.Contains(text, ":") {
		rate, err := notation.ParseRate(text)
		if err != nil {
			return limit, misused("--limit is %q; allowed: N/DURATION such as 3/1h, or a limit as rules write it", text)
		}
		if limit = stint.SlidingWindowLog(rate.Permits, rate.Period); limit.Validate() != nil {
			return limit, misused("--limit is %q: %s", text, prefix.Trim(limit.Validate().Error()))
		}
		return limit, nil
	}
	var faults document.Faults
	value := document.Parse("--limit", []byte(text), maxLimitBytes, &faults)
	if faults.Err() == nil {
		limit, _ = rulefile.Limit("the limit", value, stint.Limit{}, &faults)
	}
	if err := faults.Err(); err != nil {
		return limit, misused("%v", err)
	}
	return limit, nil
}

// maxLimitBytes bounds the text of a limit.
const maxLimitBytes = 4096

// inProcess is a transport that hands requests to a handler. So --config asks a service that
// listens nowhere: check decides by the same handlers.
type inProcess struct{ handler http.Handler }

// RoundTrip implements [http.RoundTripper].
//
// RoundTrip runs the handler to its end and hands over what it wrote. The caller's address is
// loopback's, as nobody else can ask.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	incoming := r.Clone(r.Context())
	incoming.RequestURI, incoming.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:0"
	if incoming.Body == nil {
		incoming.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	t.handler.ServeHTTP(w, incoming)
	return w.Result(), nil
}

// checkCommand is `stint check`: of a key, or of a request that a service's rules decide, and
// perhaps with a command that is run if it is allowed. What stands behind -- is the command and its
// arguments; cobra hands over both as arguments, and tells where -- was.
func checkCommand(p process) *cobra.Command {
	command, k := newKeyCommand(p, "check")
	asked := standardRequest
	command.Args = func(command *cobra.Command, args []string) error {
		keys := len(args)
		if dash := command.ArgsLenAtDash(); dash >= 0 {
			if keys = dash; len(args) == dash {
				return errors.New("there is no command after --; allowed: a command with its arguments")
			}
		}
		name, described := asked.given(command.Flags())
		switch {
		case described && keys > 0:
			return fmt.Errorf("there is a key beside --%s; allowed: one of the two, as rules find whom they count", name)
		case keys > 1 && command.Flags().Lookup("wait").Value.String() == waitForever:
			return fmt.Errorf("there are %d keys; allowed: one, and the duration of --wait only after =, as in --wait=5s", keys)
		case !described && keys != 1:
			return fmt.Errorf("there are %d keys; allowed: one, and a command only after --, "+
				"or none with a request such as --path /login", keys)
		}
		return nil
	}
	var f struct{ Wait string }
	flags := command.Flags()
	for _, fields := range []any{&asked, &k.costFlags, &f} {
		addFlags(flags, "check", fields)
	}
	flags.Lookup("wait").NoOptDefVal = waitForever
	command.RunE = func(_ *cobra.Command, args []string) error {
		most, err := waitOfFlag(f.Wait)
		if err != nil {
			return err
		}
		if _, described := asked.given(flags); described {
			return k.evaluate(&asked, flags.Changed("wait"), most, args)
		}
		return k.check(args[0], flags.Changed("wait"), most, args[1:])
	}
	return command
}

// waitForever is --wait without a duration.
const waitForever = "forever"

// waitOfFlag reads --wait; 0 is no bound. --wait takes its duration behind = only, as otherwise a
// key could be taken for it.
func waitOfFlag(text string) (time.Duration, error) {
	if text == "" || text == waitForever {
		return 0, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		return 0, misused("--wait is %q; allowed: nothing, or =DURATION above 0 such as --wait=90s", text)
	}
	return most, nil
}

// check checks the key, waits if it is asked to, and runs the command, if there is one. The answer
// of the last attempt is what is shown.
func (k *keyCommand) check(key string, wait bool, most time.Duration, words []string) error {
	s, err := k.connect()
	if err != nil {
		return err
	}
	defer s.close()
	var body []byte
	once := func() (answer api.CheckResponse, err error) {
		body, err = k.call(s, "", apipath.Check, key, k.cost("keep"), &answer)
		return answer, err
	}
	return k.decide(key, once, wait, most, words, func(answer *api.CheckResponse) error {
		return k.show(body, checkRows(answer)...)
	})
}

// evaluate has the rules of a service decide the request, and goes on as check does. Rows that have
// nothing to say are left out: a class, a way, rules in shadow and a reason are there for some
// requests only.
func (k *keyCommand) evaluate(asked *description, wait bool, most time.Duration, words []string) error {
	ofKeys := []string{"algorithm", "policy", "limit", "name", "permits", "keep", "store"}
	for _, name := range slices.Concat(ofKeys, withStore) {
		if k.command.Flags().Changed(name) {
			return misused("--%s is given for a request that rules decide; allowed: only for a key", name)
		}
	}
	document, err := asked.document()
	if err != nil {
		return err
	}
	s, err := k.service()
	if err != nil {
		return err
	}
	defer s.close()
	var answer api.EvaluateResponse
	var body []byte
	once := func() (api.CheckResponse, error) {
		answer = api.EvaluateResponse{}
		body, _, err = k.callOn(s, call{method: http.MethodPost, path: apipath.Evaluate, document: document}, &answer)
		return answer.CheckResponse, err
	}
	return k.decide(cmp.Or(asked.Path, "/"), once, wait, most, words, func(*api.CheckResponse) error {
		shadow := strings.Join(answer.Shadowed, ", ")
		if shadow != "" {
			shadow = "would be denied by " + shadow
		}
		rows := facts(
			"allowed", yesOrNo(answer.Allowed),
			"rule", cmp.Or(answer.Rule, "none"),
			"matched", cmp.Or(strings.Join(answer.Matched, ", "), "none"),
			"class", answer.Class,
			"via", answer.Via,
			"shadow", shadow,
			"exceeded", exceeded(answer.Exceeded),
			"reason", joined(" ", answer.Reason, strings.Join(answer.Missing, ", ")),
		)
		if answer.Limit > 0 {
			rows = append(rows, checkRows(&answer.CheckResponse)[1:]...)
		}
		if answer.Available != nil {
			rows = append(rows, []string{"available", fmt.Sprintf("%d by all ways", *answer.Available)})
		}
		return k.show(body, rows...)
	})
}

// decide asks once, waits if it is asked to, and runs the command, if there is one; else it shows
// the answer. An admitted request that a leaky bucket delays is run when its turn has come. With a
// command the exit code is the command's; without one it is 0 or exitDenied.
func (k *keyCommand) decide(
	what string,
	once func() (api.CheckResponse, error),
	wait bool,
	most time.Duration,
	words []string,
	show func(*api.CheckResponse) error,
) error {
	ctx := k.command.Context()
	answer, err := once()
	if err == nil && wait && !answer.Allowed {
		answer, err = await(ctx, most, answer, once)
	}
	switch {
	case ctx.Err() != nil && !answer.Allowed:
		return errStopped
	case err != nil:
		return err
	}
	if len(words) == 0 || !answer.Allowed && k.JSON {
		if err := show(&answer); err != nil {
			return err
		}
		return deniedExit(answer.Allowed)
	}
	if !answer.Allowed {
		return exit{exitDenied, deniedText(what, &answer)}
	}
	if sleep.For(ctx, time.Duration(answer.DelayMicros)*time.Microsecond) != nil {
		return errStopped
	}
	return runCommand(ctx, k.process, words)
}

// peekCommand is `stint peek`, which takes nothing. It exits with 0 also if a request would be
// denied: it was asked what is, and has said so.
func peekCommand(p process) *cobra.Command {
	command, k := newKeyCommand(p, "peek")
	addFlags(command.Flags(), "peek", &k.costFlags)
	command.RunE = func(_ *cobra.Command, args []string) error {
		s, err := k.connect()
		if err != nil {
			return err
		}
		defer s.close()
		var answer api.RemainingResponse
		body, err := k.call(s, "", apipath.Remaining, args[0], k.cost("permits", "keep"), &answer)
		if err != nil {
			return err
		}
		return k.show(body, peekRows(&answer)...)
	}
	return command
}

// resetCommand is `stint reset` of one key; that of a whole rule is [resetAllCommand]. Everybody's
// state of the key under all policies is cleared if none is named.
func resetCommand(p process) *cobra.Command {
	command, k := newKeyCommand(p, "reset")
	command.RunE = func(_ *cobra.Command, args []string) error {
		s, err := k.connect()
		if err != nil {
			return err
		}
		defer s.close()
		var answer api.ResetResponse
		body, err := k.call(s, http.MethodDelete, apipath.Reset, args[0], url.Values{}, &answer)
		if err != nil {
			return err
		}
		of := "all algorithms and policies"
		switch {
		case answer.Policy != "":
			of = "policy " + answer.Policy
		case answer.Algorithm != "":
			of = answer.Algorithm
		}
		return k.show(body, facts("reset", answer.Key, "under", of)...)
	}
	return command
}

// checkRows shows a decision as rows of a name and a value.
func checkRows(c *api.CheckResponse) [][]string {
	delay, degraded := "", ""
	if c.DelayMicros > 0 {
		delay = waitText(c.DelayMicros)
	}
	if c.Degraded {
		degraded = "the store is unreachable; its failure policy answered"
	}
	return facts(
		"allowed", yesOrNo(c.Allowed),
		"limit", limitText(c.Limit, c.Policy, c.Algorithm),
		"remaining", fmt.Sprint(c.Remaining),
		"resets in", waitText(c.ResetAfterMicros),
		"retry after", waitText(c.RetryAfterMicros),
		"delay", delay,
		"degraded", degraded,
	)
}

// facts are rows of a name and a value each, without those of which the value is "".
func facts(pairs ...string) (rows [][]string) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			rows = append(rows, pair)
		}
	}
	return rows
}

// peekRows shows what a check would be told, or of an older service, which does not say, what
// is left.
func peekRows(r *api.RemainingResponse) [][]string {
	if r.At == 0 {
		return facts(
			"limit", limitText(r.Limit, r.Policy, r.Algorithm),
			"remaining", fmt.Sprint(r.Remaining),
			"resets in", waitText(r.ResetAfterSeconds*int64(time.Second/time.Microsecond)),
		)
	}
	return checkRows(&api.CheckResponse{
		Allowed: r.Allowed, Policy: r.Policy, Algorithm: r.Algorithm, Limit: r.Limit, Remaining: r.Remaining,
		ResetAfterMicros: r.ResetAfterMicros, RetryAfterMicros: r.RetryAfterMicros, DelayMicros: r.DelayMicros,
	})
}

// yesOrNo is a boolean in tables for people.
func yesOrNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// limitText names a limit, by its policy if it has one.
func limitText(limit int64, policy, algorithm string) string {
	if policy != "" {
		return fmt.Sprintf("%d (%s of policy %s)", limit, algorithm, policy)
	}
	return fmt.Sprintf("%d (%s)", limit, algorithm)
}

// waitText shows a time in microseconds, of which -1 is never. It is shown as durations are written
// elsewhere, such as 1m30s.
func waitText(micros int64) string {
	if micros < 0 {
		return "never"
	}
	return (time.Duration(micros) * time.Microsecond).String()
}

// exceeded lists the limits that mark a request.
func exceeded(marks []api.Exceeded) string {
	var list []string
	for _, x := range marks {
		text := x.Rule
		if x.LimitName != "" {
			text += " (" + x.LimitName + ")"
		}
		if x.RetryAfterMicros > 0 {
			text += ", for " + (time.Duration(x.RetryAfterMicros) * time.Microsecond).String()
		}
		list = append(list, text)
	}
	return strings.Join(list, "; ")
}
