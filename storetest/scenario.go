package storetest

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/internal/duration"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

// scenarioText is the scenarios: what random sequences seldom reach. Each answer is compared with the model, field by
// field, and with what the scenario says of it.
//
//	Name: what it shows.
//	  each $n, $limit: 1, concurrency 2                             on an empty store for each line, with its texts
//	    | 2, token_bucket 3 1/s                                     (short ones stand in one line)
//	  policy p = $limit name=a + fixed_window 5 1h                  limits; options: name, cost, debt, zone, first
//	  policy q p = fixed_window 6 1h                                q is another version of the policy p
//	  reserve h 1m charge: 2 k p keep 1 and 3 k q                   a hold and its claims: permits, key, policy
//	  go 1s; at 1m; go -1us                                         the clock, which begins at 0s, noon
//	  commit h: 2 k p -> applied=-1 !late                           by what its last reserve was told
//	  commit h bare: 2 k p                                          by its id alone; or with ttl=, expires=, via=
//	  take 1 k p either 2 k a with 2 k b else 2 k b else nothing    ways
//	  take 1 k p & peek 1 k p -> left=3                             one batch
//	  9 x reserve h$i: 1 k p; go 1s                                 with 1 to 9 for $i
//	  list 0 k p -> live=h,g                                        the ids, the next to expire first
//	  reset-all p                                                   of a policy
//	  admitted 5                                                    takes had 5 permits in all, or fewer
//
//go:embed scenarios.txt
var scenarioText string

// A scenario is one of the text.
type scenario struct{ name, steps string }

// scenarios are all that a store with these options must pass.
func scenarios(opts Options) (list []scenario) {
	for text := range strings.SplitSeq(scenarioText, "\n\n") {
		title, steps, _ := strings.Cut(text, "\n  ")
		name, _, found := strings.Cut(title, ":")
		steps = "  " + strings.ReplaceAll(steps, "\n    | ", " | ")
		holds := strings.Contains(steps, "reserve") || strings.Contains(steps, "commit")
		if found && (!holds || !opts.NoHolds) && (!strings.Contains(steps, "either") || !opts.NoWays) {
			list = append(list, scenario{name, steps})
		}
	}
	return list
}

// expand returns the steps with each of the texts for its names.
func expand(steps string) (list []string) {
	before, line, found := strings.Cut(steps, "  each ")
	if !found {
		return []string{steps}
	}
	line, rest, _ := strings.Cut(line, "\n")
	names, texts, _ := strings.Cut(line, ": ")
	for alternative := range strings.SplitSeq(texts, " | ") {
		var pairs []string
		values := strings.Split(alternative, ", ")
		for i, name := range strings.Split(names, ", ") {
			pairs = append(pairs, name, values[i])
		}
		list = append(list, expand(before+strings.NewReplacer(pairs...).Replace(rest))...)
	}
	return list
}

// test carries out the scenario in every form, each with the outcomes of all limits or without.
func (s scenario) test(t *testing.T, newStore newStoreFunc) {
	forms := expand(s.steps)
	for i := range max(2, len(forms)) {
		clock := NewClock(noon)
		p := &play{
			TB: t, comparison: comparison{newStore(t, clock), clock, oracle.New(0)}, each: i%2 == 0,
			policies: map[string]*stint.Policy{}, told: map[string]stint.HoldOp{},
		}
		for line := range strings.Lines(forms[i%len(forms)]) {
			if p.line = strings.TrimSpace(line); !p.perform(p.line) {
				break
			}
		}
		if t.Failed() {
			t.Fatalf("form %d:\n%s", i, forms[i%len(forms)])
		}
	}
}

// A play is a scenario being carried out.
type play struct {
	testing.TB
	comparison
	each     bool
	line     string // for messages
	policies map[string]*stint.Policy
	told     map[string]stint.HoldOp // what the last reserve of an id was told
	batches  int
	admitted int64
}

// perform carries out a line. It reports whether to go on: a store need not reset policies.
func (p *play) perform(line string) bool {
	p.Helper()
	if times, again, found := strings.Cut(line, " x "); found {
		for i := range p.number(times) {
			p.perform(strings.ReplaceAll(again, "$i", strconv.FormatInt(i+1, 10)))
		}
		return true
	}
	for text := range strings.SplitSeq(line, "; ") {
		switch verb, rest, _ := strings.Cut(text, " "); verb {
		case "policy":
			names, limits, _ := strings.Cut(rest, " = ")
			words := strings.Fields(names)
			p.policies[words[0]] = policyOf(p, words[len(words)-1], p.limits(limits)...)
		case "go":
			p.clock.Advance(p.duration(rest))
		case "at":
			p.clock.Set(noon.Add(p.duration(rest)))
		case "reset-all":
			if !resetsAll(p.store) {
				return false
			}
			p.replay([]Step{{At: p.clock.Instant(), reset: &stint.Scope{Policy: p.policies[rest].Name()}}}, nil)
		case "admitted":
			if most := p.number(rest); p.admitted > most {
				p.Errorf("%d admitted, at most %d are allowed", p.admitted, most)
			}
		default:
			p.batch(strings.Split(text, " & "))
		}
	}
	return true
}

// batch has operations decided together, if there are several.
func (p *play) batch(texts []string) {
	p.Helper()
	var steps []Step
	var wants []string
	number := 0
	if len(texts) > 1 {
		p.batches++
		number = p.batches
	}
	for _, text := range texts {
		asks, want, _ := strings.Cut(text, " -> ")
		steps = append(steps, Step{At: p.clock.Instant(), Op: p.operation(asks), Batch: number, Each: p.each})
		wants = append(wants, want)
	}
	p.replay(steps, func(step Step, got oracle.Answer) {
		facts := p.facts(step.Op, got)
		for _, want := range strings.Fields(wants[0]) {
			unwanted, not := strings.CutPrefix(want, "!")
			if slices.Contains(facts, unwanted) == not && (p.each || !isOfEach(want)) {
				p.Errorf("%s: not %s, but %s", p.line, want, facts)
			}
		}
		wants = wants[1:]
	})
}

func (p *play) replay(steps []Step, learn func(Step, oracle.Answer)) {
	p.Helper()
	if err := p.comparison.replay(p.Context(), steps, learn); err != nil {
		p.Fatalf("%s: %v", p.line, err)
	}
}

// isOfEach tells whether a fact stands in the outcomes of the limits alone.
func isOfEach(fact string) bool {
	return strings.HasPrefix(fact, "grows=") || strings.HasPrefix(fact, "available=")
}

// facts are what an answer says, in words of scenarios. It notes what the hold was told.
func (p *play) facts(op stint.Op, got oracle.Answer) []string {
	for err, word := range map[error]string{
		stint.ErrResolved: "resolved", stint.ErrOtherClaims: "other-claims", stint.ErrUnknownReservation: "unknown",
	} {
		if errors.Is(got.Err, err) {
			return []string{word}
		}
	}
	if op.Verb == stint.VerbList {
		var ids []string
		for _, h := range got.Live {
			ids = append(ids, h.ID)
		}
		return []string{"live=" + strings.Join(ids, ",")}
	}
	d, h, words := got.Decision, got.Hold, []string{"denied"}
	if d.Allowed {
		words = []string{"allowed"}
		if op.Verb == stint.VerbReserve {
			p.told[h.ID] = stint.HoldOp{Hold: h.Hold}
		}
		if op.Verb == stint.VerbTake {
			p.admitted += op.Permits
		}
	}
	words = append(words,
		fmt.Sprint("left=", d.Remaining), fmt.Sprint("via=", d.Via), fmt.Sprint("applied=", d.Applied),
		"retry="+describeWait(d.RetryAfter), "delay="+describeWait(d.Delay), "new="+describeWait(d.ResetAfter),
		"expires="+describeWait(h.ExpiresAt.Time().Sub(noon.Time())),
	)
	if len(got.Each) > 0 {
		available, _ := decide.Available(&op, got.Each)
		words = append(words, fmt.Sprint("available=", available), "grows="+describeWait(got.Each[0].GrowsAfter))
	}
	for word, is := range map[string]bool{
		"replayed": h.Replayed, "lost": h.Lost, "late": h.Late, "reset": h.Reset, "full": h.Full,
	} {
		if is {
			words = append(words, word)
		}
	}
	return words
}

func describeWait(d time.Duration) string {
	if d == stint.Never {
		return "never"
	}
	return duration.Format(d)
}

// operation reads a verb, a hold and claims.
func (p *play) operation(text string) (op stint.Op) {
	p.Helper()
	before, claims, held := strings.Cut(text, ": ")
	words := strings.Fields(before)
	for op.Verb.String() != words[0] {
		if op.Verb++; op.Verb > stint.VerbList {
			p.Fatalf("%s: unknown verb", text)
		}
	}
	extra := stint.Extra{}
	if held {
		extra.Hold = p.hold(words[1], words[2:])
		words = strings.Fields(claims)
	} else {
		words = words[1:]
	}
	for len(words) > 0 {
		last := len(extra.Groups) - 1
		switch words[0] {
		case "either":
			extra.Groups = append(extra.Groups, make([]stint.Way, 1))
		case "else":
			extra.Groups[last] = append(extra.Groups[last], nil)
		case "and", "with", "nothing":
		default:
			c := stint.Claim{Key: strings.Trim(words[1], `"`), Policy: p.policies[words[2]], Permits: p.number(words[0])}
			if words = words[2:]; len(words) > 2 && words[1] == "keep" {
				c.Keep = p.number(words[2])
				words = words[2:]
			}
			switch {
			case last >= 0:
				way := &extra.Groups[last][len(extra.Groups[last])-1]
				*way = append(*way, c)
			case op.Policy == nil:
				op.Claim = c
			default:
				op.And = append(op.And, c)
			}
		}
		words = words[1:]
	}
	if op.Verb == stint.VerbList {
		extra.Live = new([]stint.Hold)
	}
	if held || extra.Groups != nil || extra.Live != nil {
		op.Extra = &extra
	}
	return op
}

// hold is what the caller says of a hold.
func (p *play) hold(id string, words []string) *stint.HoldOp {
	p.Helper()
	h := p.told[id]
	h.ID = id
	for _, word := range words {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "bare":
			h = stint.HoldOp{Hold: stint.Hold{ID: id}}
		case "charge", "release":
			h.OnExpiry = stint.Expiry(word == "charge")
		case "via":
			h.Via = uint8(p.number(value)) // #nosec G115 -- small
		case "expires":
			h.ExpiresAt = noon.Add(p.duration(value))
		case "ttl":
			h.TTL = p.duration(value)
		default:
			h.TTL = p.duration(word)
		}
	}
	return &h
}

// limits reads limits: an algorithm, the capacity, a rate or a window, and options.
func (p *play) limits(texts string) (list []stint.Limit) {
	p.Helper()
	for text := range strings.SplitSeq(texts, " + ") {
		words, options := strings.Fields(text), 3
		l, err := stint.Limit{Algorithm: stint.AlgorithmConcurrency, Capacity: p.number(words[1])}, error(nil)
		if words[0] != "concurrency" {
			l.Algorithm, err = notation.ParseAlgorithm(words[0])
		}
		switch {
		case err != nil:
		case l.IsBucket():
			l.Rate, err = notation.ParseRate(words[2])
		case l.Algorithm == stint.AlgorithmConcurrency:
			options = 2
		default:
			if l.Calendar, err = notation.ParseCalendar(words[2]); err != nil {
				l.Window, err = p.duration(words[2]), nil
			}
		}
		if err != nil {
			p.Fatalf("%s: %v", text, err)
		}
		for _, option := range words[options:] {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "name":
				l.Name = value
			case "cost":
				l.Cost = p.number(value)
			case "zone":
				l.TimeZone = value
			case "first":
				l.FirstRequest = true
			default:
				l.MaxDebt = p.number(value)
			}
		}
		list = append(list, l)
	}
	return list
}

func (p *play) number(text string) int64 {
	p.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.Fatalf("%s: %v", p.line, err)
	}
	return n
}

func (p *play) duration(text string) time.Duration {
	p.Helper()
	d, err := notation.ParseDuration(text)
	if err != nil {
		p.Fatalf("%s: %v", p.line, err)
	}
	return d
}
