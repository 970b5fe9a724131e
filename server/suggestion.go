package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/simulate"
)

// maxSuggestions bounds the rules that one simulation suggests limits for.
const maxSuggestions = 20

// A suggestionRequest says what is looked for.
type suggestionRequest struct {
	// Share is which part of the clients is to be left alone: above 0, up to 1.
	Share float64 `json:"share"`
	// Rule is the ID of the one rule whose limits are looked for. Default: "", the rules with the most requests.
	Rule string `json:"rule"`
	// Rate looks for the rate of a bucket, in the place of its capacity.
	Rate bool `json:"rate"`
}

// A suggestion is of a rule of a candidate.
type suggestion struct {
	Candidate string `json:"candidate"`
	*simulate.Suggestion
}

// suggest adds to an answer what suits the clients of rules, with notes about what could not be found.
func (s *simulator) suggest(request *suggestionRequest, candidates []simulate.Candidate, source simulate.Source, answer *simulationAnswer) error {
	if !(request.Share > 0 && request.Share <= 1) {
		return stint.Invalid("suggest.share", request.Share, "above 0, up to 1")
	}
	goal := simulate.Goal{Share: request.Share, Rate: request.Rate, MaxClients: maxSimulatedClients}
	type wanted struct{ candidate, rule int }
	var list []wanted
	asked := func(w wanted) int64 { return answer.Candidates[w.candidate].Rules[w.rule].Requests }
	for i, c := range candidates {
		for j := range answer.Candidates[i].Rules {
			rule, _ := c.Set.Rule(answer.Candidates[i].Rules[j].Rule)
			if goal.Suits(&rule) && (request.Rule == "" || request.Rule == rule.ID) {
				list = append(list, wanted{i, j})
			}
		}
	}
	if len(list) == 0 {
		answer.Notes = append(answer.Notes, "No rule with limits that can be looked for holds for the traffic.")
		return nil
	}
	slices.SortStableFunc(list, func(a, b wanted) int { return cmp.Compare(asked(b), asked(a)) })
	if len(list) > maxSuggestions {
		answer.Notes = append(answer.Notes, fmt.Sprintf("Limits were looked for of the %d rules with the most requests; %d others have some.", maxSuggestions, len(list)-maxSuggestions))
		list = list[:maxSuggestions]
	}
	for i, w := range list {
		c := candidates[w.candidate]
		rule, _ := c.Set.Rule(answer.Candidates[w.candidate].Rules[w.rule].Rule)
		made, err := simulate.Suggest(source, rule, s.options, goal)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			answer.Notes = append(answer.Notes, fmt.Sprintf("There was no time to look for the limits of %d rules.", len(list)-i))
			return nil
		case errors.Is(err, stint.ErrInvalid): // of this rule
			answer.Notes = append(answer.Notes, fmt.Sprintf("Of rule %s no limit was found: %v.", rule.ID, err))
		case err != nil:
			return err
		case made.Clients > 0:
			answer.Suggestions = append(answer.Suggestions, suggestion{c.Name, made})
		}
	}
	return nil
}
