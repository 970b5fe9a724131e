package client

import (
	"context"
	"net/http"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
)

// Reserve holds permits of a key, beyond those that it leaves to others (Keep), until a commit, a cancel
// or an expiry, or says that they are not to be had. It may be sent again.
func (c *Client) Reserve(ctx context.Context, request api.HoldRequest) (api.ReserveResponse, error) {
	if err := checkKey(request.Key); err != nil {
		return api.ReserveResponse{}, err
	}
	q := call{method: http.MethodPost, path: apipath.Reserve, body: request, denial: true}
	answer, _, err := do(ctx, c, q, "a reserve", func(a *api.ReserveResponse, ok bool) bool {
		return plausible(&a.CheckResponse) && a.Allowed == ok && a.ID == request.ID
	})
	return answer, err
}

// Commit ends a hold with what it cost, 0 or more, which is Permits. Keep is not sent. It may be sent
// again. The error wraps [stint.ErrResolved], [stint.ErrOtherClaims] or [stint.ErrUnknownReservation]
// where those of a [stint.Reservation] do.
func (c *Client) Commit(ctx context.Context, request api.HoldRequest) (api.HoldEndResponse, error) {
	request.Keep = 0
	return c.endHold(ctx, apipath.Commit, &request, struct {
		api.HoldRequest
		Permits int64 `json:"permits"` // 0 too
	}{request, request.Permits})
}

// Cancel ends a hold as if it had never been. Permits, Keep, TTL, OnExpiry and ExpiresAt are not sent.
// Errors are Commit's.
func (c *Client) Cancel(ctx context.Context, request api.HoldRequest) (api.HoldEndResponse, error) {
	request.Permits, request.Keep, request.TTL, request.OnExpiry, request.ExpiresAt = 0, 0, "", "", 0
	return c.endHold(ctx, apipath.Cancel, &request, request)
}

// endHold sends a commit or a cancel. The answer has to be about the same hold.
func (c *Client) endHold(
	ctx context.Context, path string, request *api.HoldRequest, body any,
) (api.HoldEndResponse, error) {
	if err := checkKey(request.Key); err != nil {
		return api.HoldEndResponse{}, err
	}
	q := call{method: http.MethodPost, path: path, body: body}
	answer, _, err := do(ctx, c, q, "the end of a hold", func(a *api.HoldEndResponse, _ bool) bool {
		if a.Rest == nil || a.ID != request.ID {
			return false
		}
		left := checkOfRest(a.Rest)
		return plausible(&left)
	})
	return answer, err
}

// hold carries out an operation on a hold, and tells the hold what became of it. What the service
// answers is written over the whole of it, as any other store does.
func (c *Client) hold(
	ctx context.Context, op *stint.Op, request api.Request,
) (check api.CheckResponse, applied int64, err error) {
	h := op.Hold()
	r := api.HoldRequest{Request: request, ID: h.ID}
	if h.TTL != 0 {
		r.TTL = h.TTL.String()
	}
	if op.Verb == stint.VerbReserve {
		if h.OnExpiry == stint.ChargeOnExpiry {
			r.OnExpiry = "keep"
		}
		var answer api.ReserveResponse
		if answer, err = c.Reserve(ctx, r); err != nil {
			return check, 0, err
		}
		*h = stint.HoldOp{
			Hold: h.Hold, Replayed: answer.Replayed, Lost: answer.Lost,
			Full: answer.Reason == string(stint.ReasonHolds),
		}
		if answer.Allowed {
			h.ExpiresAt = stint.Instant(answer.ExpiresAt)
		}
		return answer.CheckResponse, 0, nil
	}
	r.ExpiresAt = int64(h.ExpiresAt)
	end := c.Commit
	if op.Verb == stint.VerbCancel {
		end = c.Cancel
	}
	answer, err := end(ctx, r)
	if err != nil {
		return check, 0, err
	}
	*h = stint.HoldOp{
		Hold: h.Hold, Replayed: answer.Replayed, Late: answer.Late, Reset: answer.Reset,
	}
	return checkOfRest(answer.Rest), answer.Applied, nil
}

// holdErrors are what a service may say of a hold, by the problem's type.
var holdErrors = map[string]error{
	apipath.ProblemHoldResolved: stint.ErrResolved, apipath.ProblemHoldOtherClaims: stint.ErrOtherClaims,
	apipath.ProblemHoldUnknown: stint.ErrUnknownReservation,
}
