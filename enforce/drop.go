package enforce

import (
	"context"
	"errors"

	"github.com/stint-go/stint"
)

// DropHold lets expire now what a hold has of a client, as overrides name it, under all rules that can
// count the client: for a holder that is stuck. It returns the rules of which anything was held. The
// error wraps stint.ErrUnknownReservation if there is none.
func (l *Limiter) DropHold(ctx context.Context, client, id string) (of []string, err error) {
	set := l.set.Load()
	for _, rule := range set.Rules() {
		claims, err := set.ClientClaims(rule.ID, client)
		if err != nil { // it can have no such client
			continue
		}
		held := false
		for _, claim := range claims {
			dropped, err := DropHold(ctx, l.store, claim, id)
			if err != nil {
				return of, err
			}
			held = held || dropped
		}
		if held {
			of = append(of, rule.ID)
		}
	}
	if len(of) == 0 {
		return nil, stint.ErrUnknownReservation
	}
	return of, nil
}

// DropHold lets expire now what a hold has of a claim, and reports whether it has anything.
func DropHold(ctx context.Context, store stint.Store, claim stint.Claim, id string) (held bool, err error) {
	op := stint.Op{
		Verb: stint.VerbDrop, Claim: claim, Extra: &stint.Extra{Hold: &stint.HoldOp{Hold: stint.Hold{ID: id}}},
	}
	_, err = store.Decide(ctx, op)
	if errors.Is(err, stint.ErrUnknownReservation) {
		return false, nil
	}
	return err == nil, err
}
