package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/simulate"
)

// suggest finds limits for every rule that has some, of every candidate. Each rule is searched by
// itself, as if it were alone: what one rule denies does not relieve another.
func (s *simulation) suggest(ctx context.Context) error {
	goal := simulate.Goal{Rate: s.SuggestRate}
	number, isPercent := strings.CutSuffix(s.Suggest, "%")
	share, err := strconv.ParseFloat(number, 64)
	if isPercent {
		share /= 100
	}
	if goal.Share = share; err != nil || share <= 0 || share > 1 {
		return misused("--suggest is %q; allowed: a share of the clients such as 99.9%% or 0.999", s.Suggest)
	}
	if slices.Contains(s.logs, "-") {
		return misused("--suggest reads its input several times; give files")
	}
	var unread error // why the input can't be read
	source := func(add func(*simulate.Event) error) error {
		_, unread = s.source(ctx)(add)
		return unread
	}
	var found []*simulate.Suggestion
	for _, c := range s.config.Candidates {
		for _, rule := range c.Set.Rules() {
			if !goal.Suits(&rule) {
				continue
			}
			made, err := simulate.Suggest(source, rule, rules.Options{IPv6Prefix: s.reader.ClientIP.IPv6Prefix}, goal)
			if unread == nil && errors.Is(err, stint.ErrInvalid) {
				return misused("%v", err)
			}
			if err != nil {
				return err
			}
			made.Rule = c.Name + ": " + made.Rule
			found = append(found, made)
		}
	}
	if len(found) == 0 {
		return misused("no rule has limits to search; with --suggest-rate, a rule has one bucket as its only limit")
	}
	if s.JSON {
		return sayJSON(s.Out, found, "  ")
	}
	for _, made := range found {
		if err := say(s.Out, "%s", suggestionText(made)); err != nil {
			return err
		}
	}
	return nil
}

// suggestionText words a suggestion for people.
func suggestionText(s *simulate.Suggestion) string {
	var b strings.Builder
	if len(s.Values) == 0 {
		return s.Rule + ": no request has a client of this rule, so that nothing can be suggested\n"
	}
	fmt.Fprintf(&b, "%s: %s\n", s.Rule, strings.Join(s.Texts, " and "))
	fmt.Fprintf(
		&b, "  With that, %s of %s clients (%s) are never denied", simulate.Group(s.Untouched),
		simulate.Group(s.Clients), percent(s.Untouched, s.Clients),
	)
	for i, below := range s.UntouchedBelow {
		of := ""
		if len(s.Texts) > 1 {
			of = " in " + s.Texts[i]
		}
		if below >= 0 {
			fmt.Fprintf(&b, "; with one less%s it is %s (%s)", of, simulate.Group(below), percent(below, s.Clients))
		}
	}
	b.WriteString(".\n")
	if s.RestClients > 0 {
		fmt.Fprintf(
			&b, "  Found on the first three quarters of the time, and tested on the last: "+
				"there, %s of %s (%s) are never denied.\n",
			simulate.Group(s.RestUntouched), simulate.Group(s.RestClients), percent(s.RestUntouched, s.RestClients),
		)
	} else {
		b.WriteString("  Found on the first three quarters of the time, and not tested: nobody asked in the last.\n")
	}
	for i, curve := range s.Curves {
		b.WriteString(curveText(curve, s.Values[i], s.Clients))
	}
	if s.TooClose+s.BeyondRange > 0 {
		fmt.Fprintf(
			&b, "  Not counted: %s clients that come closer than min_interval, %s that no valid limit admits.\n",
			simulate.Group(s.TooClose),
			simulate.Group(s.BeyondRange),
		)
	}
	if s.Maximum {
		fmt.Fprintf(
			&b, "  There are too few clients for a share of %s: this is what the heaviest one needs.\n",
			strconv.FormatFloat(s.Goal*100, 'f', -1, 64)+"%",
		)
	}
	return b.String()
}

// curveText draws the share of clients that are never denied over the value of a limit, from 0 to
// twice the one that was found, in one line of blocks. A column stands for the last point of the
// curve at or below its value; before the first point nothing is known.
func curveText(curve []simulate.CurvePoint, found, clients int64) string {
	const columns, blocks = 40, " ▁▂▃▄▅▆▇█"
	heights := []rune(blocks)
	var plot strings.Builder
	for column := range columns {
		value, height := 2*found*int64(column+1)/columns, '·' // not known
		for _, p := range curve {
			if p.Value <= value {
				height = heights[(p.Untouched*int64(len(heights)-1)+clients/2)/max(clients, 1)]
			}
		}
		plot.WriteRune(height)
	}
	at := strings.Repeat(" ", columns/2-1)
	return fmt.Sprintf("  share never denied  %s\n  limit               %s^ %s\n", plot.String(), at,
		simulate.Group(found))
}

// percent is a share with two digits behind the point; of nothing there is none.
func percent(part, all int64) string {
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(all))
}
