package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A suspect is a row of this tree that may cost more than most times what another costs: the same row
// of a commit, or a floor of this tree's.
type suspect struct {
	row  string
	tree *tree  // whose
	of   string // row it is held against
	most float64

	score float64
}

// A trial measures both of a suspect again and again, each time in an order drawn by lot, and counts
// the pairs in which the suspect costs more than most times the other. This is a sequential
// probability ratio test (Wald, 1945): of "more in half of the pairs" against "more in nine of ten", which is so of a
// row that costs a tenth more than in the baseline.
// Each pair adds the logarithm of how much likelier the second makes what was seen. A suspect is
// guilty at guilty, acquitted at acquitted, and acquitted if neither is reached in mostPairs.
//
// A pair is two programs, linked anew, each in a layout of its own. When only few suspects are left, the pair measures
// each often, in less time than linking takes, and the least counts: noise would hide a loss little above the bound.
//
// A row whose cost is just at the bound is above it in half of the pairs or less, whatever else the
// machine does: noise strikes whichever program runs at that moment, which is drawn by lot. Such a row
// is found guilty with a probability of at most exp(-guilty), by Ville's inequality: less than 1e-11,
// and 1e-9 for all rows of the table together.
const (
	guilty    = 25.4 // -ln(1e-11) = 25.33
	acquitted = -3   // wrongly with a probability of at most exp(-3), likewise
	mostPairs = 100  // a quarter of an hour of a row; most suspects take three
	oftener   = 0.9  // the share of pairs of the second hypothesis

	few   = 2 // suspects
	often = 5 // measurements of both
)

// pair notes whether the suspect cost more than it may in one pair.
func (s *suspect) pair(more bool) {
	if more {
		s.score += math.Log(oftener / 0.5)
	} else {
		s.score += math.Log((1 - oftener) / 0.5)
	}
}

func (s *suspect) decided() bool { return s.score >= guilty || s.score <= acquitted }

// settle tries the suspects, all in the same pairs.
func settle(ctx context.Context, trees []*tree, suspects []*suspect, duration time.Duration, out io.Writer) error {
	if len(suspects) == 0 {
		return nil
	}
	fmt.Fprintf(out, "tried: %s\n", strings.Join(names(suspects), ", "))
	open := slices.Clone(suspects)
	for pairs := 0; pairs < mostPairs && len(open) > 0; pairs++ {
		times := 1
		if len(open) <= few {
			times = often
		}
		if err := runInTurn(ctx, trees[0], open, times, duration); err != nil {
			return err
		}
		for _, s := range open {
			s.pair(trees[0].least(s.row, times) > s.most*s.tree.least(s.of, times))
		}
		open = slices.DeleteFunc(open, (*suspect).decided)
	}
	if len(open) > 0 {
		fmt.Fprintf(out, "undecided, so passed: %s\n", strings.Join(names(open), ", "))
	}
	return nil
}

// runInTurn links the programs and measures the suspects and what they are held against so many times, each time in an
// order drawn by lot.
func runInTurn(ctx context.Context, here *tree, suspects []*suspect, times int, duration time.Duration) error {
	type run struct {
		tree  *tree
		bound bool // of rows of the same tree: apart, so that the lot decides which comes first
	}
	rows := map[run][]string{}
	for _, s := range suspects {
		rows[run{tree: here}] = append(rows[run{tree: here}], s.row)
		against := run{s.tree, s.tree == here}
		rows[against] = append(rows[against], s.of)
	}
	runs, trees := make([]run, 0, len(rows)), []*tree{}
	for r := range rows {
		if runs = append(runs, r); !slices.Contains(trees, r.tree) {
			trees = append(trees, r.tree)
		}
	}
	if err := renew(ctx, trees); err != nil {
		return err
	}
	for range times {
		rand.Shuffle(len(runs), func(i, j int) { runs[i], runs[j] = runs[j], runs[i] })
		for _, r := range runs {
			if err := r.tree.run(ctx, anyOf(rows[r]), duration); err != nil {
				return fmt.Errorf("%s: %w", r.tree.name, err)
			}
		}
	}
	return nil
}

// failures are the rows of the suspects that were found guilty.
func failures(suspects []*suspect) []string {
	return names(slices.DeleteFunc(slices.Clone(suspects), func(s *suspect) bool { return s.score < guilty }))
}

// names are the rows of suspects, each once.
func names(suspects []*suspect) (rows []string) {
	for _, s := range suspects {
		if !slices.Contains(rows, s.row) {
			rows = append(rows, s.row)
		}
	}
	return rows
}
