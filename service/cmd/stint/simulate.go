package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/dashboard"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A simulation is what the command line asks for. Texts of flags are kept as they are until prepare
// reads them, so that a fault names the flag. What flags fill in at once is the config of package
// simulate itself.
type simulation struct {
	process
	limits, files []string
	pattern       simulate.Pattern
	length, hold  string
	reorder       string
	logs          []string
	reader        simulate.ReaderOptions
	config        simulate.Config

	logged          string // "": what the log says is no candidate
	decisions, html string
	json, strict    bool
	explain         string // a file, whose first lines are explained
	share           string // "": nothing is to be suggested
	suggestRate     bool
	replay          bool
}

// simulateCommand is `stint simulate`. Its flags are in the order of the documentation: what is
// compared, the traffic of a pattern or of logs, and what is written.
func simulateCommand(p process) *cobra.Command {
	s := &simulation{process: p}
	command := &cobra.Command{
		Use:   "simulate [FILE...]",
		Short: "Show what limits would do to the traffic of a log, or to a pattern",
		Long: "Show what limits would do to the requests of access logs, in virtual time: whom they deny, how\n" +
			"often, how long. Logs are of any format that --format names or describes: those of usual servers,\n" +
			"load balancers and CDNs are known, and what containers and syslog write before a line; so are CSV\n" +
			"and JSON lines with time, key and cost. gzip, zstd and bzip2 are unpacked. - is standard input.\n" +
			"With a column hold, such as 2.5s, a request holds what it takes for so long; actual is what it cost then.\n\n" +
			"  stint simulate --limit 100/1m access.log\n" +
			"  stint simulate --candidate a.yaml --candidate b.yaml --html report.html access.log.gz\n" +
			"  stint simulate --limit 100/1m --format 'nginx:$remote_addr [$time_local] \"$request\" $status' access.log\n" +
			"  stint simulate --explain-format access.log\n" +
			"  stint simulate --limit 100/1m --pattern boundary-burst\n\n" +
			"docs/simulate.md helps to choose a limit and says what logs hide, docs/reference/simulate.md explains the figures.",
	}
	flags := command.Flags()
	flags.StringArrayVar(&s.limits, "limit", nil,
		"`LIMIT` to compare, each client's: 100/1m for all five algorithms, or {algorithm: token_bucket, capacity: 5, "+
			"refill: 1/s}, or a list of such; may be given several times")
	flags.StringArrayVar(&s.files, "candidate", nil,
		"`PATH` of a file of rules, or a folder of them, to compare; may be given several times")
	flags.StringVar(&s.logged, "logged", "",
		"compare with the log, too, which denied what it says was answered with 429; `NAME` is what the report calls it")
	flags.Lookup("logged").NoOptDefVal = "as logged"
	flags.StringVar(&s.config.By, "by", "",
		"`ATTRIBUTE` by whose values requests are counted and plotted, too, such as team")
	flags.StringVar(&s.pattern.Name, "pattern", "",
		"simulate the traffic of a pattern, `NAME` of "+strings.Join(simulate.Patterns(), ", "))
	flags.Uint64Var(&s.pattern.Seed, "seed", 1, "`NUMBER` by which the pattern is drawn")
	flags.Float64Var(
		&s.pattern.Rate, "rate", 0,
		"the pattern's requests per `SECOND` (default 10; boundary-burst: as many as fill twice the first limit)",
	)
	flags.IntVar(&s.pattern.Clients, "clients", 0, "`NUMBER` of the pattern's clients (default 100; boundary-burst: 1)")
	flags.StringVar(&s.length, "length", "",
		"`DURATION` of the pattern (default 10m; diurnal: 1d; boundary-burst: two windows)")
	flags.StringVar(&s.hold, "hold", "0s",
		"`DURATION` for which each of the pattern's requests holds what it takes, as concurrency limits need")
	flags.StringVar(&s.pattern.Client, "client", "",
		"`NAME` of the pattern's clients, as address, user and API key (default client-1 and so on; "+
			"with --clients 1 the name alone)")
	flags.StringVar(&s.pattern.Path, "path", "/", "`PATH` that the pattern's requests ask for")
	flags.StringVar(&s.pattern.Method, "method", "GET", "`METHOD` of the pattern's requests")
	flags.IntVar(
		&s.pattern.Burst, "burst", 0,
		"`NUMBER` of a client's requests that come together (default 1; boundary-burst: by the rate)",
	)
	flags.StringVar(
		&s.reader.Format, "format", "",
		"`FORMAT` of the logs: "+strings.Join(simulate.Formats(), ", ")+
			"; or nginx: and a log_format, apache: and a LogFormat, json:client=ClientHost,time=StartUTC, or csv:, tsv: and "+
			"w3c: with such names or the names of columns; by default the one that reads most of the first 1,000 lines",
	)
	flags.BoolVar(&s.strict, "strict", false, "end with an error at the first line that can't be read")
	flags.StringVar(
		&s.explain, "explain-format", "", "print the first ten lines of `FILE` as they are read, and nothing else",
	)
	flags.StringVar(&s.reorder, "reorder", "0s", "sort requests that come up to this `DURATION` after a later one")
	flags.IntVar(
		&s.config.MaxClients, "max-clients", 10_000_000,
		"`NUMBER` of clients of a rule above which only a sample is simulated",
	)
	settings := settingFlags(p, flags, "trusted_proxies", "client_ip_headers", "ipv6_prefix")
	flags.BoolVar(&s.config.DenyByDefault, "deny-by-default", false, "deny requests for which no rule holds")
	flags.StringVar(&s.decisions, "decisions", "", "write each decision as a line of JSON to `FILE`")
	flags.StringVar(&s.html, "html", "", "write a page with plots to `FILE`")
	flags.BoolVar(&s.json, "json", false, "print the report as JSON")
	flags.StringVar(
		&s.share, "suggest", "",
		"find the least limits of each rule under which a `SHARE` of its clients, such as 99.9%, is never denied",
	)
	flags.BoolVar(
		&s.suggestRate, "suggest-rate", false, "with --suggest, find the least rates of buckets in place of capacities",
	)
	flags.BoolVar(
		&s.replay, "replay", false,
		"take the files for records of serve --record, decide what they have once more, and compare",
	)
	flags.SortFlags = false
	command.RunE = func(command *cobra.Command, args []string) error {
		s.logs = args
		if err := s.refuseUnused(flags.Changed); err != nil {
			return err
		}
		loaded, err := settings()
		if err != nil {
			return err
		}
		s.reader.ClientIP = clientip.Config(loaded.ClientIP)
		return s.run(command.Context())
	}
	return command
}

// refuseUnused refuses flags that would do nothing beside others.
func (s *simulation) refuseUnused(given func(flag string) bool) error {
	refuse := func(allowed string, flags ...string) error {
		for _, flag := range flags {
			if given(flag) {
				return misused("--%s is given; allowed: %s", flag, allowed)
			}
		}
		return nil
	}
	reading := []string{"format", "reorder", "strict", "config", "trusted-proxies", "client-ip-headers"}
	making := []string{"seed", "rate", "clients", "length", "client", "path", "method", "burst", "hold"}
	switch {
	case s.explain != "" && len(s.logs) > 0:
		return misused("--explain-format reads %s alone; give no other file", s.explain)
	case s.replay:
		return refuse("with --replay, only --json", slices.Concat(reading, making, []string{
			"limit", "candidate", "pattern", "max-clients", "ipv6-prefix", "deny-by-default", "decisions", "html",
			"suggest", "suggest-rate", "logged", "by", "explain-format",
		})...)
	case s.suggestRate && s.share == "":
		return misused("--suggest-rate is given; allowed: with --suggest only")
	case s.decisions == "-":
		return misused("--decisions is -; allowed: the name of a file")
	case s.share != "":
		if err := refuse("without --suggest only", "decisions", "html", "logged", "by"); err != nil {
			return err
		}
	}
	if s.pattern.Name != "" {
		return refuse("with files only", append(reading, "logged", "by")...)
	}
	return refuse("with --pattern only", making...)
}

// run goes through the input once, for all candidates. Suggesting and replaying are programs of
// their own beside it.
func (s *simulation) run(ctx context.Context) (err error) {
	switch {
	case s.replay:
		return s.replayRecords()
	case s.explain != "":
		return s.explainFormat()
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if s.share != "" {
		return s.suggest(ctx)
	}
	finish, err := s.openDecisions()
	if err != nil {
		return failed(err)
	}
	sim, err := simulate.New(s.config)
	if err != nil {
		return misused("%v", err)
	}
	input, err := s.source(ctx)(sim.Add)
	if err != nil {
		return err
	}
	report, err := sim.Finish()
	if err == nil {
		err = finish()
	}
	if err != nil {
		return failed(err)
	}
	report.Read(input, s.config.Candidates)
	return s.write(report)
}

// prepare reads the flags, and the candidates. Candidates are compared in the order of the command
// line: limits, files, then the log itself.
func (s *simulation) prepare() error {
	s.reader.Address = len(s.limits) > 0
	if s.strict {
		s.reader.Unread = func(line int64, text string, fault error) error {
			return fmt.Errorf("--strict: line %d: %w: %.200q", line, fault, text)
		}
	}
	if script, _ := dashboard.Report(); s.html != "" && script == "" {
		return misused("--html is given; allowed: in a program with the dashboard, as make build makes it with Node.js")
	}
	if (s.pattern.Name == "") == (len(s.logs) == 0) {
		return misused("give either files, - for standard input, or --pattern")
	}
	for _, text := range s.limits {
		if err := s.addLimit(text); err != nil {
			return err
		}
	}
	for _, path := range s.files {
		set, err := rulefile.ReadSet(path, rules.Options{IPv6Prefix: s.reader.ClientIP.IPv6Prefix})
		if err != nil {
			return misconfigured(err)
		}
		s.add(path, set)
	}
	if s.logged != "" {
		s.config.Candidates = append(s.config.Candidates, simulate.Candidate{Name: s.logged, Logged: true})
	}
	if len(s.config.Candidates) == 0 {
		return misused("nothing to simulate; give --limit 100/1m, or --candidate with a file of rules")
	}
	if s.pattern.Name != "" {
		return s.preparePattern()
	}
	return nil
}

// add adds a candidate. Logs are read with their header fields only if a rule of some candidate
// asks for one, since that makes a map for each request.
func (s *simulation) add(name string, set *rules.Set) {
	for _, rule := range set.Rules() {
		s.reader.Headers = s.reader.Headers || len(rule.Match.Headers) > 0 || namesField(&rule.Cost)
		for _, cost := range rule.Costs {
			s.reader.Headers = s.reader.Headers || namesField(&cost)
		}
	}
	s.config.Candidates = append(s.config.Candidates, simulate.Candidate{Name: name, Set: set})
}

// namesField reports whether a header field names the cost, or a part of it.
func namesField(c *rules.Cost) bool {
	return c.Header != "" || slices.ContainsFunc(c.Sum, func(p rules.CostPart) bool { return p.Header != "" })
}

// addLimit adds candidates for a limit of the command line. A rate such as 100/1m stands for one
// candidate of each algorithm; all else is the text of a limit, or of several, as a file of rules
// would have it, and one candidate.
func (s *simulation) addLimit(text string) error {
	if !strings.ContainsAny(text, "{[:") {
		limits, err := simulate.Budget(text)
		if err != nil {
			return misused("--limit: %v; or {algorithm: …}", err)
		}
		for _, l := range limits {
			set, err := rules.Compile([]rules.Rule{simulate.LimitRule("limit", l)}, rules.Options{})
			if err != nil {
				return misused("--limit: %v", err)
			}
			name := strings.ToLower(l.Algorithm.String())
			if len(s.limits) > 1 {
				name += " " + text
			}
			s.add(name, set)
		}
		return nil
	}
	list := text
	if !strings.HasPrefix(strings.TrimSpace(text), "[") {
		list = "[" + text + "]"
	}
	parsed, _, err := rulefile.Parse("--limit", []byte("[{id: limit, scope: per_ip, limits: "+list+"}]"))
	if err == nil {
		rule := simulate.LimitRule("limit", parsed[0].Limits...)
		rule.Costs = parsed[0].Costs
		var set *rules.Set
		if set, err = rules.Compile([]rules.Rule{rule}, rules.Options{}); err == nil {
			s.add(text, set)
		}
	}
	if err != nil {
		return misused("%v", err)
	}
	return nil
}

// preparePattern fills in what the command line left open. boundary-burst is about the first limit
// of the first candidate: it takes the limit's window, or the time that its bucket takes to fill,
// as its own, and sends twice the capacity in it.
func (s *simulation) preparePattern() error {
	p := &s.pattern
	burst := p.Name == "boundary-burst"
	p.Length, p.Window = 10*time.Minute, time.Minute
	if p.Name == "diurnal" {
		p.Length = 24 * time.Hour
	}
	limit, window := int64(100), p.Window
	for _, rule := range s.config.Candidates[0].Set.Rules() {
		if len(rule.Limits) > 0 {
			l := rule.Limits[0]
			limit, window = l.Capacity, l.Window
			if l.IsBucket() {
				fill := float64(l.Rate.Period) * float64(l.Capacity) / float64(l.Rate.Permits)
				window = time.Duration(fill).Truncate(time.Microsecond)
			}
			break
		}
	}
	if burst && window > 0 {
		p.Window, p.Length = window, 2*window
	}
	var err error
	if p.Hold, err = stint.ParseDuration(s.hold); err != nil {
		return misused("--hold: %v", err)
	}
	if s.length != "" {
		if p.Length, err = stint.ParseDuration(s.length); err != nil {
			return misused("--length: %v", err)
		}
	}
	switch {
	case p.Rate == 0 && burst:
		p.Rate = 2 * float64(limit) / p.Window.Seconds()
	case p.Rate == 0:
		p.Rate = 10
	}
	switch {
	case p.Clients == 0 && burst:
		p.Clients = 1
	case p.Clients == 0:
		p.Clients = 100
	}
	if err := p.Validate(); err != nil {
		return misused("%v", err)
	}
	return nil
}

// source is what makes the events: it hands them on, and tells what was read. It can be asked
// several times, as suggest does: each time logs are read anew. The context is looked at every 4096
// events, which costs nothing.
func (s *simulation) source(ctx context.Context) func(add func(*simulate.Event) error) (*simulate.Input, error) {
	return func(add func(*simulate.Event) error) (*simulate.Input, error) {
		asked := 0
		bounded := func(ev *simulate.Event) error {
			if asked++; asked%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			return add(ev)
		}
		if s.pattern.Name != "" {
			return nil, failed(s.pattern.Run(bounded))
		}
		delay, err := stint.ParseDuration(s.reorder)
		if err != nil || delay < 0 || delay > time.Hour {
			return nil, misused("--reorder is %q; allowed: 0s to 1h", s.reorder)
		}
		r, err := simulate.NewReader(s.reader)
		if err != nil {
			return nil, misused("%v", err)
		}
		order := simulate.NewOrder(delay, bounded)
		progress := newProgress(s.Err, s.logs)
		defer progress.end()
		for _, name := range s.logs {
			if err := readLog(name, progress, r, order.Add); err != nil {
				return nil, failed(err)
			}
		}
		if err := order.Flush(); err != nil {
			return nil, failed(err)
		}
		input, err := r.Done()
		if err != nil {
			return nil, failed(err)
		}
		return &input, nil
	}
}

// readLog reads one file, or standard input for -, and names it in an error.
func readLog(name string, progress *progress, r *simulate.Reader, add func(*simulate.Event) error) (err error) {
	in := io.Reader(os.Stdin)
	if name != "-" {
		f, err := os.Open(filepath.Clean(name))
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }() // which was read
		in = f
	}
	if err := r.Read(progress.count(in), add); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// openDecisions opens what decisions go to, and returns what closes it. They may be as many as the
// events times the candidates, and are written through a buffer; closing reports what writing them
// met.
func (s *simulation) openDecisions() (closing func() error, err error) {
	if s.decisions == "" {
		return func() error { return nil }, nil
	}
	out, err := os.Create(filepath.Clean(s.decisions))
	if err != nil {
		return nil, err
	}
	var line []byte
	buffered := bufio.NewWriterSize(out, 1<<16)
	s.config.Decided = func(v *simulate.Verdict) error {
		line = v.AppendJSON(line[:0])
		_, err := buffered.Write(line)
		return err
	}
	return func() error { return errors.Join(buffered.Flush(), out.Close()) }, nil
}

// write writes the report wherever it is to go.
func (s *simulation) write(report *simulate.Report) error {
	if s.html != "" {
		page, err := report.HTML(dashboard.Report())
		if err == nil {
			err = os.WriteFile(s.html, []byte(page), 0o666) //nolint:gosec // as files that others may read
		}
		if err != nil {
			return failed(err)
		}
	}
	if s.json {
		return sayJSON(s.Out, report, "  ")
	}
	return failed(report.WriteText(s.Out, s.env("NO_COLOR") == "" && isTerminal(s.Out)))
}
