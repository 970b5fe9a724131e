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

// suggest finds limits for every rule that has some, of every candidate.
func (s *simulation) suggest(ctx context.Context) error {
	goal := simulate.Goal{Rate: s.suggestRate}
	number, isPercent := strings.CutSuffix(s.share, "%")
	share, err := strconv.ParseFloat(number, 64)
	if isPercent {
		share /= 100
	}
	if goal.Share = share; err != nil || share <= 0 || share > 1 {
		return misused("--suggest is %q; allowed: a share of the clients such as 99.9%% or 0.999", s.share)
	}
	if slices.Contains(s.logs, "-") {
		return misused("--suggest reads its input several times; give files")
	}
	source := func(add func(*simulate.Event) error) error {
		_, err := s.source(ctx)(add)
		return err
	}
	var found []*simulate.Suggestion
	for _, c := range s.config.Candidates {
		for _, rule := range c.Set.Rules() {
			if !goal.Suits(&rule) {
				continue
			}
			made, err := simulate.Suggest(source, rule, rules.Options{IPv6Prefix: s.reader.IPv6Prefix}, goal)
			var known exit
			switch {
			case errors.As(err, &known):
				return err
			case errors.Is(err, stint.ErrInvalid):
				return misused("%v", err)
			case err != nil:
				return failed(err)
			}
			made.Rule = c.Name + ": " + made.Rule
			found = append(found, made)
		}
	}
	if len(found) == 0 {
		return misused("no rule has limits to search; with --suggest-rate, a rule has one bucket as its only limit")
	}
	if s.json {
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
		&b, "  %d of %d clients (%s) are untouched in the first three quarters of the time\n", s.Untouched, s.Clients,
		percent(s.Untouched, s.Clients),
	)
	for i, below := range s.UntouchedBelow {
		if below >= 0 {
			fmt.Fprintf(&b, "  %d (%s) with one less in %s\n", below, percent(below, s.Clients), s.Texts[i])
		}
	}
	fmt.Fprintf(
		&b, "  %d of %d (%s) in the last quarter, which was not used to find it\n", s.RestUntouched, s.RestClients,
		percent(s.RestUntouched, s.RestClients),
	)
	if s.TooClose+s.BeyondRange > 0 {
		fmt.Fprintf(
			&b, "  not counted: %d clients that come closer than min_interval, %d that no valid limit admits\n", s.TooClose,
			s.BeyondRange,
		)
	}
	if s.Maximum {
		fmt.Fprintf(
			&b, "  there are too few clients for a share of %s: this is what the heaviest one needs\n",
			strconv.FormatFloat(s.Goal*100, 'f', -1, 64)+"%",
		)
	}
	return b.String()
}

func percent(part, all int64) string {
	if all == 0 {
		return "none"
	}
	return fmt.Sprintf("%.2f%%", 100*float64(part)/float64(all))
}
