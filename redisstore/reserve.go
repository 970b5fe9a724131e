package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/decide"
	"github.com/stint-go/stint/redisstore/internal/queue"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// share is the part of an operation in one partition of a cluster, where it is decided
// atomically. No script reaches further, so an operation over several partitions is
// carried out in shares.
//
// Peeks, resets and settlements of all shares go side by side. Of a take each share takes
// for itself, and when one denies, the others return what they took, each limit its own and nobody
// else's. A window is exact nevertheless: a take that is undone can only deny others for a
// moment. One share is asked when all others have admitted, so that nothing of it is undone (see
// last). A share goes through these states: not asked; asked, and failed, denied or taken; undone.
type share struct {
	op stint.Op // the claims, in the operation's order
	// indexes are those of its limits among the operation's.
	indexes []int
	// final are keys whose limits can't refund what was taken.
	final []string
	// bucket says that it has a token bucket.
	bucket bool
	asked  bool
	result stint.Result
}

// last reports how much a share should be asked last. A queue or a log can't give back what was
// taken. A token bucket can, but refills meanwhile: what is given back and taken again at once, as
// long as another share denies, piles up beside it.
func (h *share) last() int {
	switch {
	case h.final != nil:
		return 2
	case h.bucket:
		return 1
	default:
		return 0
	}
}

// decideSpanning carries out an operation over several partitions.
func (s *Store) decideSpanning(ctx context.Context, op *stint.Op) (d stint.Decision, err error) {
	takes := op.Verb == stint.VerbTake || op.Verb == stint.VerbTry
	shares := s.split(op)
	if takes || op.Hold() != nil || op.Groups() != nil && op.Verb != stint.VerbReset {
		if err := checkUndoable(op, shares); err != nil {
			return d, err
		}
	}
	if d, denied := s.rememberedDenial(op); denied {
		return d, nil
	}
	sent := s.denials.mark()
	if takes {
		err = s.takeAll(ctx, shares)
	} else {
		err = s.askShares(ctx, shares)
	}
	if err != nil {
		return d, err
	}
	// The outcomes go back into the operation's order; the decision's time is the latest.
	outcomes := make([]stint.Outcome, op.Limits())
	at := shares[0].result.Decision.At
	for _, h := range shares {
		at = max(at, h.result.Decision.At)
		for i, index := range h.indexes {
			outcomes[index] = h.op.Each[i]
		}
	}
	copy(op.Each, outcomes)
	d = decide.Of(op, outcomes, at)
	if !d.Allowed && s.denialCacheable(op) {
		s.keepDenial(sent, op, d, outcomes, true)
	}
	return d, nil
}

// split makes an operation's shares, one for each partition. They have copies of the keys, since
// they are undone when their caller may have left.
func (s *Store) split(op *stint.Op) []*share {
	var shares []*share
	of := map[int]*share{}
	index := 0
	for nth := range op.Len() {
		claimed, _ := op.NthClaim(nth)
		claim := *claimed
		partition := s.routes.Load().Partition(claim.Key)
		claim.Key = strings.Clone(claim.Key)
		h := of[partition]
		if h == nil {
			h = &share{op: stint.Op{Verb: op.Verb, Claim: claim, Timeout: op.Timeout}}
			of[partition] = h
			shares = append(shares, h)
		} else {
			h.op.And = append(h.op.And, claim)
		}
		for i := range claim.Policy.Len() {
			h.indexes = append(h.indexes, index)
			switch claim.Policy.Limit(i).Algorithm {
			case stint.AlgorithmLeakyBucket, stint.AlgorithmSlidingWindowLog:
				h.final = append(h.final, claim.Key)
			case stint.AlgorithmTokenBucket:
				h.bucket = true
			default: // what comes back of it comes back exactly
			}
			index++
		}
	}
	for _, h := range shares {
		h.op.Each = make([]stint.Outcome, len(h.indexes))
	}
	return shares
}

// checkUndoable reports an operation whose takes could not be undone.
func checkUndoable(op *stint.Op, shares []*share) error {
	const common = "on a cluster, keys with a hash tag in common, like {tag}:1 and {tag}:2, since "
	var all []string
	counts := false
	for nth := range op.Len() {
		claim, _ := op.NthClaim(nth)
		all = append(all, claim.Key)
		for i := range claim.Policy.Len() {
			counts = counts || claim.Policy.Limit(i).CountDenied || claim.Policy.Limit(i).Denials
		}
	}
	switch {
	case op.Hold() != nil:
		return stint.Invalid("claims", quoteKeys(all), common+"what a hold takes must be taken together")
	case op.Groups() != nil:
		return stint.Invalid("claims", quoteKeys(all), common+"ways are tried in one step")
	case counts:
		return stint.Invalid(
			"claims", quoteKeys(all), common+"a limit that counts denied requests, or denials, must be decided with all others",
		)
	}
	var final []string
	several := 0
	for _, h := range shares {
		if h.final != nil {
			final = append(final, h.final...)
			several++
		}
	}
	if several > 1 {
		return stint.Invalid(
			"claims", quoteKeys(final), common+"leaky buckets and sliding window logs can't give back what was taken",
		)
	}
	return nil
}

// quoteKeys lists distinct keys for a message.
func quoteKeys(keys []string) (list quoted) {
	for _, key := range keys {
		if q := strconv.Quote(key); !slices.Contains(list, q) {
			list = append(list, q)
		}
	}
	return list
}

// quoted are quoted keys, which a message shows as they are.
type quoted []string

func (q quoted) String() string { return strings.Join(q, ", ") }

// askShares carries out shares side by side, and returns the first failure.
func (s *Store) askShares(ctx context.Context, shares []*share) error {
	var group sync.WaitGroup
	for _, h := range shares {
		h.asked = true
		group.Go(func() { h.result.Decision, h.result.Err = s.batcherOf(&h.op).DecideOne(ctx, &h.op) })
	}
	group.Wait()
	return failure(shares)
}

// failure is the first error of shares that were asked.
func failure(shares []*share) error {
	for _, h := range shares {
		if h.result.Err != nil {
			return h.result.Err
		}
	}
	return nil
}

// taken reports whether the share was asked, and has taken.
func (h *share) taken() bool { return h.asked && h.result.Err == nil && h.result.Decision.Allowed }

// takeAll takes from all shares, or leaves them as they were: from one that must not be undone
// when all others have admitted.
func (s *Store) takeAll(ctx context.Context, shares []*share) error {
	slices.SortStableFunc(shares, func(a, b *share) int { return a.last() - b.last() })
	last := shares[len(shares)-1:]
	if last[0].last() == 0 {
		last = nil
	}
	for _, turn := range [][]*share{shares[:len(shares)-len(last)], last} {
		err := queue.EndOf(ctx)
		if err == nil {
			err = s.askShares(ctx, turn)
		}
		if err != nil {
			s.undo(slices.DeleteFunc(slices.Clone(shares), func(h *share) bool { return !h.taken() }))
			return err
		}
		if slices.ContainsFunc(turn, func(h *share) bool { return !h.taken() }) {
			// All shares tell what they do with nothing taken. A caller that leaves does not keep them from it.
			select {
			case <-s.undo(shares):
				return failure(shares)
			case <-ctx.Done():
				return queue.EndOf(ctx)
			}
		}
	}
	return nil
}

// undo returns what shares have taken, and peeks at those and the ones that were not asked, in the background
// for queue.MaxSendTime at most.
func (s *Store) undo(shares []*share) <-chan struct{} {
	done := make(chan struct{})
	s.undoing.Go(func() {
		defer close(done)
		var group sync.WaitGroup
		for _, h := range shares {
			if h.taken() || !h.asked {
				group.Go(func() { s.undoShare(h) })
			}
		}
		group.Wait()
	})
	return done
}

// undoShare returns what a share has taken, if it has, and looks at what is there then. It
// is one call, so nothing comes between unless a batch is full.
func (s *Store) undoShare(h *share) {
	var ops []stint.Op
	var taken stint.Instant
	if h.taken() {
		back := h.op
		back.Verb, back.Each = wire.Refund, nil
		ops, taken = append(ops, back), h.result.Decision.At
	}
	peek := h.op
	peek.Verb = stint.VerbPeek
	ops = append(ops, peek)
	results := make([]stint.Result, len(ops))
	br := s.batcherOf(&h.op)
	c := br.NewCallOf(s.life, queue.MaxSendTime, ops, results)
	c.TakenAt = taken
	br.Do(c)
	h.asked, h.result = true, results[len(ops)-1]
	if err := results[0].Err; err != nil {
		h.result.Err = err
	}
}
