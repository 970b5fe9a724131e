package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/dashboard"
	"github.com/stint-go/stint/service/internal/simulate"
)

// A simulation is what the command line asks for. Texts of flags are kept as they are until prepare
// reads them, so that a fault names the flag. What flags fill in at once is the config of package
// simulate itself.
type simulation struct {
	process
	simulateFlags
	outputFlags
	pattern simulate.Pattern
	logs    []string
	reader  simulate.ReaderOptions
	config  simulate.Config
}

// simulateFlags are the flags of what is compared and of the traffic, of a pattern or of logs; outputFlags those of
// what is written. A Logged of "" is no candidate.
type simulateFlags struct {
	Limit, Candidate       []string
	Logged, By             string
	Pattern                string
	Seed                   uint64
	Rate                   float64
	Clients                int
	Length, Hold           string
	Client, Path, Method   string
	Burst                  int
	Format                 string
	Strict                 bool
	ExplainFormat, Reorder string
	MaxClients             int
}

type outputFlags struct {
	DenyByDefault       bool
	Decisions, HTML     string
	JSON                bool
	Suggest             string // "": nothing is to be suggested
	SuggestRate, Replay bool
}

// simulateCommand is `stint simulate`. Its flags are in the order of the documentation: what is
// compared, the traffic of a pattern or of logs, and what is written.
func simulateCommand(p process) *cobra.Command {
	s := &simulation{process: p, simulateFlags: simulateFlags{
		Seed: 1, Hold: "0s", Path: "/", Method: http.MethodGet, Reorder: "0s", MaxClients: 10_000_000,
	}}
	command := newCommand("simulate", &s.simulateFlags)
	command.Args = cobra.ArbitraryArgs
	flags := command.Flags()
	flags.Lookup("logged").NoOptDefVal = "as logged"
	settings := settingFlags(p, flags, "trusted_proxies", "client_ip_headers", "ipv6_prefix")
	addFlags(flags, "simulate", &s.outputFlags)
	command.RunE = func(command *cobra.Command, args []string) error {
		s.logs = args
		if err := s.refuseUnused(flags.Changed); err != nil {
			return err
		}
		loaded, err := settings()
		if err != nil {
			return err
		}
		s.config = simulate.Config{By: s.By, MaxClients: s.MaxClients, DenyByDefault: s.DenyByDefault}
		s.reader = simulate.ReaderOptions{
			Format: s.Format, ClientIP: clientip.Config(loaded.ClientIP), Address: len(s.Limit) > 0,
		}
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
	case s.ExplainFormat != "" && len(s.logs) > 0:
		return misused("--explain-format reads %s alone; give no other file", s.ExplainFormat)
	case s.Replay:
		return refuse("with --replay, only --json", slices.Concat(reading, making, []string{
			"limit", "candidate", "pattern", "max-clients", "ipv6-prefix", "deny-by-default", "decisions", "html",
			"suggest", "suggest-rate", "logged", "by", "explain-format",
		})...)
	case s.SuggestRate && s.Suggest == "":
		return misused("--suggest-rate is given; allowed: with --suggest only")
	case s.Decisions == "-":
		return misused("--decisions is -; allowed: the name of a file")
	case s.Suggest != "":
		if err := refuse("without --suggest only", "decisions", "html", "logged", "by"); err != nil {
			return err
		}
	}
	if s.Pattern != "" {
		return refuse("with files only", append(reading, "logged", "by")...)
	}
	return refuse("with --pattern only", making...)
}

// run goes through the input once, for all candidates. Suggesting and replaying are programs of
// their own beside it.
func (s *simulation) run(ctx context.Context) (err error) {
	switch {
	case s.Replay:
		return s.replayRecords()
	case s.ExplainFormat != "":
		return s.explainFormat()
	}
	if err := s.prepare(); err != nil {
		return err
	}
	if s.Suggest != "" {
		return s.suggest(ctx)
	}
	finish, err := s.openDecisions()
	if err != nil {
		return err
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
		return err
	}
	report.Read(input, s.config.Candidates)
	return s.write(report)
}

// prepare reads the flags, and the candidates. Candidates are compared in the order of the command
// line: limits, files, then the log itself.
func (s *simulation) prepare() error {
	if s.Strict {
		s.reader.Unread = func(line int64, text string, fault error) error {
			return fmt.Errorf("--strict: line %d: %w: %.200q", line, fault, text)
		}
	}
	if script, _ := dashboard.Report(); s.HTML != "" && script == "" {
		return misused("--html is given; allowed: in a program with the dashboard, as make build makes it with Node.js")
	}
	if (s.Pattern == "") == (len(s.logs) == 0) {
		return misused("give either files, - for standard input, or --pattern")
	}
	for _, text := range s.Limit {
		if err := s.addLimit(text); err != nil {
			return err
		}
	}
	for _, path := range s.Candidate {
		set, err := rulefile.ReadSet(path, rules.Options{IPv6Prefix: s.reader.ClientIP.IPv6Prefix})
		if err != nil {
			return misconfigured(err)
		}
		s.add(path, set)
	}
	if s.Logged != "" {
		s.config.Candidates = append(s.config.Candidates, simulate.Candidate{Name: s.Logged, Logged: true})
	}
	if len(s.config.Candidates) == 0 {
		return misused("nothing to simulate; give --limit 100/1m, or --candidate with a file of rules")
	}
	if s.Pattern != "" {
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
			if len(s.Limit) > 1 {
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
	s.pattern = simulate.Pattern{
		Name: s.Pattern, Seed: s.Seed, Rate: s.Rate, Clients: s.Clients, Client: s.Client, Path: s.Path, Method: s.Method,
		Burst: s.Burst, Length: 10 * time.Minute, Window: time.Minute,
	}
	p, burst := &s.pattern, s.Pattern == "boundary-burst"
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
	if p.Hold, err = notation.ParseDuration(s.Hold); err != nil {
		return misused("--hold: %v", err)
	}
	if s.Length != "" {
		if p.Length, err = notation.ParseDuration(s.Length); err != nil {
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
		if s.Pattern != "" {
			return nil, s.pattern.Run(bounded)
		}
		delay, err := notation.ParseDuration(s.Reorder)
		if err != nil || delay < 0 || delay > time.Hour {
			return nil, misused("--reorder is %q; allowed: 0s to 1h", s.Reorder)
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
				return nil, err
			}
		}
		if err := order.Flush(); err != nil {
			return nil, err
		}
		input, err := r.Done()
		if err != nil {
			return nil, err
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
	if s.Decisions == "" {
		return func() error { return nil }, nil
	}
	out, err := os.Create(filepath.Clean(s.Decisions))
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
	if s.HTML != "" {
		page, err := report.HTML(dashboard.Report())
		if err == nil {
			err = os.WriteFile(s.HTML, []byte(page), 0o666) //nolint:gosec // as files that others may read
		}
		if err != nil {
			return err
		}
	}
	if s.JSON {
		return sayJSON(s.Out, report, "  ")
	}
	return report.WriteText(s.Out, s.env("NO_COLOR") == "" && isTerminal(s.Out))
}
