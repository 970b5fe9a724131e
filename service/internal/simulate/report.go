package simulate

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/htmlpage"
)

// A Report is what candidates made of the events. Durations are in microseconds, times too, since
// the Unix epoch. It is plain data: the text for a terminal and the page are made from it
// alone, and so can be made from its JSON.
type Report struct {
	// Events is how many there were, from First to Last.
	Events int64         `json:"events"`
	First  stint.Instant `json:"first"`
	Last   stint.Instant `json:"last"`
	// Late are events that were earlier than one before, and counted as of its time.
	Late int64 `json:"late"`
	// WholeSeconds are events whose time is known to the second only, and was spread within it.
	WholeSeconds int64 `json:"wholeSeconds"`
	// Limited are events that the log says were answered with 429.
	Limited int64 `json:"limited"`
	// By is the attribute of Config.By.
	By string `json:"by,omitempty"`
	// Input is what was read, nil for a pattern.
	Input *Input `json:"input,omitempty"`
	// Candidates are in the order in which they were given.
	Candidates []CandidateReport `json:"candidates"`
}

// A CandidateReport is of one candidate.
type CandidateReport struct {
	Name string `json:"name"`
	// Total is of all requests; Clients and what follows it are each rule's alone, and empty here.
	Total RuleReport `json:"total"`
	// Rules are by priority and ID, without those that held for no request.
	Rules []RuleReport `json:"rules"`
	// Unmet are the IDs of the enabled rules that held for no request, by priority and ID.
	Unmet []string `json:"unmet,omitempty"`
	// Lacking are the IDs of the enabled rules that look at what no request of the log has, each with what that is.
	Lacking []string `json:"lacking,omitempty"`
	// StepFrom is when the first step begins, and Step how long each is.
	StepFrom stint.Instant `json:"stepFrom"`
	Step     int64         `json:"step"`
	Steps    []Step        `json:"steps"`
	// Parts are of the values of Report.By: of up to eight, and of all others together.
	Parts []PartReport `json:"parts,omitempty"`
}

// Counts are what became of requests, by one rule or in total.
type Counts struct {
	// Requests are those for which the rule holds: Admitted in the end, by all rules; Denied by this rule, in total by
	// any; Shadow would have been denied by a rule in shadow; Marked were admitted, and marked as beyond a limit.
	Requests int64 `json:"requests"`
	Admitted int64 `json:"admitted"`
	Denied   int64 `json:"denied"`
	Shadow   int64 `json:"shadow"`
	Marked   int64 `json:"marked,omitempty"`
	// Held requests waited, Waited in all and LongestWait at most.
	Held        int64 `json:"held"`
	Waited      int64 `json:"waited"`
	LongestWait int64 `json:"longestWait"`
	// Delayed is the sum of the delays that leaky buckets gave, LongestDelay the longest.
	Delayed      int64 `json:"delayed"`
	LongestDelay int64 `json:"longestDelay"`
}

// A RuleReport is of one rule, or of a candidate in total.
type RuleReport struct {
	Rule string `json:"rule,omitempty"`
	Counts
	// Clients are those of the Requests, and ClientsDenied of them were denied at least once by this rule.
	Clients       int64 `json:"clients,omitempty"`
	ClientsDenied int64 `json:"clientsDenied,omitempty"`
	// Sample is 1 if all clients were simulated, else 1 client of so many was; Unsampled are the
	// requests of others.
	Sample    int64 `json:"sample,omitempty"`
	Unsampled int64 `json:"unsampled,omitempty"`
	// Refused is why the service refuses requests of the rule that hold, "" if it does not.
	Refused string `json:"refused,omitempty"`
	// Busiest is the most that one client asked for within a second of the clock.
	Busiest int64 `json:"busiest,omitempty"`
	// LongestShut is the longest time from a client's denial to its next admission, or to its last request if none
	// follows.
	LongestShut int64 `json:"longestShut,omitempty"`
	// Ways are what became of the requests that the rule decided by their class and by what they were
	// charged, by class, of rules that have classes or are related to others.
	Ways []WayReport `json:"ways,omitempty"`
	// Limits have the peaks of each limit, those of overrides too.
	Limits []LimitReport `json:"limits,omitempty"`
	// Shares are how many clients were denied which share of their requests: none, then up to 1, 10, 25, 50, 75, less than
	// 100, and 100 percent.
	Shares []int64 `json:"shares,omitempty"`
	// MostDenied are the clients with the most denials.
	MostDenied []ClientReport `json:"mostDenied,omitempty"`
	// Heaviest are the up to 1,000 clients with the most requests; fewer where many rules have some.
	Heaviest []ClientReport `json:"heaviest,omitempty"`
}

// A WayReport is of the requests of one class that were charged in one way. Denied are those that this
// rule denied, with Via ""; of a rule in shadow, those that it would have.
type WayReport struct {
	Class    string `json:"class,omitempty"`
	Via      string `json:"via,omitempty"`
	Admitted int64  `json:"admitted"`
	Denied   int64  `json:"denied"`
}

// A LimitReport has the most that a limit admitted within any span of a length. A request that holds
// counts with what it holds until it ends, and then with what it cost.
type LimitReport struct {
	Limit string `json:"limit"`
	// Span is the limit's window, or the time in which its bucket fills or drains; 0 of a concurrency
	// limit, whose peaks are what was held at once.
	Span int64 `json:"span"`
	// Peak is of all clients together, at PeakAt, and ClientPeak of one.
	Peak       int64         `json:"peak"`
	PeakAt     stint.Instant `json:"peakAt"`
	ClientPeak int64         `json:"clientPeak"`
	// AtLeast says that there were too many admissions in the span to keep, so that peaks may have
	// been higher.
	AtLeast bool `json:"atLeast,omitempty"`
}

// A ClientReport is of one client of a rule.
type ClientReport struct {
	Key      string `json:"key"`
	Admitted int64  `json:"admitted"`
	Denied   int64  `json:"denied"`
	// Shut is the longest that it was shut out.
	Shut int64 `json:"shut"`
	// Peaks are those of the rule's limits, in order.
	Peaks []int64 `json:"peaks"`
}

// Read tells the report what was read, which these candidates have decided.
func (r *Report) Read(input *Input, candidates []Candidate) {
	r.Input = input
	for i := range r.Candidates {
		if input == nil || candidates[i].Set == nil {
			continue
		}
		for _, rule := range candidates[i].Set.Rules() {
			looks := [len(looked)]bool{
				len(rule.Match.Paths) > 0, len(rule.Match.Hosts) > 0, len(rule.Match.Methods) > 0,
				slices.Contains(rule.Scope, rules.PerUser), slices.Contains(rule.Scope, rules.PerAPIKey),
				len(rule.Match.Headers) > 0,
			}
			for at, what := range looked {
				if !rule.Disabled && looks[at] && slices.Contains(input.Lacks, what) {
					r.Candidates[i].Lacking = append(r.Candidates[i].Lacking, rule.ID+" ("+what+")")
				}
			}
		}
	}
}

// HTML is the report as one page that needs nothing else, which a script draws by the code of the dashboard.
func (r *Report) HTML(script, style string) (string, error) {
	return htmlpage.Drawn("stint simulate", script, style, struct {
		*Report

		Notes []string `json:"notes"`
	}{r, append(r.Input.Head(), r.Notes()...)})
}

const (
	mostDenied = 10
	heaviest   = 1000
	// allHeaviest is how many heaviest clients all rules together list, unless each lists fewer than
	// mostDenied.
	allHeaviest = 20_000
)

// Steps are smoothed first, as the plots draw them. Rules that decided are listed by the order of
// their set, and those that nothing met beside them.
func (s *Simulation) report() *Report {
	r := &Report{
		Events: s.events, First: s.first, Last: s.last, Late: s.late, WholeSeconds: s.whole, Limited: s.limited, By: s.by,
	}
	rules := 1
	for _, c := range s.candidates {
		for _, tally := range c.rules {
			if tally.Requests > 0 {
				rules++
			}
		}
	}
	most := max(mostDenied, min(heaviest, allHeaviest/rules))
	for _, c := range s.candidates {
		c.plot.smooth()
		made := CandidateReport{
			Name: c.name, Total: RuleReport{Counts: c.total.Counts},
			StepFrom: c.plot.first, Step: int64(c.plot.step()), Steps: c.plot.steps,
			Parts: c.parts.report(&c.plot),
		}
		tables := c.tables()
		for _, rule := range c.limiter.Set().Rules() {
			if tally := c.rules[rule.ID]; tally.Requests > 0 {
				made.Rules = append(made.Rules, tally.report(tables[rule.ID], most))
			} else if !rule.Disabled {
				made.Unmet = append(made.Unmet, rule.ID)
			}
		}
		r.Candidates = append(r.Candidates, made)
	}
	return r
}

// report is of a rule, with the clients of all its tables and up to so many of the heaviest ones.
func (t *tally) report(tables []*table, most int) RuleReport {
	r := RuleReport{Rule: t.rule.ID, Counts: t.Counts, Sample: 1, Shares: make([]int64, 8)}
	if t.refused != nil {
		r.Refused = prefix.Trim(t.refused.Error())
	}
	for _, w := range slices.SortedFunc(maps.Values(t.ways), func(a, b *WayReport) int {
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Via, b.Via))
	}) {
		r.Ways = append(r.Ways, *w)
	}
	var denied, heavy []ranked
	for _, t := range tables {
		r.Sample, r.Unsampled, r.Busiest = max(r.Sample, 1<<t.level), r.Unsampled+t.skipped, max(r.Busiest, t.busiest)
		peaks := make([]int64, len(t.limits))
		for n := range t.clients.used {
			for i := range t.limits {
				peaks[i] = max(peaks[i], t.limits[i].window.peakOf(n))
			}
			client := t.clients.at(n)
			if client.inSecond == 0 { // it did not ask, not even what another rule denied, or another table counts it
				continue
			}
			r.Clients++
			r.Shares[shareOf(client)]++
			r.LongestShut = max(r.LongestShut, client.longestDenied)
			if client.denied > 0 {
				r.ClientsDenied++
				denied = rank(denied, ranked{t, n}, mostDenied, byDenied)
			}
			heavy = rank(heavy, ranked{t, n}, most, byRequests)
		}
		for i := range t.limits {
			w := &t.limits[i].window
			if t.limits[i].Denials {
				continue // which admits nothing
			}
			r.Limits = append(r.Limits, LimitReport{
				Limit: describe(t.limits[i].Limit), Span: int64(w.span), Peak: w.peak,
				PeakAt: w.at, ClientPeak: peaks[i], AtLeast: w.overflowed,
			})
		}
	}
	r.MostDenied, r.Heaviest = reports(cut(denied, mostDenied, byDenied)), reports(cut(heavy, most, byRequests))
	return r
}

// tables are those of each rule, the one with the most clients first. A rule has several policies
// if clients have limits of their own (overrides), and so several tables.
func (c *candidate) tables() map[string][]*table {
	tables := map[string][]*table{}
	for policy, t := range c.store.tables {
		rule := strings.TrimPrefix(policy.Name(), rules.PolicyPrefix)
		tables[rule] = append(tables[rule], t)
	}
	for _, list := range tables {
		slices.SortFunc(list, func(a, b *table) int {
			return cmp.Or(
				cmp.Compare(b.clients.used, a.clients.used),
				cmp.Compare(describe(a.limits[0].Limit), describe(b.limits[0].Limit)),
			)
		})
	}
	return tables
}

// ranked is a client in a ranking. It points into a table rather than copies what is there:
// rankings are made of all clients, of which few stay.
type ranked struct {
	table *table
	n     int32
}

// compareKey orders clients that are alike otherwise.
func (r ranked) compareKey(other ranked) int {
	var a, b [shortKey]byte
	return bytes.Compare(r.table.appendKey(a[:0], r.n), other.table.appendKey(b[:0], other.n))
}

func (r ranked) client() *client { return r.table.clients.at(r.n) }

// rank keeps a client if it is among the first ones, which are in order at the begin of the list
// once there are so many. The list is cut when it is twice as long. This takes O(n log k) for the k
// first of n clients, without a heap: sorting 2k entries is paid by the k that came since.
func rank(list []ranked, r ranked, most int, order func(a, b ranked) int) []ranked {
	if len(list) >= most && order(r, list[most-1]) > 0 {
		return list
	}
	if list = append(list, r); len(list) == most || len(list) == 2*most {
		list = cut(list, most, order)
	}
	return list
}

// cut sorts a list and cuts it to its first entries.
func cut(list []ranked, most int, order func(a, b ranked) int) []ranked {
	slices.SortFunc(list, order)
	return list[:min(len(list), most)]
}

func reports(list []ranked) (made []ClientReport) {
	for _, r := range list {
		c := r.client()
		report := ClientReport{Key: r.table.key(r.n), Admitted: c.admitted, Denied: c.denied, Shut: c.longestDenied}
		for i := range r.table.limits {
			report.Peaks = append(report.Peaks, r.table.limits[i].window.peakOf(r.n))
		}
		made = append(made, report)
	}
	return made
}

// byDenied puts the client with the most denials first; the key decides between equals, so that
// reports are the same each time.
func byDenied(a, b ranked) int {
	x, y := a.client(), b.client()
	return cmp.Or(cmp.Compare(y.denied, x.denied), a.compareKey(b))
}

// byRequests puts the client with the most requests first, as byDenied does.
func byRequests(a, b ranked) int {
	x, y := a.client(), b.client()
	return cmp.Or(cmp.Compare(y.admitted+y.denied, x.admitted+x.denied), a.compareKey(b))
}

// shareEdges are the highest shares of denied requests that Shares count together; all below 1 have
// the next place. The edges are inclusive: a share of exactly 0.25 counts under 0.25. The last but
// one is the largest number below 1, so that only clients that were denied everything are at 1.
var shareEdges = [...]float64{0, 0.01, 0.1, 0.25, 0.5, 0.75, math.Nextafter(1, 0), 1}

// shareOf is the place in Shares of a client.
func shareOf(c *client) int {
	share := float64(c.denied) / float64(max(1, c.denied+c.admitted)) // of a client that other rules denied
	i, _ := slices.BinarySearch(shareEdges[:], share)
	return i
}

// describe writes a limit as in "sliding_window_log 100 per 1m".
func describe(l stint.Limit) string {
	text := algorithmName(l.Algorithm) + " " + stint.Per(l.Capacity, l.Window).String()
	switch {
	case l.Algorithm == stint.AlgorithmConcurrency:
		text = algorithmName(l.Algorithm) + " " + itoa(l.Capacity)
	case l.IsBucket():
		text = algorithmName(l.Algorithm) + " " + itoa(l.Capacity) + ", " + l.Rate.String()
	case l.Calendar != 0:
		text = algorithmName(l.Algorithm) + " " + itoa(l.Capacity) + " per calendar " + l.Calendar.String()
	}
	if l.FirstRequest {
		text += " from the first request"
	}
	if l.MinInterval > 0 {
		text += ", min_interval " + duration.Format(l.MinInterval)
	}
	if l.Name != "" {
		text = l.Name + ": " + text
	}
	return text
}
