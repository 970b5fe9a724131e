// Package board is what `stint top` shows of a service: a model of its events and of what is typed, without a terminal.
package board

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/activity"
)

// boardSeconds is how many seconds a board remembers of each rule, and draws as a sparkline. A
// second is a column of the sparkline; 30 fit beside the figures in 80 columns.
const boardSeconds = 30

// An Action is what a key asks the watcher to do; the board itself does the rest.
type Action int

const (
	// None says that the board has done what there was to do.
	None Action = iota
	// Quit ends the watch.
	Quit
	// Explain says what the selected rule is, in Explanation.
	Explain
)

// A boardRule is a rule with its last seconds, the newest last. A second's place is boardSeconds -
// (until - second); both lists move to the left as time goes on.
type boardRule struct {
	// id is the rule's, "" for the totals.
	id               string
	until            int64 // the second that ends the last
	admitted, denied [boardSeconds]uint32
	shadow           bool // whether denied are those that it would deny
}

// rates are averages over the last 5 seconds. One second alone would make the order of the table
// jump.
func (r *boardRule) rates() (admitted, denied float64) {
	const seconds = 5
	for i := boardSeconds - seconds; i < boardSeconds; i++ {
		admitted, denied = admitted+float64(r.admitted[i])/seconds, denied+float64(r.denied[i])/seconds
	}
	return admitted, denied
}

// advance makes room up to a second.
func (r *boardRule) advance(second int64) {
	n := min(max(second-r.until, 0), boardSeconds)
	for _, counts := range []*[boardSeconds]uint32{&r.admitted, &r.denied} {
		copy(counts[:], counts[n:])
		clear(counts[boardSeconds-n:])
	}
	r.until = max(r.until, second)
}

// add adds a series.
//
// The board's last column is the second before until, so a second s stands at boardSeconds - until
// + s; what is older is left out.
func (r *boardRule) add(s *activity.Series) {
	r.advance(s.From + int64(len(s.Admitted)))
	for i := range s.Admitted {
		if at := int64(boardSeconds) - r.until + s.From + int64(i); at >= 0 {
			r.admitted[at], r.denied[at] = s.Admitted[i], s.Denied[i]+s.ShadowDenied[i]
			r.shadow = r.shadow || s.ShadowDenied[i] > 0
		}
	}
}

// A Board is what `stint top` shows. The zero value has nothing to show. It is a model without a
// terminal: Apply and Key change it, Draw and Line show it, and tests need nothing else.
type Board struct {
	// process, at, totals and store are of the last tick.
	process  string
	at       stint.Instant
	totals   boardRule
	degraded uint32 // in the last second
	micros   uint32
	store    activity.Store
	// rules are those that decided something in the last boardSeconds.
	rules   map[string]*boardRule
	denials []activity.Denial // of this process, the newest first
	change  activity.Change   // the last
	// shared is of all processes that share the store, if they do.
	shared activity.Shared
	lost   error // why there is no connection

	// order, filter and cursor are the user's, and outlive a lost connection.
	order     int
	filter    string
	filtering bool
	cursor    int          // the selected rule among visible
	visible   []*boardRule // in the order in which they are drawn
	// Explanation is shown at the head; "" is none.
	Explanation string
}

var boardOrders = [...]string{"denied", "admitted", "name"}

// Apply takes an event over: its kind and document, or of a lost connection why. A snapshot replaces all that is of
// the service; a tick adds a second. Events may come in any number after a lost connection: the snapshot that begins
// each connection makes up for all that was missed. An error of reading one is the stream's end.
func (b *Board) Apply(kind string, data []byte, lost error) (err error) {
	b.lost = lost
	switch kind {
	case "snapshot":
		var s activity.Snapshot
		if err = json.Unmarshal(data, &s); err == nil {
			*b = Board{
				process: s.Stats.Process, denials: s.Denials, shared: s.Shared, rules: map[string]*boardRule{},
				order: b.order, filter: b.filter,
			}
			b.tick(&activity.Tick{
				At: s.Stats.At, Totals: s.Stats.Totals, Rules: s.Stats.Rules, Store: s.Stats.Store, Changes: s.Stats.Changes,
			})
		}
	case "second":
		var tick activity.Tick
		if err = json.Unmarshal(data, &tick); err == nil {
			b.tick(&tick)
		}
	case "shared":
		err = json.Unmarshal(data, &b.shared)
	}
	if err != nil {
		return fmt.Errorf("reading an event: %w", err)
	}
	return nil
}

// tick adds a second's figures. A denial of a rule and a client replaces what was told of them
// before. Denials are listed by when they were last, rules in shadow and others up to a number each,
// so that a flood of the one does not push out the other.
func (b *Board) tick(tick *activity.Tick) {
	b.at, b.store = tick.At, tick.Store
	clear(tick.Totals.ShadowDenied) // these are admitted
	b.totals.add(&tick.Totals.Series)
	if n := len(tick.Totals.Degraded); n > 0 {
		b.degraded, b.micros = tick.Totals.Degraded[n-1], tick.Totals.StoreMicros[n-1]
	}
	for i := range tick.Rules {
		r := &tick.Rules[i]
		if b.rules[r.Rule] == nil {
			b.rules[r.Rule] = &boardRule{id: r.Rule}
		}
		b.rules[r.Rule].add(&r.Seconds)
	}
	for id, r := range b.rules { // one that decided nothing for so long may be gone
		if r.advance(b.totals.until); r.admitted == [boardSeconds]uint32{} && r.denied == [boardSeconds]uint32{} {
			delete(b.rules, id)
		}
	}
	const most = 100 // of rules in shadow, and of the others
	type pair struct {
		rule, client string
		shadow       bool
	}
	b.denials = append(tick.Denials, b.denials...)
	slices.SortStableFunc(b.denials, func(x, y activity.Denial) int { return cmp.Compare(y.Seq, x.Seq) })
	told, kept := map[pair]bool{}, map[bool]int{}
	b.denials = slices.DeleteFunc(b.denials, func(d activity.Denial) bool {
		p := pair{d.Rule, d.Client, d.Shadow}
		if told[p] {
			return true
		}
		told[p] = true
		kept[d.Shadow]++
		return kept[d.Shadow] > most
	})
	if len(tick.Changes) > 0 {
		b.change = tick.Changes[0]
	}
}

// Key carries out a key on the board, and returns what is left to do. Keys that are of no use are
// ignored. While the filter is written every key is a part of it.
func (b *Board) Key(key byte) Action {
	const interrupt, backspace, enter, escape, up, down = 3, 127, '\r', 27, 'A' | 0x80, 'B' | 0x80
	switch {
	case key == interrupt:
		return Quit
	case b.filtering && (key == enter || key == escape):
		b.filtering = false
	case b.filtering && key == backspace:
		b.filter = b.filter[:max(0, len(b.filter)-1)]
	case b.filtering:
		if key >= ' ' && key < backspace {
			b.filter += string(rune(key))
		}
	case key == 'q':
		return Quit
	case key == 's':
		b.order = (b.order + 1) % len(boardOrders)
	case key == '/':
		b.filtering, b.filter = true, ""
	case key == up:
		b.cursor = max(0, b.cursor-1)
	case key == down:
		b.cursor++
	case key == 'e' && b.Selected() != "":
		return Explain
	case key == escape:
		b.Explanation = ""
	}
	return None
}

// Selected is the ID of the selected rule, "" for none.
func (b *Board) Selected() string {
	if b.cursor >= len(b.visible) {
		return ""
	}
	return b.visible[b.cursor].id
}

// Line is the state in one line. It is for output that is no terminal: one line of name=value for
// each second.
func (b *Board) Line() string {
	admitted, denied := b.totals.admitted[boardSeconds-1], b.totals.denied[boardSeconds-1]
	text := fmt.Sprintf("%s process=%s admitted=%d denied=%d degraded=%d store=%s store_ms=%.1f processes=%d",
		b.at.Time().Format(time.RFC3339), b.process, admitted, denied, b.degraded, b.store.State, float64(b.micros)/1000,
		len(b.shared.Processes.Processes))
	if top := b.shared.Top.Denied; len(top) > 0 {
		text += fmt.Sprintf(
			" top_denied=%s top_denied_rule=%s top_denied_count=%d", strconv.Quote(top[0].Client), top[0].Rule, top[0].Count,
		)
	}
	return text
}

// Draw draws the board in so many columns and lines, without a line feed at the end. Texts of
// others, such as names of clients, are clipped, so that no line wraps and none moves the cursor.
func (b *Board) Draw(width, height int) string {
	if b.rules == nil {
		return "connecting …"
	}
	lines := append(b.head(), b.table(max(3, height-26))...)
	lines = append(lines, b.topClients(5)...)
	lines = append(
		lines, "", fmt.Sprintf(
			"%-15s %9s %-24s %-30s %-12s %s", "LAST DENIALS", "COUNT", "RULE", "CLIENT", "REASON", "(this process)",
		),
	)
	shadowRoom := 4 // so that those of rules in shadow leave room for the others
	for _, d := range b.denials {
		if b.matches(d.Rule) || b.matches(d.Client) {
			rule := clipText(d.Rule, 24)
			if d.Shadow {
				rule = inShadow(d.Rule, 24)
				if shadowRoom--; shadowRoom < 0 {
					continue
				}
			}
			lines = append(lines, fmt.Sprintf("%-15s %9d %-24s %-30s %-12s %s",
				d.At.Time().Local().Format("15:04:05.000"), d.Count, rule, clipText(d.Client, 30), d.Reason,
				clipText(d.Method+" "+d.Path, 40)))
		}
	}
	foot := fmt.Sprintf("q quit  s sort: %s  / filter: %s  ↑ ↓ select  e explain", boardOrders[b.order], b.filter)
	if b.filtering {
		foot = "filter: " + b.filter + "_"
	}
	lines = append(lines[:min(len(lines), height-1)], foot)
	for i := range lines {
		lines[i] = clipText(lines[i], width)
	}
	return strings.Join(lines, "\n")
}

// head is the service's state.
func (b *Board) head() []string {
	admitted, denied := b.totals.rates()
	all := &b.shared.Processes
	var allAdmitted, allDenied float64
	for _, p := range all.Processes {
		allAdmitted, allDenied = allAdmitted+p.Rates.Admitted, allDenied+p.Rates.Denied
	}
	store := "store " + b.store.State
	if b.store.Since > 0 {
		store += " since " + b.store.Since.Time().Local().Format("15:04:05")
	}
	lines := []string{
		fmt.Sprintf(
			"stint top   %s   %s, %.1f ms   %s", b.at.Time().Local().Format("15:04:05"), store, float64(b.micros)/1000,
			sparkline(b.totals.admitted[:], b.totals.denied[:]),
		),
		fmt.Sprintf(
			"this process (%s): %.0f/s admitted, %.0f/s denied (%s), %d/s degraded", b.process, admitted, denied,
			share(admitted, denied), b.degraded,
		),
	}
	if all.Scope == activity.ScopeAll {
		lines = append(lines, fmt.Sprintf("all %d processes: %.0f/s admitted, %.0f/s denied (%s)", len(all.Processes),
			allAdmitted, allDenied, share(allAdmitted, allDenied)))
	}
	if b.change.Seq > 0 {
		lines = append(lines, fmt.Sprintf("last change %s: %s %s %s", b.change.At.Time().Local().Format("15:04:05"),
			b.change.Kind, b.change.State, b.change.Detail))
	}
	if b.lost != nil {
		lines = append(lines, "NO CONNECTION, trying again: "+b.lost.Error())
	}
	if b.Explanation != "" {
		lines = append(lines, b.Explanation)
	}
	return append(lines, "")
}

func (b *Board) matches(text string) bool { return strings.Contains(text, b.filter) }

// table has at most so many rules. The selected rule is always among those shown. Equal rates are
// ordered by ID, so that rows keep their places.
func (b *Board) table(most int) []string {
	b.visible = b.visible[:0]
	for _, r := range b.rules {
		if b.matches(r.id) {
			b.visible = append(b.visible, r)
		}
	}
	slices.SortFunc(b.visible, func(x, y *boardRule) int {
		xAdmitted, xDenied := x.rates()
		yAdmitted, yDenied := y.rates()
		by := 0
		switch boardOrders[b.order] {
		case "denied":
			by = cmp.Compare(yDenied, xDenied)
		case "admitted":
			by = cmp.Compare(yAdmitted, xAdmitted)
		}
		return cmp.Or(by, cmp.Compare(x.id, y.id))
	})
	b.cursor = max(0, min(b.cursor, len(b.visible)-1))
	first := max(0, b.cursor-most+1)
	lines := []string{
		fmt.Sprintf("  %-28s %10s %10s %8s  %s", "RULE", "ADMITTED/s", "DENIED/s", "DENIED", "LAST 30 s (this process)"),
	}
	for i := first; i < min(len(b.visible), first+most); i++ {
		r, mark := b.visible[i], " "
		if i == b.cursor {
			mark = ">"
		}
		admitted, denied := r.rates()
		name := clipText(r.id, 28)
		if r.shadow {
			name = inShadow(r.id, 28)
		}
		lines = append(lines, fmt.Sprintf("%s %-28s %10.1f %10.1f %8s  %s", mark, name, admitted, denied,
			share(admitted, denied), sparkline(r.admitted[:], r.denied[:])))
	}
	return lines
}

// topClients are the top clients beside the top denied ones. They come from all processes that
// share the store, where there are several, once every few seconds.
func (b *Board) topClients(most int) []string {
	scope := "this process"
	if b.shared.Top.Scope == activity.ScopeAll {
		scope = fmt.Sprintf("all %d processes", b.shared.Top.Processes)
	}
	lines := []string{"", fmt.Sprintf("%-48s  %s", "TOP CLIENTS of 5 minutes ("+scope+")", "TOP DENIED")}
	column := func(items []activity.TopItem, most int, rule func(string, int) string) (texts []string) {
		for _, item := range items {
			if len(texts) < most && (b.matches(item.Rule) || b.matches(item.Client)) {
				texts = append(texts, fmt.Sprintf("%8d %-16s %-22s", item.Count, rule(item.Rule, 16), clipText(item.Client, 22)))
			}
		}
		return texts
	}
	top := &b.shared.Top
	left, right := column(top.Clients, most, clipText), column(top.Denied, most, clipText)
	right = append(right, column(top.ShadowDenied, 2, inShadow)...)
	for i := range max(len(left), len(right)) {
		line := [2]string{}
		if i < len(left) {
			line[0] = left[i]
		}
		if i < len(right) {
			line[1] = right[i]
		}
		lines = append(lines, fmt.Sprintf("%-48s  %s", line[0], line[1]))
	}
	return lines
}

// inShadow is the name of a rule in shadow, in so many columns.
func inShadow(rule string, columns int) string {
	const mark = " (shadow)"
	return clipText(rule, columns-len(mark)) + mark
}

// share is the part of requests that are denied.
func share(admitted, denied float64) string {
	if denied == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.1f %%", 100*denied/(admitted+denied))
}

// sparkline draws offered requests per second, the highest as a full block. Each rule has its own
// scale: it shows how its load goes, not how it compares.
func sparkline(admitted, denied []uint32) string {
	const blocks = "▁▂▃▄▅▆▇█"
	levels := []rune(blocks)
	highest := uint32(1)
	for i := range admitted {
		highest = max(highest, admitted[i]+denied[i])
	}
	var text strings.Builder
	for i := range admitted {
		n := admitted[i] + denied[i]
		if n == 0 {
			text.WriteByte(' ')
			continue
		}
		text.WriteRune(levels[int(uint64(n)*uint64(len(levels)-1)/uint64(highest))])
	}
	return text.String()
}

// clipText shortens a text of somebody else's to so many characters, without any that would do
// something to a terminal.
func clipText(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:max(0, most-1)]) + "…"
}
