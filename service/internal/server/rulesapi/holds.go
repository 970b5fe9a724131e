package rulesapi

import (
	"context"
	"errors"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/server/problem"
)

// dropHold ends what a hold has of a client, whose holder is stuck: of a client of the rules, or of a key that callers
// name.
func (c *call) dropHold() (answer adminapi.DroppedHold, err error) {
	id, client, key := c.r.PathValue("id"), c.query.Get("client"), c.query.Get("key")
	if (client == "") == (key == "") {
		return answer, stint.Invalid("client", problem.Short(client),
			"the client of rules that has the hold, as an override names it, or in its place key, that of a reserve by a policy")
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), resetTimeout)
	defer cancel()
	answer.ID = id
	if c.hold = id; client != "" {
		answer.Rules, err = c.api.config.Limiter.DropHold(ctx, client, id)
		for _, of := range answer.Rules {
			if rule, found := c.api.config.Limiter.Set().Rule(of); found {
				c.about(&rule, client)
			}
		}
	} else {
		c.shown = key
		answer.Policies, err = c.dropHoldOfKey(ctx, key, id)
	}
	switch {
	case errors.Is(err, stint.ErrUnknownReservation): // without the client, which may be an API key
		return answer, problem.New(http.StatusNotFound, "the client has no hold %q", problem.Short(id))
	case err != nil:
		return answer, stateUnreachable(err, "the store did not confirm that the hold has ended; repeat it")
	}
	return answer, nil
}

// dropHoldOfKey ends a hold of a key under every configured policy that has it, and returns their
// names. One that none has is not known.
func (c *call) dropHoldOfKey(ctx context.Context, key, id string) (of []string, err error) {
	for name, policy := range c.api.config.Policies() {
		held, err := enforce.DropHold(ctx, c.api.config.Store, stint.Claim{Key: key, Policy: policy}, id)
		if err != nil {
			return of, err
		}
		if held {
			of = append(of, name)
		}
	}
	if len(of) == 0 {
		return nil, stint.ErrUnknownReservation
	}
	return of, nil
}
