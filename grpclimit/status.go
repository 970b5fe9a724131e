package grpclimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
)

// denials are the details of denied calls. The parts that are equal in all
// denials are made once, since denials come in floods.
type denials struct {
	exceeded [][]*anypb.Any // QuotaFailure of each limit
	// the same when the cost is above the limit itself
	above [][]*anypb.Any
}

// denialsOwner owns the denials that policies carry.
var denialsOwner byte

// denialsOf returns the denials of the policy, which carries them.
func denialsOf(policy *stint.Policy) *denials {
	d, _ := policy.Prepared(&denialsOwner, func() any {
		d := &denials{}
		for _, limit := range policy.Limits() {
			subject := subjectOf(policy, limit)
			text := exceededText
			if limit.Denials {
				text = blockedText
			}
			d.exceeded = append(d.exceeded, violation(subject, fmt.Sprintf(text, limit.Capacity)))
			d.above = append(d.above, violation(subject, fmt.Sprintf(aboveText, limit.Capacity)))
		}
		return d
	}).(*denials) // nothing else is prepared for this owner
	return d
}

// What a QuotaFailure says of a limit.
const (
	exceededText = "the limit of %d permits is reached"
	blockedText  = "the client was denied %d times"
	aboveText    = "the cost is above the limit of %d permits"
)

// violation is google.rpc.QuotaFailure. Its subject is the limit or the rule, and
// not the client: a key may be a secret.
func violation(subject, description string) []*anypb.Any {
	detail, err := anypb.New(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject: subject, Description: description,
	}}})
	if err != nil { // texts can always be written
		return nil
	}
	return []*anypb.Any{detail}
}

// subjectOf is limit:LIMITER/LIMIT, or of a rule rule:ID/LIMIT. Missing names are left out; a plain limit
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

// denial is the status of a denied call, nil for an admitted one.
func denial(v *enforce.Verdict) error {
	d := &v.Decision
	switch {
	case v.Allowed:
		return nil
	case v.Claim.Policy == nil || isShared(v):
		return deniedBy(v)
	case d.RetryAfter == stint.Never:
		return exhausted(denialsOf(v.Claim.Policy).above[d.Index], d.RetryAfter)
	default:
		return exhausted(denialsOf(v.Claim.Policy).exceeded[d.Index], headersOf(v.Claim.Policy).RetryAfter(*d, v.Each))
	}
}

// isShared reports whether the limit that denies is another rule's, in which the verdict's has a share.
func isShared(v *enforce.Verdict) bool {
	id, ofRule := strings.CutPrefix(v.Claim.Policy.Name(), rules.PolicyPrefix)
	return ofRule && v.Rule != nil && v.Rule.ID != id
}

// deniedBy is the status of a call that is denied without a rule's limits, by a limit that the rule shares, or by those
// of a service.
func deniedBy(v *enforce.Verdict) error {
	subject, description := "rules", "no rule holds for the call"
	if v.Rule != nil {
		subject = rulePrefix + v.Rule.ID
	}
	limit, wait := v.Limit(), v.Decision.RetryAfter
	if limit.Name != "" {
		subject += "/" + limit.Name
	}
	if policy := v.Claim.Policy; policy != nil {
		wait = headersOf(policy).RetryAfter(v.Decision, v.Each)
	}
	switch v.Reason() {
	case stint.ReasonNever:
		return exhausted(violation(subject, fmt.Sprintf(aboveText, limit.Capacity)), stint.Never)
	case stint.ReasonLimit, stint.ReasonMinInterval:
		return exhausted(violation(subject, fmt.Sprintf(exceededText, limit.Capacity)), wait)
	case stint.ReasonBlocked:
		return exhausted(violation(subject, fmt.Sprintf(blockedText, limit.Capacity)), wait)
	case stint.ReasonBanned:
		description = "the client is banned"
	case stint.ReasonMissing:
		description = "the call lacks what the rule asks for"
	default:
	}
	code := codes.ResourceExhausted
	if v.Unauthenticated() {
		code = codes.Unauthenticated
	}
	return status.ErrorProto(&spb.Status{
		Code: int32(code), Message: "denied by a rule", Details: violation(subject, description),
	})
}

// exhausted is the status of a call that a limit denies, and when it may come again.
func exhausted(details []*anypb.Any, retryAfter time.Duration) error {
	if retryAfter == stint.Never {
		return status.ErrorProto(&spb.Status{
			Code: int32(codes.ResourceExhausted), Message: "the cost is above the rate limit itself", Details: details,
		})
	}
	return retryLater("rate limit exceeded", details, retryAfter)
}

// retryLater is the status of a call that may be made after a while.
func retryLater(message string, details []*anypb.Any, wait time.Duration) error {
	if retry, err := anypb.New(retryInfo(wait)); err == nil { // a duration can always be written
		details = append(slices.Clip(details), retry)
	}
	return status.ErrorProto(&spb.Status{Code: int32(codes.ResourceExhausted), Message: message, Details: details})
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

func (f *failure) Error() string              { return "stint: " + prefix.Trim(f.cause.Error()) }
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
