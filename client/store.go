package client

import (
	"context"
	"errors"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
)

// Decide implements [stint.Store]; the package's documentation says what can be
// asked.
func (c *Client) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	request, err := c.phrase(&op)
	if err != nil {
		return stint.Decision{}, err
	}
	d, err := c.decide(ctx, &op, request)
	if err != nil {
		return stint.Decision{}, err
	}
	tell(&op, &d)
	return d, nil
}

// decide carries out a phrased operation.
func (c *Client) decide(ctx context.Context, op *stint.Op, request api.Request) (stint.Decision, error) {
	switch op.Verb {
	case stint.Peek:
		answer, err := c.Remaining(ctx, request)
		if err == nil && answer.At == 0 {
			err = stint.Invalid("verb", stint.Peek, "take, try, reset or settle: the service is an older one, which does not tell whether permits would be had")
		}
		if err != nil {
			return stint.Decision{}, err
		}
		check := checkOf(&answer)
		return decisionOf(op.Policy, &check), nil
	case stint.Reset:
		_, err := c.Reset(ctx, request)
		return stint.Decision{Allowed: true}, err
	case stint.Settle:
		answer, err := c.Settle(ctx, request)
		d := restOf(op.Policy, &answer.Rest)
		d.Applied = answer.Applied
		return d, err
	default:
		answer, err := c.Check(ctx, request)
		return decisionOf(op.Policy, &answer), err
	}
}

// tell fills in Each.
func tell(op *stint.Op, d *stint.Decision) {
	if op.Each != nil {
		op.Each[0] = outcomeOf(d)
	}
}

// DecideAll implements [stint.Store]. Neighbouring takes and tries travel together,
// up to [api.MaxBatch] in one request; the other verbs one by one. When the service
// finds fault with a batch, it is sent in halves until the fault is found, which
// nothing was consumed for. When no answer comes, the rest is not asked any more and
// gets the same error.
func (c *Client) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	b := batch{client: c, ops: ops, results: results}
	for i := range ops {
		request, err := c.phrase(&ops[i])
		if err != nil {
			results[i] = stint.Result{Err: err}
			continue
		}
		if verb := ops[i].Verb; verb == stint.Take || verb == stint.Try {
			b.takes, b.requests = append(b.takes, i), append(b.requests, request)
			if len(b.takes) == api.MaxBatch {
				b.flush(ctx)
			}
			continue
		}
		b.flush(ctx)
		b.one(ctx, i, request)
	}
	b.flush(ctx)
}

// A batch is what DecideAll has under way.
type batch struct {
	client   *Client
	ops      []stint.Op
	results  []stint.Result
	takes    []int         // the takes not yet sent, by their place in ops
	requests []api.Request // of these takes
	away     error         // why the service is not asked any more
}

// flush sends the takes.
func (b *batch) flush(ctx context.Context) {
	if len(b.takes) > 0 {
		b.take(ctx, b.takes, b.requests)
		b.takes, b.requests = b.takes[:0], b.requests[:0]
	}
}

// take asks for the takes at those places of ops.
func (b *batch) take(ctx context.Context, at []int, requests []api.Request) {
	if len(at) == 1 {
		b.one(ctx, at[0], requests[0])
		return
	}
	var answers []api.CheckResponse
	err := b.away
	if err == nil {
		answers, err = b.client.checkBatch(ctx, requests)
	}
	if errors.Is(err, stint.ErrInvalid) {
		half := len(at) / 2
		b.take(ctx, at[:half], requests[:half])
		b.take(ctx, at[half:], requests[half:])
		return
	}
	for i, place := range at {
		if err != nil {
			b.answer(place, stint.Decision{}, err)
			continue
		}
		b.answer(place, decisionOf(b.ops[place].Policy, &answers[i]), nil)
	}
}

// one carries out the operation at that place of ops alone.
func (b *batch) one(ctx context.Context, place int, request api.Request) {
	if b.away != nil {
		b.answer(place, stint.Decision{}, b.away)
		return
	}
	d, err := b.client.decide(ctx, &b.ops[place], request)
	b.answer(place, d, err)
}

// answer writes down a result.
func (b *batch) answer(place int, d stint.Decision, err error) {
	if err != nil {
		b.results[place] = stint.Result{Err: err}
		if problem := (*api.Problem)(nil); !errors.Is(err, stint.ErrInvalid) && !errors.As(err, &problem) {
			b.away = err
		}
		return
	}
	tell(&b.ops[place], &d)
	b.results[place] = stint.Result{Decision: d}
}
