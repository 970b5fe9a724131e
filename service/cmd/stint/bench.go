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
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/bench"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/states"
)

// A benchmark is what the command line asks for. What the limits should admit is computed here,
// from --limit, and never asked of the target: an error there would go unnoticed otherwise.
type benchmark struct {
	*apiCommand
	load    bench.Load
	policy  *stint.Policy
	permits int64
	limits  []string
	config  func() (config.Config, error)

	target, addr, named, rule, domain, descriptor, url string
	rate, against, page                                string
	tls                                                bool
	asked                                              description // that rules decide
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
	command := &cobra.Command{
		Use:   "bench",
		Short: "Load a service, or a store, and verify each decision against the limit",
		Long: "Ask for decisions, at a rate or by so many callers, and hold each against the limit: exactly, by the\n" +
			"time at which it was made, where the answer has that, or else by when it was sent and received. The\n" +
			"keys begin with a prefix of the run's own. It exits with 1 if a decision differs,\n" +
			"and with 4 if the target, or its store, decided nothing.\n\n" +
			"  stint bench --limit token_bucket:100:10/s --store redis://127.0.0.1:6379\n" +
			"  stint bench --limit token_bucket:100:10/s --target rest --policy api --rate 1000/s --keys 25\n" +
			"  stint bench --limit token_bucket:100:10/s --target rest --rule login --method POST --path /login\n" +
			"  stint bench --limit fixed_window:50:1s --target rls --addr 127.0.0.1:8081 --domain d --descriptor user\n" +
			"  stint bench --limit token_bucket:100:10/s --target resp --addr 127.0.0.1:6390\n" +
			"  stint bench --limit token_bucket:100:10/s --target http --url http://127.0.0.1:3000/ --keys 1\n\n" +
			"With --rule, a request of --method, --path and the like is what the rules decide. {key} in these is the\n" +
			"key, as in --user {key}. Without --ip, each key has an address of its own.\n\n" +
			"docs/bench.md explains the figures.",
		Args: cobra.NoArgs,
	}
	b := &benchmark{apiCommand: newAPICommand(p, command, "server", "http://127.0.0.1:8080", "STINT_TOKEN", 5*time.Second)}
	flags := command.Flags()
	flags.StringArrayVar(&b.limits, "limit", nil,
		"`LIMIT` to verify: ALGORITHM:PERMITS:RATE, where windows have a DURATION; N/DURATION, a sliding log; "+
			"or as rules write it; several have to admit together")
	flags.StringVar(&b.target, "target", "library",
		"`NAME` of what is asked: library (with --store), rest, rls, resp or http")
	flags.StringVar(&b.named, "policy", "",
		"`NAME` of the service's policy, whose limits --limit repeats; without one, resp asks by CL.THROTTLE")
	flags.StringVar(&b.rule, "rule", "",
		"`ID` of the service's rule, whose limits --limit repeats, in place of --policy with rest")
	b.asked.register(flags)
	for _, name := range descriptionFlags {
		flags.Lookup(name).Usage += "; with --rule"
	}
	flags.StringVar(&b.addr, "addr", "", "`HOST:PORT` of the service's listener for rls or resp")
	flags.BoolVar(&b.tls, "tls", false, "speak TLS with the listener at --addr; "+
		"its certificate is of an authority of the system, or of the file in SSL_CERT_FILE")
	flags.StringVar(&b.url, "url", "",
		"`URL` of a handler that a limit stands before, with http: 429 is a denial, and {key} in it the key")
	flags.StringVar(&b.domain, "domain", "bench", "`NAME` of the domain, with rls")
	flags.StringVar(&b.descriptor, "descriptor", "key", "`NAME` of the descriptor whose value is the key, with rls")
	flags.StringVar(&b.rate, "rate", "", "`RATE` at which requests are due, such as 5000/s, "+
		"whenever they are answered (default: each caller asks again when it is answered)")
	flags.IntVar(&b.load.Callers, "callers", 64, "`NUMBER` of requests that are in flight at most")
	b.load.Length = 10 * time.Second
	flags.Var((*timeoutFlag)(&b.load.Length), "for", "`DURATION` of the load")
	flags.IntVar(&b.load.Requests, "requests", bench.MaxRequests,
		"`NUMBER` of requests after which the load ends before that")
	flags.IntVar(&b.load.Keys, "keys", 1000, "`NUMBER` of keys")
	flags.StringVar(&b.load.Distribution, "distribution", "uniform",
		"`NAME` of how often each key is asked for: hot (one for all), uniform or zipf")
	flags.Int64Var(&b.permits, "permits", 1, "`N`, the cost of each request")
	flags.StringVar(&b.against, "against", "",
		"compare with scripts of ours in the Redis at `URL`: redis_rate's algorithm, a GCRA as redis-cell's, a fixed window")
	flags.StringVar(&b.page, "report", "", "write a page with plots to `FILE`")
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
	if _, known := benchTargets[b.target]; !known {
		return misused("--target is %q; allowed: library, rest, rls, resp or http", b.target)
	}
	have := map[string][]string{}
	for _, target := range slices.Sorted(maps.Keys(benchTargets)) {
		for _, name := range strings.Fields(benchTargets[target]) {
			have[name] = append(have[name], target)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if b.command.Flags().Changed(name) && !slices.Contains(have[name], b.target) {
			return misused("--%s is given with --target %s; allowed: with --target %s", name, b.target,
				strings.Join(have[name], " or "))
		}
	}
	switch name, described := b.asked.given(b.command.Flags()); {
	case b.rule != "" && b.named != "":
		return misused("--rule and --policy are given; allowed: one of them")
	case described && b.rule == "":
		return misused("--%s is given without --rule; allowed: with --rule", name)
	}
	if b.rate != "" {
		if b.load.Rate, err = stint.ParseRate(b.rate); err != nil {
			return misused("--rate is %q; allowed: N/DURATION such as 5000/s", b.rate)
		}
	}
	if fault := b.load.Validate(); fault != nil {
		return misused("--%s is %s; allowed: %s", fault.Param, fault.Value, fault.Allowed)
	}
	if b.permits < 1 || b.permits > bounds.MaxPermits {
		return misused("--permits is %d; allowed: 1 to %d", b.permits, int64(bounds.MaxPermits))
	}
	return b.prepareLimits()
}

// prepareLimits reads the limits that are verified. They must repeat those of the service, since
// nothing else tells what it should have decided.
func (b *benchmark) prepareLimits() error {
	// Keys of a run begin anew, so that an earlier run takes nothing from it.
	b.load.Prefix = "bench-" + strings.ToLower(rand.Text()[:8])
	if len(b.limits) == 0 {
		return misused("--limit is missing; allowed: %s", shortForms)
	}
	var limits []stint.Limit
	for _, text := range b.limits {
		spelled := spelledOut(text)
		limit, err := parseLimit(spelled)
		if err != nil {
			if _, fault := stint.ParseRate(text); fault != nil && spelled == text && !strings.Contains(text, "{") {
				err = misused("--limit is %q; allowed: %s", text, shortForms)
			}
			return err
		}
		if !bench.CanVerify(limit) {
			return misused("--limit is %q; allowed: a bucket or a window, without a lease", text)
		}
		limits = append(limits, limit)
	}
	if b.against != "" && len(limits) > 1 {
		return misused("--against is given with %d limits; allowed: with one", len(limits))
	}
	var err error
	if b.policy, err = stint.NewPolicy(cmp.Or(b.named, b.load.Prefix), limits...); err != nil {
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
	if b.against != "" {
		redis, err := bench.OpenRedis(b.against)
		if err != nil {
			return unreachable(fmt.Errorf("--against: %s", document.Redact(err.Error())))
		}
		defer redis.Close()
		for _, name := range bench.Scripts() {
			scripts[name] = b.within(bench.Script(redis, name, b.policy.Limit(0), b.permits))
		}
	}
	if b.page != "" { // whether it can be written is told before the load
		page, err := os.OpenFile(b.page, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // as files that others may read
		if err != nil {
			return failed(fmt.Errorf("--report: %w", err))
		}
		_ = page.Close()
	}
	limits := b.policy.Limits()
	report := &bench.Report{Load: b.describe()}
	report.Add(b.target, b.load.Run(ctx, ask), limits, b.permits)
	for _, name := range bench.Scripts() {
		if script, asked := scripts[name]; asked && ctx.Err() == nil { // if interrupted, what was done is reported
			report.Add("script "+name, b.load.Run(ctx, script), limits, b.permits)
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
		"%s: %s, %d callers, %v, %d keys (%s), permits %d", strings.Join(b.limits, " and "), cmp.Or(b.rate, "closed loop"),
		b.load.Callers, b.load.Length, b.load.Keys, b.load.Distribution, b.permits,
	)
}

// write prints the report, and then writes the page: what was measured is told, even if the page
// can't be written.
func (b *benchmark) write(report *bench.Report) error {
	if err := b.print(report); err != nil || b.page == "" {
		return err
	}
	err := os.WriteFile(b.page, []byte(report.HTML()), 0o666) //nolint:gosec // as files that others may read
	if err != nil {
		return failed(fmt.Errorf("--report: %w", err))
	}
	return nil
}

// print writes the report for people, or as JSON.
func (b *benchmark) print(report *bench.Report) error {
	if b.json {
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
	switch b.target {
	case "library":
		return b.openStore(ctx)
	case "rest":
		return b.openREST()
	case "http":
		at, err := url.Parse(b.url)
		if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" {
			return nil, nil, misused("--url is %q; allowed: http:// or https:// and a host, with --target http", b.url)
		}
		ask, closing := bench.URL(at, b.timeout)
		return ask, closing, nil
	}
	if _, _, err := net.SplitHostPort(b.addr); err != nil {
		return nil, nil, misused("--addr is %q; allowed: HOST:PORT of the service's listener for %s", b.addr, b.target)
	}
	if b.target == "rls" {
		ask, closing, err := bench.Envoy(b.addr, b.tls, b.domain, b.descriptor, uint32(b.permits))
		return b.within(ask), closing, err
	}
	limit := b.policy.Limit(0)
	seconds := limit.Algorithm == stint.AlgorithmTokenBucket && limit.Rate.Period%time.Second == 0 && b.policy.Len() == 1
	if b.named == "" && !seconds {
		return nil, nil, misused("--policy is missing; allowed: a policy of the service, " +
			"or one token bucket with a period of whole seconds, which CL.THROTTLE takes")
	}
	at := url.URL{Scheme: "redis", Host: b.addr, User: url.UserPassword("", cmp.Or(b.token, b.env(b.tokenVariable)))}
	if b.tls {
		at.Scheme = "rediss"
	}
	redis, err := bench.OpenRedis(at.String())
	if err != nil {
		return nil, nil, unreachable(fmt.Errorf("--addr is %s: %w", b.addr, err))
	}
	if b.named == "" {
		return b.within(bench.Throttle(redis, limit, b.permits)), redis.Close, nil
	}
	return b.within(bench.Check(redis, b.named, b.permits)), redis.Close, nil
}

// within bounds each request by --timeout.
func (b *benchmark) within(ask bench.Target) bench.Target {
	return func(ctx context.Context, key string) (bench.Answer, error) {
		ctx, cancel := context.WithTimeout(ctx, b.timeout)
		defer cancel()
		return ask(ctx, key)
	}
}

// openREST asks a service by its REST API.
func (b *benchmark) openREST() (bench.Target, func(), error) {
	if b.named == "" && b.rule == "" {
		return nil, nil, misused("--policy is missing; allowed: the name of the service's policy, " +
			"or --rule with the ID of a rule, whose limits --limit repeats")
	}
	described, err := b.asked.wire()
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
	ask, closing := bench.REST(s.base, s.token, b.named, b.permits, b.timeout)
	if b.rule != "" {
		ask, closing = bench.Rule(s.base, s.token, b.rule, described, b.timeout)
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
	return bench.OfStore(store, b.policy, b.permits), closing, nil
}
