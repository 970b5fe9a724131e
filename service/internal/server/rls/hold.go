package rls

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/notation"
)

// The entries of descriptors that are about a hold. They lead to no limit: what is left of the
// descriptor does.
const (
	entryPrefix  = "stint_"
	reserveEntry = "stint_reserve" // its value is the hold's id: its hits are reserved until the stream ends
	commitEntry  = "stint_commit"  // the same id: the hits are what the stream cost
	ttlEntry     = "stint_ttl"     // beside either: how long the hold lives, such as the route's time-out
)

// hold is what a request says of its hold. Envoy asks twice: before a stream, and when it has ended. The zero value is
// none.
type hold struct {
	verb     stint.Verb // Reserve or Commit
	id       string
	ttl      time.Duration
	explicit bool // whether the request says its hits
	parts    []holdPart
}

// A holdPart is the checks that are held under one id.
type holdPart struct {
	places []int
	stint.HoldOp
	reserved bool // by this request, and by all of the checks
}

// holdEntries takes the entries about a hold out of a descriptor, and returns those that lead to
// its limit.
func (d *decision) holdEntries(
	i int,
	given *common.RateLimitDescriptor,
	k *check,
) ([]*common.RateLimitDescriptor_Entry, error) {
	about := 0
	for _, e := range given.Entries {
		if strings.HasPrefix(e.Key, entryPrefix) {
			about++
		}
	}
	if about == 0 {
		return given.Entries, nil
	}
	left := make([]*common.RateLimitDescriptor_Entry, 0, len(given.Entries))
	for j, e := range given.Entries {
		param := fmt.Sprintf("descriptors[%d].entries[%d].value", i, j)
		switch e.Key {
		case reserveEntry, commitEntry:
			verb := stint.VerbReserve
			if e.Key == commitEntry {
				verb = stint.VerbCommit
			}
			if e.Value == "" {
				return nil, stint.Invalid(param, "", "an id that is the stream's alone, such as x-request-id")
			}
			if d.hold.id != "" && (d.hold.id != e.Value || d.hold.verb != verb) {
				return nil, stint.Invalid(param, e.Value, "of all descriptors of a request the same id, to reserve or to commit")
			}
			d.hold.verb, d.hold.id, k.held = verb, e.Value, true
		case ttlEntry:
			ttl, err := notation.ParseDuration(e.Value)
			if err != nil || !bounds.IsHoldTTL(ttl) {
				return nil, stint.Invalid(param, e.Value, bounds.HoldTTLs)
			}
			d.hold.ttl = ttl
		default:
			left = append(left, e)
		}
	}
	d.hold.explicit = d.hold.explicit || given.HitsAddend != nil || d.request.HitsAddend != 0
	if len(left) == 0 {
		return nil, stint.Invalid(fmt.Sprintf("descriptors[%d].entries", i), len(left),
			"beside those about a hold, the entries of a limit")
	}
	return left, nil
}

// checkHold reports a check that is held and can't be, or has to be held and is not. A look holds
// nothing.
func (d *decision) checkHold(i int, k *check) error {
	concurrent := k.limit != nil && k.limit.Algorithm == stint.AlgorithmConcurrency
	param := fmt.Sprintf("descriptors[%d]", i)
	if concurrent && k.held && k.hits == 0 {
		k.hits = 1 // a place is one, whatever the hits are
	}
	switch {
	case k.limit == nil || !k.asks():
		k.held = false
	case concurrent && !k.held && !d.looks && k.hits != 0:
		return stint.Invalid(param, "none of the entries "+reserveEntry+" and "+commitEntry,
			"one of them for "+k.limit.id+", whose places have to be freed")
	case !k.held:
	case d.looks || k.hits == 0 && d.hold.verb == stint.VerbReserve:
		k.held = false
	case k.hits < 0:
		return stint.Invalid(param+".is_negative_hits", true, "false with a hold")
	case k.limit.reference():
		return stint.Invalid(param, "a hold of "+k.limit.id+", which counts denied requests",
			"with accounting: atomic in its rate_limit")
	}
	return nil
}

// commits reports whether the check is about a stream that has ended.
func (d *decision) commits(k *check) bool { return k.held && d.hold.verb == stint.VerbCommit }

// beginHold carries out what the request says of its hold. The checks that may deny the request are one
// hold, so that it is admitted by all of them or takes from none; one in shadow or quota mode is a hold
// by itself.
//
// Envoy sends a commit once, so one that fails is sent again in the background, and so are those after it.
func (d *decision) beginHold(ctx context.Context) error {
	d.addParts()
	for i := 0; i < len(d.hold.parts); i++ {
		part := &d.hold.parts[i]
		err := d.carry(ctx, d.hold.verb, part)
		if err == nil && d.hold.verb == stint.VerbReserve && part.Replayed {
			// Envoy asks once before a stream: this is its end, by the same entry, and that of the parts before this one.
			d.hold.verb, i = stint.VerbCommit, -1
			d.cancelReserved(ctx)
			continue
		}
		if err != nil {
			d.commitLater(err, d.hold.parts[i:])
			return err
		}
	}
	return nil
}

// commits reports whether a request may be a commit.
func commits(r *pb.RateLimitRequest) bool {
	isCommit := func(e *common.RateLimitDescriptor_Entry) bool { return e.GetKey() == commitEntry }
	return slices.ContainsFunc(r.GetDescriptors(), func(d *common.RateLimitDescriptor) bool {
		return slices.ContainsFunc(d.GetEntries(), isCommit)
	})
}

// addParts makes the holds of the checks. Of one in shadow or quota mode the id has the limit and the client.
func (d *decision) addParts() {
	var together []int
	for i := range d.checks {
		switch k := &d.checks[i]; {
		case !k.held:
		case k.limit.shadow || d.quota(k):
			d.addPart(i, "/"+k.limit.id+"/"+k.key)
		default:
			together = append(together, i)
		}
	}
	for _, i := range together {
		d.addPart(i, "")
	}
}

// addPart adds a check to the hold of its id. Ids are the domain's: two filters may ask about one stream.
func (d *decision) addPart(place int, suffix string) {
	h := stint.Hold{ID: holdID(PolicyPrefix + d.request.Domain + "/" + d.hold.id + suffix), TTL: d.hold.ttl}
	for i := range d.hold.parts {
		if part := &d.hold.parts[i]; part.ID == h.ID {
			part.places = append(part.places, place)
			return
		}
	}
	d.hold.parts = append(d.hold.parts, holdPart{places: []int{place}, HoldOp: stint.HoldOp{Hold: h}})
}

// holdID is an id as a store takes it.
func holdID(id string) string {
	if !bounds.IsHoldID(id) {
		sum := sha256.Sum256([]byte(id))
		return PolicyPrefix + "sha256-" + hex.EncodeToString(sum[:])
	}
	return id
}

// carry has the store carry out an operation on a hold, and takes over what it says. A commit of a hold
// that the store does not know is charged if the request says its hits: the stream was admitted while
// the store was unreachable, or was denied and cost that much all the same. So is one whose hold was
// cancelled, as another limit denied the stream: under an id of its own, since that one has ended.
// Without hits it is only told what is left, as of what has ended before.
func (d *decision) carry(ctx context.Context, verb stint.Verb, part *holdPart) error {
	h := stint.HoldOp{Hold: part.Hold}
	if verb == stint.VerbCommit && d.hold.explicit {
		h.ExpiresAt = stint.Instant(time.Now().UnixMicro())
	}
	op, decided, err := d.decideHold(ctx, verb, part, &h)
	if verb == stint.VerbCommit && d.hold.explicit && wasCancelled(err) {
		h.ID = holdID(h.ID + "/denied")
		op, decided, err = d.decideHold(ctx, verb, part, &h)
	}
	part.HoldOp = h
	if errors.Is(err, stint.ErrResolved) || errors.Is(err, stint.ErrUnknownReservation) { // the stream is over
		verb = stint.VerbPeek
		op, decided, err = d.decideHold(ctx, verb, part, nil)
	}
	switch {
	case errors.Is(err, stint.ErrOtherClaims):
		entry := reserveEntry
		if verb == stint.VerbCommit {
			entry = commitEntry
		}
		return stint.Invalid(entry, d.hold.id, "an id with the limits that it was reserved for")
	case err != nil:
		return err
	}
	part.reserved = verb == stint.VerbReserve && decided.Allowed && !h.Replayed
	for _, at := range part.places {
		k := &d.checks[at]
		k.note(&op, &decided, false)
		k.full = h.Full && !decided.Allowed
		k.over = k.over && verb == stint.VerbReserve || k.full
	}
	return nil
}

// wasCancelled reports whether an operation was refused since its hold was cancelled.
func wasCancelled(err error) bool {
	resolved, is := errors.AsType[*stint.ResolvedError](err)
	return is && resolved.End == "cancelled"
}

// commitLater sends the commits of holds in the background, until one arrives or the store has forgotten the hold, if
// a commit of the first failed with an error. It is carry without an answer.
func (d *decision) commitLater(err error, parts []holdPart) {
	if d.hold.verb != stint.VerbCommit || errors.Is(err, stint.ErrInvalid) {
		return
	}
	s, explicit, now := d.service, d.hold.explicit, time.Now()
	for _, part := range parts {
		h := stint.HoldOp{Hold: part.Hold}
		if explicit {
			h.ExpiresAt = stint.Instant(now.UnixMicro())
		}
		op := d.holdOp(stint.VerbCommit, &part)
		op.And, op.Each = slices.Clone(op.And), nil
		send := func(ctx context.Context) error {
			h, op := h, op // a store may write to the hold of a try after that
			op.Extra = &stint.Extra{Hold: &h}
			_, err := s.config.Store.Decide(ctx, op)
			if explicit && wasCancelled(err) {
				h.ID = holdID(h.ID + "/denied")
				_, err = s.config.Store.Decide(ctx, op)
			}
			if errors.Is(err, stint.ErrResolved) || !explicit && errors.Is(err, stint.ErrUnknownReservation) {
				return nil // the stream is over, and is charged or has no cost to charge
			}
			return err
		}
		if !s.ends.Add(err, ends.End{Send: send, Until: now.Add(bounds.Remembered(h.TTL)), GaveUp: s.gaveUp}) {
			s.gaveUp(err)
		}
	}
}

// dropHold takes back what was reserved for a request that other limits deny. What the store can't take
// back expires: the request is denied all the same.
func (d *decision) dropHold(ctx context.Context) {
	if len(d.hold.parts) > 0 && d.exceeded() {
		d.cancelReserved(ctx)
	}
}

// cancelReserved takes back what this request has reserved.
func (d *decision) cancelReserved(ctx context.Context) {
	for i := range d.hold.parts {
		if part := &d.hold.parts[i]; part.reserved {
			_, _, _ = d.decideHold(ctx, stint.VerbCancel, part, &part.HoldOp)
		}
	}
}

// decideHold carries out a verb on one hold: the places of a part, in one operation of the store.
// The lists of the decision are empty again then, for the next one.
func (d *decision) decideHold(
	ctx context.Context,
	verb stint.Verb,
	part *holdPart,
	h *stint.HoldOp,
) (stint.Op, stint.Decision, error) {
	op := d.holdOp(verb, part)
	if h != nil {
		op.Extra = &stint.Extra{Hold: h}
	}
	decided, err := d.service.config.Store.Decide(ctx, op)
	return op, decided, err
}

// holdOp is a verb on the places of a part. The lists that it uses are used again by the next one.
func (d *decision) holdOp(verb stint.Verb, part *holdPart) stint.Op {
	d.queue(verb, part.places)
	op := d.ops[0]
	d.unqueue()
	return op
}
