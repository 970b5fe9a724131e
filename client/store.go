package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/decide"
)

// Decide implements [stint.Store]; the package's documentation says what can be asked.
func (c *Client) Decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	request, err := c.requestOf(&op)
	if err != nil {
		return stint.Decision{}, err
	}
	ctx, cancel := within(ctx, op.Timeout)
	defer cancel()
	return c.decide(ctx, &op, request)
}

// within bounds requests by the operations' timeout.
func within(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, errSilent)
}

// requestOf is an operation as a request, or why the service can't be asked for it. It refuses what
// the REST API has no words for, before anything is sent, so that no operation is carried out in a
// way that its caller did not mean.
func (c *Client) requestOf(op *stint.Op) (api.Request, error) {
	if err := op.Validate(); err != nil {
		return api.Request{}, err
	}
	if err := checkKey(op.Key); err != nil {
		return api.Request{}, err
	}
	request := api.Request{Key: op.Key, Policy: op.Policy.Name()}
	if op.Verb != stint.VerbReset {
		request.Permits = op.Permits
	}
	if op.Verb <= stint.VerbPeek || op.Verb == stint.VerbReserve { // the service has none of the others
		request.Keep = op.Keep
	}
	n, first := op.Policy.Len(), op.Policy.Limit(0)
	if request.Policy == "" {
		request.Algorithm = first.Algorithm.String()
	}
	switch {
	case op.Verb == stint.VerbDrop || op.Verb == stint.VerbList:
		return request, stint.Invalid("verb", op.Verb, "another: the service's administrators list and drop holds")
	case op.Groups() != nil:
		return request, stint.Invalid("groups", len(op.Groups()), "none: the service decides one claim at a time")
	case len(op.And) > 0:
		return request, stint.Invalid("claims", len(op.And)+1, "1: the service decides for one key at a time")
	case request.Policy == "" && (n > 1 || !slices.Contains(c.defaults, first)):
		return request, stint.Invalid("policy", unnamed(op.Policy),
			"a policy with the name that it has in the service, or the service's default limit of an algorithm")
	case op.Verb == stint.VerbTry && slices.ContainsFunc(op.Policy.Limits(),
		func(l stint.Limit) bool { return l.CountDenied }):
		return request, stint.Invalid(
			"verb", stint.VerbTry,
			"take, peek, reset or settle: the service has no try, and take counts denied requests of this policy",
		)
	case op.Each != nil && n > 1:
		return request, stint.Invalid(
			"each", fmt.Sprintf("of %d limits", n),
			"none, or a policy of one limit: the service tells the deciding limit's outcome",
		)
	case op.Each != nil && op.Verb == stint.VerbReset:
		return request, stint.Invalid("each", "of a reset", "none: the service tells nothing of what it cleared")
	}
	return request, nil
}

// unnamed describes a policy without a name that the service can't be asked for.
func unnamed(policy *stint.Policy) string {
	if n := policy.Len(); n > 1 {
		return fmt.Sprintf("one of %d limits without a name", n)
	}
	limit := policy.Limit(0)
	return fmt.Sprintf("a %s of %d without a name, which is not the default", limit.Algorithm, limit.Capacity)
}

// decide carries out an operation by its request.
func (c *Client) decide(ctx context.Context, op *stint.Op, request api.Request) (stint.Decision, error) {
	var check api.CheckResponse
	var settled api.SettleResponse
	var err error
	switch op.Verb {
	case stint.VerbPeek:
		var remaining api.RemainingResponse
		remaining, err = c.Remaining(ctx, request)
		check = checkOfRemaining(&remaining)
	case stint.VerbReset:
		_, err = c.Reset(ctx, request)
		return stint.Decision{Allowed: err == nil}, err
	case stint.VerbSettle:
		settled, err = c.Settle(ctx, request)
		check = checkOfRest(&settled.Rest)
		check.Remaining = max(0, check.Remaining-op.Keep)
	case stint.VerbReserve, stint.VerbCommit, stint.VerbCancel:
		if check, settled.Applied, err = c.hold(ctx, op, request); op.Verb != stint.VerbReserve {
			check.Remaining = max(0, check.Remaining-op.Keep)
		}
	default:
		check, err = c.Check(ctx, request)
	}
	if err != nil {
		return stint.Decision{}, err
	}
	return decisionFor(op, &check, settled.Applied), nil
}

// decisionFor reads the decision of an operation from a plausible answer, and fills in Each.
func decisionFor(op *stint.Op, answer *api.CheckResponse, applied int64) stint.Decision {
	d := decisionOf(op.Policy, answer)
	d.Applied = applied
	if op.Each != nil {
		op.Each[0] = outcomeOf(&d)
	}
	return d
}

// Take implements [stint.Store].
func (c *Client) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return c.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

// DecideAll implements [stint.Store]. Neighbouring takes and tries travel together, up to
// 1,000 in one request; the other verbs one by one. When the service finds fault with a
// batch, it is sent in halves until the fault is found, which nothing was consumed for. When no
// answer comes, the rest is not asked any more and gets the same error. Halving finds one fault
// among n in 2 log2(n) requests. What the service said against one operation is that operation's
// error alone.
func (c *Client) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	ctx, cancel := within(ctx, decide.LeastTimeout(ops))
	defer cancel()
	b := batch{client: c, ops: ops, results: results}
	for i := range ops {
		request, err := c.requestOf(&ops[i])
		if err != nil {
			results[i] = stint.Result{Err: err}
			continue
		}
		takes := ops[i].Verb == stint.VerbTake || ops[i].Verb == stint.VerbTry
		if !takes || len(b.indexes) == bounds.MaxBatch {
			b.flush(ctx)
		}
		b.indexes, b.requests = append(b.indexes, i), append(b.requests, request)
		if !takes {
			b.flush(ctx)
		}
	}
	b.flush(ctx)
}

// Watch implements [stint.Store]. A client does not watch the service.
func (c *Client) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }

// ResetAll implements [stint.Store]. The REST API resets single clients only, so it is always an error that wraps
// stint.ErrInvalid, unless the context has ended.
func (c *Client) ResetAll(ctx context.Context, scope stint.Scope) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return stint.Invalid("scope", scope, "single clients: the service resets all of a rule on its admin listener only")
}

// A batch is what DecideAll has under way. Results are written at the indexes of the operations, so
// that those that were refused here, and are not sent, keep theirs.
type batch struct {
	client  *Client
	ops     []stint.Op
	results []stint.Result
	// the operations of ops that were not sent yet
	indexes     []int
	requests    []api.Request // of these
	unreachable error         // why the service is not asked any more
}

// flush sends what is not yet sent.
func (b *batch) flush(ctx context.Context) {
	if len(b.indexes) > 0 {
		b.send(ctx, b.indexes, b.requests)
		b.indexes, b.requests = b.indexes[:0], b.requests[:0]
	}
}

// send carries out the operations at those indexes: takes, or one of any verb.
func (b *batch) send(ctx context.Context, indexes []int, requests []api.Request) {
	var answers []api.CheckResponse
	err := b.unreachable
	switch {
	case err != nil:
	case len(indexes) == 1:
		d, err := b.client.decide(ctx, &b.ops[indexes[0]], requests[0])
		b.results[indexes[0]] = stint.Result{Decision: d, Err: err}
		b.note(err)
		return
	default:
		answers, err = b.client.checkBatch(ctx, requests)
	}
	if errors.Is(err, stint.ErrInvalid) {
		half := len(indexes) / 2
		b.send(ctx, indexes[:half], requests[:half])
		b.send(ctx, indexes[half:], requests[half:])
		return
	}
	b.note(err)
	for i, index := range indexes {
		if b.results[index] = (stint.Result{Err: err}); err == nil {
			b.results[index].Decision = decisionFor(&b.ops[index], &answers[i], 0)
		}
	}
}

// note has the service not asked any more when no answer came. A problem document is an answer: the
// service is there, and the next batch may fare better.
func (b *batch) note(err error) {
	if problem := (*api.Problem)(nil); err != nil && !errors.Is(err, stint.ErrInvalid) && !errors.As(err, &problem) {
		b.unreachable = err
	}
}
