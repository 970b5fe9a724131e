package simulate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/duration"
)

// paint writes a text in one of 256 colours.
func paint(text string, colour int, coloured bool) string {
	if !coloured {
		return text
	}
	return fmt.Sprintf("\x1b[38;5;%dm%s\x1b[39m", colour, text)
}

// The colours of outcomes, in a terminal's 256.
const (
	slate     = 67
	vermilion = 166
	violet    = 98
)

// WriteText writes the report for people, with the colours of a terminal or without.
func (r *Report) WriteText(out io.Writer, coloured bool) error {
	var b strings.Builder
	for _, line := range r.Input.Head() {
		b.WriteString(line + "\n")
	}
	fmt.Fprintf(&b, "%s requests in %s, from %s to %s\n\n", Group(r.Events), round(int64(r.Last-r.First)), r.First, r.Last)
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	// Painted columns have invisible bytes, the same number in each row.
	_, _ = fmt.Fprintf(
		w, "CANDIDATE\tRULE\tREQUESTS\t%s\t%s\t%s\tSHARE\tCLIENTS\tDENIED ONCE\tSHUT OUT\tPEAK\tPER\tCLIENT PEAK\tWAIT\t\n",
		paint("ADMITTED", slate, coloured), paint("DENIED", vermilion, coloured), paint("SHADOW", violet, coloured),
	)
	for i := range r.Candidates {
		c := &r.Candidates[i]
		for j := range c.Rules {
			c.Rules[j].row(w, c.Name, coloured)
		}
		if len(c.Rules) != 1 {
			total := c.Total
			total.Rule = "(all)"
			total.row(w, c.Name, coloured)
		}
	}
	_ = w.Flush() // which can't fail
	for i := range r.Candidates {
		c := &r.Candidates[i]
		for j := range c.Parts {
			if j == 0 {
				fmt.Fprintf(&b, "\nadmitted by %s, by %s:", c.Name, r.By)
			}
			fmt.Fprintf(&b, "%s %s %s", map[bool]string{true: ","}[j > 0], c.Parts[j].Name(), c.Parts[j].said())
		}
		if len(c.Parts) > 0 {
			b.WriteByte('\n')
		}
		for j := range r.Candidates[i].Rules {
			r.Candidates[i].Rules[j].writeWays(&b, r.Candidates[i].Name)
			r.Candidates[i].Rules[j].writeMarked(&b, r.Candidates[i].Name)
			r.Candidates[i].Rules[j].writeDenied(&b, r.Candidates[i].Name)
		}
	}
	for _, note := range r.Notes() {
		b.WriteString("\nnote: " + note + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Described is the format, and what is around it.
func (in *Input) Described() string {
	if in.Wrapped == "" {
		return in.Format
	}
	return in.Format + " behind " + in.Wrapped
}

// Head says how a log was read, before all figures: whoever reads them should see first what they are of.
func (in *Input) Head() (lines []string) {
	if in == nil {
		return nil
	}
	lines = append(lines, fmt.Sprintf("format %s: %s of %s lines are requests (%s)", in.Described(), Group(in.Requests),
		Group(in.Lines), percent(in.Requests, in.Lines)))
	if in.Malformed > 0 {
		lines = append(lines, fmt.Sprintf("%s of %s lines are malformed and left out. The first: %s",
			Group(in.Malformed), Group(in.Lines), in.FirstMalformed))
	}
	if len(in.Clients) > 0 {
		lines = append(lines, "clients such as "+strings.Join(in.Clients, ", "))
	}
	if in.Forwarded > 0 {
		lines = append(lines, Group(in.Forwarded)+
			" requests name hops before the client; --trusted-proxies says which of them to believe")
	}
	return lines
}

// row writes the line of a rule, or of the total, which has no clients and no peaks.
func (r *RuleReport) row(w io.Writer, candidate string, coloured bool) {
	peak, per, client := "", "", ""
	if len(r.Limits) > 0 {
		l := &r.Limits[0]
		least := map[bool]string{true: "≥"}[l.AtLeast]
		peak, per, client = least+Group(l.Peak), l.per(""), least+Group(l.ClientPeak)
	}
	shut, clients, once := "", "", ""
	if r.Clients > 0 {
		clients, once, shut = Group(r.Clients), Group(r.ClientsDenied), round(r.LongestShut)
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", candidate,
		r.Rule, Group(r.Requests),
		paint(Group(r.Admitted), slate, coloured), paint(Group(r.Denied), vermilion, coloured),
		paint(Group(r.Shadow), violet, coloured),
		percent(r.Denied, r.Requests), clients, once, shut, peak, per, client, round(max(r.LongestWait, r.LongestDelay)))
}

// per is over what length of time peaks are, behind a word.
func (l *LimitReport) per(word string) string {
	if l.Span == 0 {
		return "at once"
	}
	return word + duration.Format(micros(l.Span))
}

// writeWays lists what became of the requests of each class, and by what they were charged.
func (r *RuleReport) writeWays(b *strings.Builder, candidate string) {
	for i := range r.Ways {
		w := &r.Ways[i]
		if i == 0 {
			fmt.Fprintf(b, "\ncharged by %s of %s:", r.Rule, candidate)
		}
		said := w.Via
		if w.Class != "" {
			said = strings.TrimSpace("class " + w.Class + " " + w.Via)
		}
		fmt.Fprintf(b, "%s %s", map[bool]string{true: ","}[i > 0], said)
		if w.Admitted > 0 {
			fmt.Fprintf(b, " %s", Group(w.Admitted))
		}
		if w.Denied > 0 {
			fmt.Fprintf(b, " denied %s", Group(w.Denied))
		}
	}
	if len(r.Ways) > 0 {
		b.WriteByte('\n')
	}
}

// writeMarked says how many requests the rule marks.
func (r *RuleReport) writeMarked(b *strings.Builder, candidate string) {
	if r.Marked > 0 {
		fmt.Fprintf(b, "\nmarked by %s of %s: %s, %s of its requests\n", r.Rule, candidate, Group(r.Marked),
			percent(r.Marked, r.Requests))
	}
}

// writeDenied lists the clients that were denied most.
func (r *RuleReport) writeDenied(b *strings.Builder, candidate string) {
	if len(r.MostDenied) == 0 {
		return
	}
	fmt.Fprintf(b, "\nmost denied by %s of %s:", r.Rule, candidate)
	for i, c := range r.MostDenied {
		if i == 5 {
			break
		}
		fmt.Fprintf(
			b, "%s %q %s of %s (shut out %s)", map[bool]string{true: ","}[i > 0], c.Key, Group(c.Denied),
			Group(c.Admitted+c.Denied), round(c.Shut),
		)
	}
	b.WriteByte('\n')
}

// Notes say what a reader of the figures should know. They are what would otherwise mislead:
// traffic that another limit had already shaped, lines left out, times that are not exact, rules
// that nothing met, and clients that were not simulated.
func (r *Report) Notes() (notes []string) {
	note := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if r.Limited > 0 {
		note("%s requests of the log were answered with 429: it shows what another limit let through, "+
			"and clients may have asked more often because of it.", Group(r.Limited))
	}
	if in := r.Input; in != nil && in.Garbled > 0 {
		note("%s requests have no method and path that can be read, and count without. The first: %s",
			Group(in.Garbled), in.FirstGarbled)
	}
	if r.Late > 0 {
		note(
			"%s requests are earlier than one before them, and count as of its time. --reorder sorts what is a little late.",
			Group(r.Late),
		)
	}
	if r.WholeSeconds > 0 {
		var busiest int64
		for _, c := range r.Candidates {
			for _, rule := range c.Rules {
				busiest = max(busiest, rule.Busiest)
			}
		}
		note("the times of %s requests are whole seconds; they are spread evenly within their second. "+
			"One client asks for up to %s permits in a second of the log: the log hides in what order and how close together, "+
			"and a client's count in a window may be off by that much.", Group(r.WholeSeconds), Group(busiest))
	}
	for _, c := range r.Candidates {
		if len(c.Unmet) > 0 {
			const most = 20
			more := ""
			if n := len(c.Unmet) - most; n > 0 {
				more = fmt.Sprintf(" and %s more", Group(int64(n)))
			}
			note(
				"No request met these rules of %s: %s%s. Nothing is known of what they would do.", c.Name,
				strings.Join(c.Unmet[:min(most, len(c.Unmet))], ", "), more,
			)
		}
		if len(c.Lacking) > 0 {
			note("These rules of %s look at what none of the log's %s requests has, so that none met them by it: %s.",
				c.Name, Group(r.Events), strings.Join(c.Lacking, ", "))
		}
		for _, rule := range c.Rules {
			if rule.Sample > 1 {
				note(
					"%s of %s: only 1 client of %d is simulated at the end; the rule is left out for %s requests of others.",
					rule.Rule, c.Name, rule.Sample, Group(rule.Unsampled),
				)
			}
			if rule.Refused != "" {
				note("%s of %s: the service answers requests that hold with 400: %s", rule.Rule, c.Name, rule.Refused)
			}
			for _, l := range rule.Limits {
				if l.AtLeast {
					note(
						"%s of %s: more than %s admissions in %s; peaks are at least what they say.", rule.Rule, c.Name,
						Group(maxAdmissions), duration.Format(micros(l.Span)),
					)
				}
			}
		}
	}
	return notes
}

// AppendJSON appends the verdict as a line of JSON. Times are in microseconds since the Unix epoch, waits in
// microseconds; a retryAfter of -1 is never.
func (v *Verdict) AppendJSON(to []byte) []byte {
	retry := v.Decision.RetryAfter.Microseconds()
	if v.Decision.RetryAfter == stint.Never {
		retry = -1
	}
	line := struct {
		Line       int64    `json:"line"`
		Time       int64    `json:"time"`
		Candidate  string   `json:"candidate"`
		Allowed    bool     `json:"allowed"`
		Reason     string   `json:"reason,omitempty"`
		Rule       string   `json:"rule,omitempty"`
		Key        string   `json:"key,omitempty"`
		Permits    int64    `json:"permits,omitempty"`
		Limit      int64    `json:"limit"`
		Remaining  int64    `json:"remaining"`
		RetryAfter int64    `json:"retryAfter"`
		Delay      int64    `json:"delay"`
		Waited     int64    `json:"waited"`
		Shadowed   []string `json:"shadowed,omitempty"`
		Exceeded   []string `json:"exceeded,omitempty"`
	}{
		v.Line, int64(v.Time), v.Candidate, v.Allowed, v.Reason, v.Rule, v.Key, v.Permits, v.Decision.Limit,
		v.Decision.Remaining,
		retry, v.Decision.Delay.Microseconds(), v.Waited.Microseconds(), v.Shadowed, v.Exceeded,
	}
	text, err := json.Marshal(line)
	if err != nil {
		return to // texts and numbers can be encoded
	}
	return append(append(to, text...), '\n')
}

// Group writes a number with its digits in groups of three.
func Group(n int64) string {
	text := itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(part, all int64) string {
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(all))
}

// round writes microseconds with three digits or so. The units are tried from the largest, and one
// is used from ten of it on: from 10h on to 6 minutes, from 10s on to 100ms.
func round(us int64) string {
	d := micros(us)
	for _, unit := range []time.Duration{time.Hour, time.Minute, time.Second, time.Millisecond} {
		if d >= 10*unit {
			return d.Round(unit / 10).String()
		}
	}
	return d.String()
}
