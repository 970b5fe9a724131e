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
type share struct {
	op     stint.Op // the claims, in the operation's order
	places []int    // of its limits among the operation's
	bound  keys     // whose limits can't give back what was taken
	counts bool     // whether a limit of it counts denied requests
	asked  bool
	result stint.Result
}

// apart reports whether an operation's claims are in several partitions of a cluster.
func (s *Store) apart(op *stint.Op) bool {
	layout := s.layout.Load()
	if len(layout.lanes) == 1 {
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
func (s *Store) decideApart(ctx context.Context, op *stint.Op) (stint.Decision, error) {
	shares := s.split(op)
	carryOut := s.ask
	if op.Verb == stint.Take || op.Verb == stint.Try {
		if err := refuse(shares); err != nil {
			return stint.Decision{}, err
		}
		carryOut = s.reserve
	}
	if d, denied := s.remembered(op); denied {
		return d, nil
	}
	sent := s.denials.send()
	if err := carryOut(ctx, shares); err != nil {
		return stint.Decision{}, err
	}
	d, outs := join(op, shares)
	if !d.Allowed && s.cacheable(op) {
		s.keepDenial(sent, op, d, outs, true)
	}
	return d, nil
}

// split makes an operation's shares, of each partition one. They have keys of their own, since
// they are let go of when their caller may have left.
func (s *Store) split(op *stint.Op) []*share {
	var shares []*share
	of := map[int]*share{}
	place := 0
	for _, claim := range append([]stint.Claim{op.Claim}, op.And...) {
		partition := s.layout.Load().partition(claim.Key)
		claim.Key = strings.Clone(claim.Key)
		h := of[partition]
		if h == nil {
			h = &share{op: stint.Op{Verb: op.Verb, Claim: claim}}
			of[partition] = h
			shares = append(shares, h)
		} else {
			h.op.And = append(h.op.And, claim)
		}
		for i := range claim.Policy.Len() {
			limit := claim.Policy.Limit(i)
			h.places = append(h.places, place)
			h.counts = h.counts || limit.CountDenied
			if a := limit.Algorithm; a == stint.AlgorithmLeakyBucket || a == stint.AlgorithmSlidingWindowLog {
				h.bound.add(claim.Key)
			}
			place++
		}
	}
	for _, h := range shares {
		h.op.Each = make([]stint.Outcome, len(h.places))
	}
	return shares
}

// join puts the shares' outcomes back into the operation's order. The decision's time
// is the latest of theirs.
func join(op *stint.Op, shares []*share) (stint.Decision, []stint.Outcome) {
	outs := make([]stint.Outcome, op.Limits())
	at := shares[0].result.Decision.At
	for _, h := range shares {
		at = max(at, h.result.Decision.At)
		for i, place := range h.places {
			outs[place] = h.op.Each[i]
		}
	}
	copy(op.Each, outs)
	return stint.Combine(outs, at), outs
}

// ask carries out shares side by side, and returns the first failure.
func (s *Store) ask(ctx context.Context, shares []*share) error {
	var group sync.WaitGroup
	for _, h := range shares {
		h.asked = true
		group.Go(func() { h.result.Decision, h.result.Err = s.lane(&h.op).decideOne(ctx, &h.op) })
	}
	group.Wait()
	return fault(shares)
}

func fault(shares []*share) error {
	for _, h := range shares {
		if h.result.Err != nil {
			return h.result.Err
		}
	}
	return nil
}

// held reports whether the share holds a reservation.
func (h *share) held() bool { return h.asked && h.result.Err == nil && h.result.Decision.Allowed }

// reserve takes from all shares, or leaves them as they were.
func (s *Store) reserve(ctx context.Context, shares []*share) error {
	free, bound := divide(shares, func(h *share) bool { return h.bound == nil })
	for _, turn := range [][]*share{free, bound} {
		err := ctx.Err()
		if err == nil {
			err = s.ask(ctx, turn)
		}
		if err != nil {
			held, _ := divide(shares, (*share).held)
			s.withdraw(held)
			return err
		}
		if _, denied := divide(turn, (*share).held); len(denied) > 0 {
			return s.deny(ctx, shares)
		}
	}
	return nil
}

// divide tells shares apart.
func divide(shares []*share, is func(*share) bool) (yes, no []*share) {
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
func (s *Store) deny(ctx context.Context, shares []*share) error {
	select {
	case <-s.withdraw(shares):
		return fault(shares)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withdraw lets go of shares, in the background, on time of its own: what is held is
// given back.
func (s *Store) withdraw(shares []*share) (done <-chan struct{}) {
	landed := make(chan struct{})
	s.withdrawals.Go(func() {
		defer close(landed)
		ctx, cancel := context.WithTimeout(s.life, maxFlightTime)
		defer cancel()
		var group sync.WaitGroup
		for _, h := range shares {
			if h.held() || !h.asked {
				group.Go(func() { s.letGo(ctx, h) })
			}
		}
		group.Wait()
	})
	return landed
}

// letGo gives back what a share holds, if it does, and looks at what is there then. It
// is one parcel, so nothing comes between unless a flight is full.
func (s *Store) letGo(ctx context.Context, h *share) {
	lane := s.lane(&h.op)
	p := lane.newParcel(ctx)
	if h.held() {
		back := h.op
		back.Verb, back.Each = release, nil
		p.ops, p.taken = append(p.ops, back), h.result.Decision.At
	}
	peek := h.op
	peek.Verb = stint.Peek
	p.ops = append(p.ops, peek)
	p.results = make([]stint.Result, len(p.ops))
	lane.send(p)
	h.asked, h.result = true, p.results[len(p.ops)-1]
	if err := p.results[0].Err; err != nil {
		h.result.Err = err
	}
}

// refuse reports shares whose takes could not be undone.
func refuse(shares []*share) error {
	var all, bound keys
	counts, binding := false, 0
	for _, h := range shares {
		all.add(h.op.Key)
		for i := range h.op.And {
			all.add(h.op.And[i].Key)
		}
		counts = counts || h.counts
		if h.bound != nil {
			bound = append(bound, h.bound...)
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
