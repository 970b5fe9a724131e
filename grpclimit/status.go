package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// denials makes the statuses of denied calls. What does not change from denial to
// denial is made once, since denials come in floods.
type denials struct {
	exceeded []*anypb.Any // QuotaFailure of each limit
	above    []*anypb.Any // the same when the cost is above the limit itself
}

// denialsOf returns the denials of the policy, which carries them.
func denialsOf(policy *stint.Policy) (*denials, error) {
	type made struct {
		denials *denials
		err     error
	}
	m, _ := policy.Prepared(denialsOwner{}, func() any {
		d, err := newDenials(policy)
		return made{d, err}
	}).(made) // nothing else is prepared for this owner
	return m.denials, m.err
}

// denialsOwner owns the denials that policies carry.
type denialsOwner struct{}

func newDenials(policy *stint.Policy) (*denials, error) {
	d := &denials{}
	for _, limit := range policy.Limits() {
		exceeded, err := quotaFailure(policy, limit, exceededText)
		if err != nil {
			return nil, err
		}
		above, err := quotaFailure(policy, limit, aboveText)
		if err != nil {
			return nil, err
		}
		d.exceeded, d.above = append(d.exceeded, exceeded), append(d.above, above)
	}
	return d, nil
}

// What a QuotaFailure says of a limit.
const (
	exceededText = "the limit of %d permits is reached"
	aboveText    = "the cost is above the limit of %d permits"
)

// quotaFailure is google.rpc.QuotaFailure of a limit.
func quotaFailure(policy *stint.Policy, limit stint.Limit, description string) (*anypb.Any, error) {
	return violation(subjectOf(policy, limit), fmt.Sprintf(description, limit.Capacity))
}

// violation is google.rpc.QuotaFailure. Its subject is the limit or the rule, and
// not the client: a key may be a secret.
func violation(subject, description string) (*anypb.Any, error) {
	return anypb.New(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: subject, Description: description,
	}}})
}

// subjectOf is limit:LIMITER/LIMIT, or of a rule rule:ID/LIMIT. What has no name is left out; a plain limit
// and limiter without names are "default".
func subjectOf(policy *stint.Policy, limit stint.Limit) string {
	if id, ok := strings.CutPrefix(policy.Name(), rules.PolicyPrefix); ok {
		if limit.Name == "" {
			return rulePrefix + id
		}
		return rulePrefix + id + "/" + limit.Name
	}
	if policy.Name() != "" && limit.Name != "" {
		return "limit:" + policy.Name() + "/" + limit.Name
	}
	return "limit:" + cmp.Or(policy.Name(), limit.Name, "default")
}

// rulePrefix begins the subject of a rule's denials.
const rulePrefix = "rule:"

// deniedBy is the status of a call that is denied without a rule's limits, or by those of a service.
func deniedBy(v *enforce.Verdict) error {
	subject, description := "rules", "no rule holds for the call"
	switch v.Reason() {
	case enforce.ReasonLimit, enforce.ReasonMinInterval, enforce.ReasonNever:
		return deniedThere(v)
	case enforce.ReasonBanned:
		subject, description = rulePrefix+v.Rule.ID, "the client is banned"
	case enforce.ReasonMissing:
		subject, description = rulePrefix+v.Rule.ID, "the call lacks what the rule asks for"
	default:
	}
	denial := &spb.Status{Code: int32(codes.ResourceExhausted), Message: "denied by a rule"}
	if detail, err := violation(subject, description); err == nil { // texts can always be written
		denial.Details = []*anypb.Any{detail}
	}
	return status.ErrorProto(denial)
}

// deniedThere is the status of a call that is denied by a limit of a service's rules.
func deniedThere(v *enforce.Verdict) error {
	subject, limit := rulePrefix+v.Rule.ID, v.Limit()
	if limit.Name != "" {
		subject += "/" + limit.Name
	}
	description := exceededText
	if v.Decision.RetryAfter == stint.Never {
		description = aboveText
	}
	detail, err := violation(subject, fmt.Sprintf(description, limit.Capacity))
	if err != nil {
		return err
	}
	return exhausted(detail, v.Decision.RetryAfter)
}

// of is the status of a denial.
func (d *denials) of(decision stint.Decision) error {
	if decision.RetryAfter == stint.Never {
		return exhausted(d.above[decision.Index], stint.Never)
	}
	return exhausted(d.exceeded[decision.Index], decision.RetryAfter)
}

// exhausted is the status of a call that a limit denies, and when it may come again.
func exhausted(detail *anypb.Any, retryAfter time.Duration) error {
	denial := &spb.Status{Code: int32(codes.ResourceExhausted), Message: "rate limit exceeded", Details: []*anypb.Any{detail}}
	if retryAfter == stint.Never {
		denial.Message = "the cost is above the rate limit itself"
		return status.ErrorProto(denial)
	}
	retry, err := anypb.New(retryInfo(retryAfter))
	if err == nil { // a duration can always be written
		denial.Details = append(denial.Details, retry)
	}
	return status.ErrorProto(denial)
}

// retryInfo rounds a wait up to whole milliseconds, the unit of many clients' timers,
// so that a client is never told to come too early.
func retryInfo(wait time.Duration) *errdetails.RetryInfo {
	if rest := wait % time.Millisecond; rest > 0 {
		wait += time.Millisecond - rest
	}
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(max(wait, time.Millisecond))}
}

// A failure is why a call could not be decided. Who logs it in the process sees the
// cause; the status, which goes to the client, does not tell it.
type failure struct {
	status *status.Status
	cause  error
}

func (f *failure) Error() string              { return "grpclimit: " + f.cause.Error() }
func (f *failure) Unwrap() error              { return f.cause }
func (f *failure) GRPCStatus() *status.Status { return f.status }

// failed makes the error that ends a call of which err is all that is known.
func failed(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	var invalid *stint.InvalidError
	f := &failure{cause: err}
	switch {
	case errors.As(err, &invalid):
		// What came may be a secret; what is allowed is not.
		f.status = status.New(codes.InvalidArgument, fmt.Sprintf("%s; allowed: %s", invalid.Param, invalid.Allowed))
	case errors.Is(err, stint.ErrInvalid):
		f.status = status.New(codes.InvalidArgument, "the key or the cost is not allowed")
	case ctx.Err() != nil:
		f.status = status.FromContextError(ctx.Err())
	case errors.Is(err, stint.ErrOverloaded):
		f.status = status.New(codes.Unavailable, "too busy to decide the rate limit; try again later")
	case errors.Is(err, stint.ErrUnavailable):
		f.status = status.New(codes.Unavailable, "the rate limit could not be decided")
	case errors.Is(err, context.DeadlineExceeded):
		f.status = status.FromContextError(context.DeadlineExceeded)
	case errors.Is(err, context.Canceled):
		f.status = status.FromContextError(context.Canceled)
	default:
		f.status = status.New(codes.Internal, "the rate limit could not be applied")
	}
	return f
}
