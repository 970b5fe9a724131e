package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/bench"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/states"
)

// A benchmark is what the command line asks for. What the limits should admit is computed here,
// from --limit, and never asked of the target: an error there would go unnoticed otherwise.
type benchmark struct {
	*apiCommand
	benchFlags
	load   bench.Load
	bound  *stint.Policy
	config func() (config.Config, error)
}

// benchFlags say what is verified, which rule or policy decides, and how it is asked.
type benchFlags struct {
	Limit                []string
	Target, Policy, Rule string

	description // that the rule decides

	Addr                    string
	TLS                     bool
	URL, Domain, Descriptor string
	Rate                    string
	Callers                 int
	For                     time.Duration
	Requests, Keys          int
	Distribution            string
	Permits                 int64
	Against, Report         string
}

// benchTargets are what may be asked, each with the flags that it has for itself. A flag that is
// given with a target that does not have it is refused, as it would do nothing.
var benchTargets = map[string]string{
	"library": "config store store-timeout store-key-prefix store-log-encoding store-partitions on-store-failure",
	"rest":    "server token policy timeout rule " + strings.Join(descriptionFlags, " "),
	"rls":     "addr tls domain descriptor timeout",
	"resp":    "addr tls token policy timeout",
	"http":    "url timeout",
}

// benchCommand is `stint bench`. Flags of a single target are registered for all and refused by
// prepare, so that --help shows what there is.
func benchCommand(p process) *cobra.Command {
	command, a := newServerCommand(p, "bench")
	b := &benchmark{apiCommand: a, benchFlags: benchFlags{
		Target: "library", description: standardRequest, Domain: "bench", Descriptor: "key", Callers: 64,
		For: 10 * time.Second, Requests: bench.MaxRequests, Keys: 1000, Distribution: "uniform", Permits: 1,
	}}
	flags := command.Flags()
	addFlags(flags, "bench", &b.benchFlags)
	for _, name := range descriptionFlags {
		flags.Lookup(name).Usage += "; with --rule"
	}
	b.config = settingFlags(p, flags, append(storeSettings(), "on_store_failure")...)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if err := b.prepare(); err != nil {
			return err
		}
		return b.run(command.Context())
	}
	return command
}

// prepare reads the flags. Nothing is asked before all flags are known to be sound.
func (b *benchmark) prepare() (err error) {
	if _, known := benchTargets[b.Target]; !known {
		return misused("--target is %q; allowed: library, rest, rls, resp or http", b.Target)
	}
	have := map[string][]string{}
	for _, target := range slices.Sorted(maps.Keys(benchTargets)) {
		for _, name := range strings.Fields(benchTargets[target]) {
			have[name] = append(have[name], target)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if b.command.Flags().Changed(name) && !slices.Contains(have[name], b.Target) {
			return misused("--%s is given with --target %s; allowed: with --target %s", name, b.Target,
				strings.Join(have[name], " or "))
		}
	}
	switch name, described := b.given(b.command.Flags()); {
	case b.Rule != "" && b.Policy != "":
		return misused("--rule and --policy are given; allowed: one of them")
	case described && b.Rule == "":
		return misused("--%s is given without --rule; allowed: with --rule", name)
	}
	b.load = bench.Load{
		Callers: b.Callers, Length: b.For, Requests: b.Requests, Keys: b.Keys, Distribution: b.Distribution,
	}
	if b.Rate != "" {
		b.load.Rate, err = notation.ParseRate(b.Rate)
		if err != nil || b.load.Rate.Permits < 1 || b.load.Rate.Period <= 0 {
			return misused("--rate is %q; allowed: N/DURATION above 0 such as 5000/s", b.Rate)
		}
	}
	if fault := b.load.Validate(); fault != nil {
		return misused("--%s is %s; allowed: %s", fault.Param, fault.Value, fault.Allowed)
	}
	if b.Permits < 1 || b.Permits > bounds.MaxPermits {
		return misused("--permits is %d; allowed: 1 to %d", b.Permits, int64(bounds.MaxPermits))
	}
	return b.prepareLimits()
}

// prepareLimits reads the limits that are verified. They must repeat those of the service, since
// nothing else tells what it should have decided.
func (b *benchmark) prepareLimits() error {
	// Keys of a run begin anew, so that an earlier run takes nothing from it.
	b.load.Prefix = "bench-" + strings.ToLower(rand.Text()[:8])
	if len(b.Limit) == 0 {
		return misused("--limit is missing; allowed: %s", shortForms)
	}
	var limits []stint.Limit
	for _, text := range b.Limit {
		spelled := spelledOut(text)
		limit, err := parseLimit(spelled)
		if err != nil {
			if _, fault := notation.ParseRate(text); fault != nil && spelled == text && !strings.Contains(text, "{") {
				err = misused("--limit is %q; allowed: %s", text, shortForms)
			}
			return err
		}
		if !bench.CanVerify(limit) {
			return misused("--limit is %q; allowed: a bucket or a window, without a lease", text)
		}
		limits = append(limits, limit)
	}
	if b.Against != "" && len(limits) > 1 {
		return misused("--against is given with %d limits; allowed: with one", len(limits))
	}
	var err error
	if b.bound, err = stint.NewPolicy(cmp.Or(b.Policy, b.load.Prefix), limits...); err != nil {
		return misused("--limit or --policy: %s", prefix.Trim(err.Error()))
	}
	return nil
}

// shortForms say how a limit may be written.
const shortForms = "ALGORITHM:PERMITS:RATE such as token_bucket:100:10/s, " +
	"ALGORITHM:PERMITS:DURATION for windows such as fixed_window:50:1s, " +
	"N/DURATION for a sliding log, or a limit as rules write it"

// spelledOut is ALGORITHM:PERMITS:RATE as rules write it; other texts stay. So a shell needs no
// quotes for the usual limits. token_bucket:100:10/s stands for {algorithm: token_bucket, capacity:
// 100, refill: 10/s}.
func spelledOut(text string) string {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || strings.Contains(text, "{") {
		return text
	}
	form := "{algorithm: A, limit: N, window: T}"
	switch parts[0] {
	case "token_bucket":
		form = "{algorithm: A, capacity: N, refill: T}"
	case "leaky_bucket":
		form = "{algorithm: A, capacity: N, leak: T}"
	}
	return strings.NewReplacer("A", parts[0], "N", parts[1], "T", parts[2]).Replace(form)
}

// run asks the target, and those that it is compared with, one after the other. The exit code is
// that of the target's findings: 1 if decisions differ from what the limits admit, 4 if nothing was
// decided by the store. Scripts to compare with are measured only. What is compared is loaded after
// the target and not beside it, so that neither disturbs the other.
func (b *benchmark) run(ctx context.Context) error {
	ask, closing, err := b.open(ctx)
	if err != nil {
		return err
	}
	defer closing()
	scripts := map[string]bench.Target{}
	if b.Against != "" {
		redis, err := bench.OpenRedis(b.Against)
		if err != nil {
			return unreachable(fmt.Errorf("--against: %s", document.Redact(err.Error())))
		}
		defer redis.Close()
		for _, name := range bench.Scripts() {
			scripts[name] = b.within(bench.Script(redis, name, b.bound.Limit(0), b.Permits))
		}
	}
	if b.Report != "" { // whether it can be written is told before the load
		page, err := os.OpenFile(b.Report, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // as files that others may read
		if err != nil {
			return fmt.Errorf("--report: %w", err)
		}
		_ = page.Close()
	}
	limits := b.bound.Limits()
	report := &bench.Report{Load: b.describe()}
	report.Add(b.Target, b.load.Run(ctx, ask), limits, b.Permits)
	for _, name := range bench.Scripts() {
		if script, asked := scripts[name]; asked && ctx.Err() == nil { // if interrupted, what was done is reported
			report.Add("script "+name, b.load.Run(ctx, script), limits, b.Permits)
		}
	}
	if err := b.write(report); err != nil {
		return err
	}
	switch first := report.Targets[0]; {
	case first.Decisions == 0:
		return unreachable(fmt.Errorf("nothing was decided: %s", cmp.Or(first.Error, "no request was due")))
	case first.Degraded == first.Decisions:
		return unreachable(errors.New("the store decided nothing: all decisions are the failure policy's"))
	case first.Findings.Differ() > 0:
		return exit{exitFailed, ""}
	}
	return nil
}

// describe says what is verified, and how the target is asked.
func (b *benchmark) describe() string {
	return fmt.Sprintf(
		"%s: %s, %d callers, %v, %d keys (%s), permits %d", strings.Join(b.Limit, " and "), cmp.Or(b.Rate, "closed loop"),
		b.load.Callers, b.load.Length, b.load.Keys, b.load.Distribution, b.Permits,
	)
}

// write prints the report, and then writes the page: what was measured is told, even if the page
// can't be written.
func (b *benchmark) write(report *bench.Report) error {
	if err := b.print(report); err != nil || b.Report == "" {
		return err
	}
	err := os.WriteFile(b.Report, []byte(report.HTML()), 0o666) //nolint:gosec // as files that others may read
	if err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	return nil
}

// print writes the report for people, or as JSON.
func (b *benchmark) print(report *bench.Report) error {
	if b.JSON {
		return sayJSON(b.Out, report, "  ")
	}
	head, rows := report.Figures()
	return cmp.Or(
		say(b.Out, "%s\n%s\n\n", report.Targets[0].Verdict(), report.Load),
		sayTable(b.Out, append([][]string{head}, rows...)),
		say(b.Out, "%s", strings.Join(append(report.Lines(), ""), "\n")),
	)
}

// open connects to the target. What it returns closes what it opened.
func (b *benchmark) open(ctx context.Context) (_ bench.Target, closing func(), err error) {
	switch b.Target {
	case "library":
		return b.openStore(ctx)
	case "rest":
		return b.openREST()
	case "http":
		at, err := url.Parse(b.URL)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return nil, nil, misused("--url is %q; allowed: http:// or https:// and a host, with --target http", b.URL)
		}
		ask, closing := bench.URL(at, b.Timeout)
		return ask, closing, nil
	}
	if _, _, err := net.SplitHostPort(b.Addr); err != nil {
		return nil, nil, misused("--addr is %q; allowed: HOST:PORT of the service's listener for %s", b.Addr, b.Target)
	}
	if b.Target == "rls" {
		ask, closing, err := bench.Envoy(b.Addr, b.TLS, b.Domain, b.Descriptor, uint32(b.Permits))
		return b.within(ask), closing, err
	}
	limit := b.bound.Limit(0)
	seconds := limit.Algorithm == stint.AlgorithmTokenBucket && limit.Rate.Period%time.Second == 0 && b.bound.Len() == 1
	if b.Policy == "" && !seconds {
		return nil, nil, misused("--policy is missing; allowed: a policy of the service, " +
			"or one token bucket with a period of whole seconds, which CL.THROTTLE takes")
	}
	at := url.URL{Scheme: "redis", Host: b.Addr, User: url.UserPassword("", cmp.Or(b.Token, b.env(b.tokenVariable)))}
	if b.TLS {
		at.Scheme = "rediss"
	}
	redis, err := bench.OpenRedis(at.String())
	if err != nil {
		return nil, nil, unreachable(fmt.Errorf("--addr is %s: %w", b.Addr, err))
	}
	if b.Policy == "" {
		return b.within(bench.Throttle(redis, limit, b.Permits)), redis.Close, nil
	}
	return b.within(bench.Check(redis, b.Policy, b.Permits)), redis.Close, nil
}

// within bounds each request by --timeout.
func (b *benchmark) within(ask bench.Target) bench.Target {
	return func(ctx context.Context, key string) (bench.Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, b.Timeout)
		defer cancel()
		return ask(ctx, key)
	}
}

// openREST asks a service by its REST API.
func (b *benchmark) openREST() (bench.Target, func(), error) {
	if b.Policy == "" && b.Rule == "" {
		return nil, nil, misused("--policy is missing; allowed: the name of the service's policy, " +
			"or --rule with the ID of a rule, whose limits --limit repeats")
	}
	described, err := b.wire()
	if err != nil {
		return nil, nil, err
	}
	s, err := b.service()
	if err != nil {
		return nil, nil, err
	}
	if _, err := client.Open(s.base.String(), client.Options{Token: s.token}); err != nil { // which looks at URL and token
		return nil, nil, misused("%v", err)
	}
	ask, closing := bench.REST(s.base, s.token, b.Policy, b.Permits, b.Timeout)
	if b.Rule != "" {
		ask, closing = bench.Rule(s.base, s.token, b.Rule, described, b.Timeout)
	}
	return ask, closing, nil
}

// openStore asks a store from this process, as a service would.
func (b *benchmark) openStore(ctx context.Context) (_ bench.Target, closing func(), err error) {
	loaded, err := b.config()
	if err != nil {
		return nil, nil, err
	}
	opened, err := states.Open(loaded)
	if err != nil {
		return nil, nil, notOpened(err)
	}
	if err := opened.Await(ctx); err != nil {
		opened.Close()
		return nil, nil, notOpened(err)
	}
	store, closing, err := decideBy(opened, loaded)
	if err != nil {
		return nil, nil, err
	}
	return bench.OfStore(store, b.bound, b.Permits), closing, nil
}
