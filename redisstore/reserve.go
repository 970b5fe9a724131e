package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/stint-go/stint"
)

// share is the part of an operation in one partition of a cluster, where it is decided
// atomically. No script reaches further, so an operation over several partitions is
// carried out in shares.
//
// Peeks, resets and settlements of all shares go side by side. A take reserves: each
// share takes for itself, and when one denies, the others give back what they took,
// each limit its own and nobody else's. So every limit is exact by itself, and a
// reservation that is given back can only deny others for a moment. A share with a
// limit that can't give back is asked when all others have admitted; there may be one.
type partitionShare struct {
	op          stint.Op // the claims, in the operation's order
	indexes     []int    // of its limits among the operation's
	irrevocable keys     // whose limits can't give back what was taken
	counts      bool     // whether a limit of it counts denied requests
	asked       bool
	result      stint.Result
}

// apart reports whether an operation's claims are in several partitions of a cluster.
func (s *Store) spansPartitions(op *stint.Op) bool {
	layout := s.layout.Load()
	if len(layout.batchers) == 1 {
		return false
	}
	for i := range op.And {
		if layout.partition(op.And[i].Key) != layout.partition(op.Key) {
			return true
		}
	}
	return false
}

// decideApart carries out an operation over several partitions.
func (s *Store) decideReserving(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	shares := s.split(op)
	carryOut := s.askShares
	if op.Verb == stint.Take || op.Verb == stint.Try {
		if err := refuse(shares); err != nil {
			return stint.Decision{}, err
		}
		carryOut = s.reserve
	}
	if d, denied := s.rememberedDenial(op); denied {
		return d, nil
	}
	sent := s.denials.mark()
	if err := carryOut(ctx, shares); err != nil {
		return stint.Decision{}, err
	}
	d, outcomes := join(op, shares)
	if !d.Allowed && s.denialCacheable(op) {
		s.keepDenial(sent, op, d, outcomes, true)
	}
	return d, nil
}

// split makes an operation's shares, of each partition one. They have keys of their own, since
// they are let go of when their caller may have left.
func (s *Store) split(op *stint.Op) []*partitionShare {
	var shares []*partitionShare
	of := map[int]*partitionShare{}
	place := 0
	for _, claim := range append([]stint.Claim{op.Claim}, op.And...) {
		partition := s.layout.Load().partition(claim.Key)
		claim.Key = strings.Clone(claim.Key)
		h := of[partition]
		if h == nil {
			h = &partitionShare{op: stint.Op{Verb: op.Verb, Claim: claim}}
			of[partition] = h
			shares = append(shares, h)
		} else {
			h.op.And = append(h.op.And, claim)
		}
		for i := range claim.Policy.Len() {
			limit := claim.Policy.Limit(i)
			h.indexes = append(h.indexes, place)
			h.counts = h.counts || limit.CountDenied
			if a := limit.Algorithm; a == stint.AlgorithmLeakyBucket || a == stint.AlgorithmSlidingWindowLog {
				h.irrevocable.add(claim.Key)
			}
			place++
		}
	}
	for _, h := range shares {
		h.op.Each = make([]stint.Outcome, len(h.indexes))
	}
	return shares
}

// join puts the shares' outcomes back into the operation's order. The decision's time
// is the latest of theirs.
func join(op *stint.Op, shares []*partitionShare) (stint.Decision, []stint.Outcome) {
	outcomes := make([]stint.Outcome, op.Limits())
	at := shares[0].result.Decision.At
	for _, h := range shares {
		at = max(at, h.result.Decision.At)
		for i, place := range h.indexes {
			outcomes[place] = h.op.Each[i]
		}
	}
	copy(op.Each, outcomes)
	return stint.Combine(outcomes, at), outcomes
}

// ask carries out shares side by side, and returns the first failure.
func (s *Store) askShares(ctx context.Context, shares []*partitionShare) error {
	var group sync.WaitGroup
	for _, h := range shares {
		h.asked = true
		group.Go(func() { h.result.Decision, h.result.Err = s.batcherOf(&h.op).decideOne(ctx, &h.op) })
	}
	group.Wait()
	return fault(shares)
}

func fault(shares []*partitionShare) error {
	for _, h := range shares {
		if h.result.Err != nil {
			return h.result.Err
		}
	}
	return nil
}

// held reports whether the share holds a reservation.
func (h *partitionShare) held() bool {
	return h.asked && h.result.Err == nil && h.result.Decision.Allowed
}

// reserve takes from all shares, or leaves them as they were.
func (s *Store) reserve(ctx context.Context, shares []*partitionShare) error {
	free, bound := divide(shares, func(h *partitionShare) bool { return h.irrevocable == nil })
	for _, turn := range [][]*partitionShare{free, bound} {
		err := ctx.Err()
		if err == nil {
			err = s.askShares(ctx, turn)
		}
		if err != nil {
			held, _ := divide(shares, (*partitionShare).held)
			s.withdraw(held)
			return err
		}
		if _, denied := divide(turn, (*partitionShare).held); len(denied) > 0 {
			return s.deny(ctx, shares)
		}
	}
	return nil
}

// divide tells shares apart.
func divide(shares []*partitionShare, is func(*partitionShare) bool) (yes, no []*partitionShare) {
	for _, h := range shares {
		if is(h) {
			yes = append(yes, h)
		} else {
			no = append(no, h)
		}
	}
	return yes, no
}

// deny makes all shares tell what they do with nothing taken. A caller that leaves
// does not keep them from it.
func (s *Store) deny(ctx context.Context, shares []*partitionShare) error {
	select {
	case <-s.withdraw(shares):
		return fault(shares)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withdraw lets go of shares, in the background, on time of its own: what is held is
// given back.
func (s *Store) withdraw(shares []*partitionShare) <-chan struct{} {
	done := make(chan struct{})
	s.undoing.Go(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(s.life, maxSendTime)
		defer cancel()
		var group sync.WaitGroup
		for _, h := range shares {
			if h.held() || !h.asked {
				group.Go(func() { s.letGo(ctx, h) })
			}
		}
		group.Wait()
	})
	return done
}

// letGo gives back what a share holds, if it does, and looks at what is there then. It
// is one call, so nothing comes between unless a batch is full.
func (s *Store) letGo(ctx context.Context, h *partitionShare) {
	br := s.batcherOf(&h.op)
	c := br.newCall(ctx)
	if h.held() {
		back := h.op
		back.Verb, back.Each = refund, nil
		c.ops, c.takenAt = append(c.ops, back), h.result.Decision.At
	}
	peek := h.op
	peek.Verb = stint.Peek
	c.ops = append(c.ops, peek)
	c.results = make([]stint.Result, len(c.ops))
	br.do(c)
	h.asked, h.result = true, c.results[len(c.ops)-1]
	if err := c.results[0].Err; err != nil {
		h.result.Err = err
	}
}

// refuse reports shares whose takes could not be undone.
func refuse(shares []*partitionShare) error {
	var all, bound keys
	counts, binding := false, 0
	for _, h := range shares {
		all.add(h.op.Key)
		for i := range h.op.And {
			all.add(h.op.And[i].Key)
		}
		counts = counts || h.counts
		if h.irrevocable != nil {
			bound = append(bound, h.irrevocable...)
			binding++
		}
	}
	const common = "on a cluster, keys with a hash tag in common, like {tag}:1 and {tag}:2, since "
	switch {
	case counts:
		return stint.Invalid("claims", all, common+"a limit that counts denied requests must be decided with all others")
	case binding > 1:
		return stint.Invalid("claims", bound, common+"leaky buckets and sliding window logs can't give back what was taken")
	}
	return nil
}

// keys are distinct keys, as a message names them.
type keys []string

func (k *keys) add(key string) {
	if !slices.Contains(*k, key) {
		*k = append(*k, key)
	}
}

func (k keys) String() string {
	quoted := make([]string, len(k))
	for i, key := range k {
		quoted[i] = strconv.Quote(key)
	}
	return strings.Join(quoted, ", ")
}
