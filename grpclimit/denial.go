package grpclimit

import (
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
)

// denials makes the statuses of denied calls. What does not change from denial to
// denial is made once, since denials come in floods.
type denials struct {
	exceeded []*anypb.Any // QuotaFailure of each limit
	above    []*anypb.Any // the same when the cost is above the limit itself
}

func newDenials(policy *stint.Policy) (*denials, error) {
	d := &denials{}
	for _, limit := range policy.Limits() {
		exceeded, err := quotaFailure(policy, limit, "the limit of %d permits is reached")
		if err != nil {
			return nil, err
		}
		above, err := quotaFailure(policy, limit, "the cost is above the limit of %d permits")
		if err != nil {
			return nil, err
		}
		d.exceeded, d.above = append(d.exceeded, exceeded), append(d.above, above)
	}
	return d, nil
}

// quotaFailure is google.rpc.QuotaFailure of a limit. Its subject is the limit, and
// not the client: a key may be a secret.
func quotaFailure(policy *stint.Policy, limit stint.Limit, description string) (*anypb.Any, error) {
	subject := limit.Name
	if subject == "" {
		subject = "default"
	}
	if policy.Name() != "" {
		subject = policy.Name() + "/" + subject
	}
	return anypb.New(&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
		Subject:     "limit:" + subject,
		Description: fmt.Sprintf(description, limit.Capacity),
	}}})
}

// of is the status of a denial.
func (d *denials) of(decision stint.Decision) error {
	if decision.RetryAfter == stint.Never {
		return status.ErrorProto(&spb.Status{
			Code:    int32(codes.ResourceExhausted),
			Message: "the cost is above the rate limit itself",
			Details: []*anypb.Any{d.above[decision.Index]},
		})
	}
	denial := &spb.Status{
		Code:    int32(codes.ResourceExhausted),
		Message: "rate limit exceeded",
		Details: []*anypb.Any{d.exceeded[decision.Index]},
	}
	retry, err := anypb.New(retryInfo(decision.RetryAfter))
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
