package envoy_test

import (
	"slices"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

// A difference is one that is meant.
type difference struct {
	name, reason string
	// applies says whether the answer that is wanted, so far the reference's, is not what the subject is to answer.
	applies func(exchange, answer) bool
	// expected is what it is to answer instead. It changes the answer that it is given, which is nobody else's.
	expected func(exchange, answer) answer
	// elsewhere says that no random request comes to it, but one of TestFailures does.
	elsewhere bool
}

// differences are all that are meant, in the order in which they apply. Another one is that an override without a unit
// is refused, which ends the reference: TestOverrideWithoutUnit.
var differences = []difference{
	{
		name:   "an invalid request",
		reason: "no domain or no descriptors: the reference answers Unknown, which says that it failed",
		applies: func(e exchange, _ answer) bool {
			return e.request.GetDomain() == "" || len(e.request.GetDescriptors()) == 0
		},
		expected: refused(codes.InvalidArgument),
	},
	{
		name:   "an invalid descriptor",
		reason: "no entries, or an entry without a key: the API forbids them, and the reference lets them pass",
		applies: func(e exchange, _ answer) bool {
			for _, one := range e.request.GetDescriptors() {
				if len(one.GetEntries()) == 0 {
					return true
				}
				for _, entry := range one.GetEntries() {
					if entry.GetKey() == "" {
						return true
					}
				}
			}
			return false
		},
		expected: refused(codes.InvalidArgument),
	},
	{
		elsewhere: true,
		name:      "no configuration",
		reason:    "the reference answers Unknown",
		applies: func(_ exchange, a answer) bool {
			return status.Convert(a.err).Message() == noConfiguration
		},
		expected: refused(codes.Unavailable),
	},
	{
		elsewhere: true,
		name:      "Redis is unreachable",
		reason:    "the reference answers Unknown",
		applies: func(_ exchange, a answer) bool {
			return status.Code(a.err) == codes.Unknown && status.Convert(a.err).Message() != noConfiguration
		},
		expected: refused(codes.Unavailable),
	},
	{
		name:    "the reset of a quota",
		reason:  "the reference leaves out duration_until_reset where a quota is over; a client waits until then",
		applies: func(_ exchange, a answer) bool { return len(violations(a.response)) > 0 },
		expected: func(e exchange, a answer) answer {
			for _, i := range violations(a.response) {
				over := a.response.GetStatuses()[i]
				over.DurationUntilReset = &durationpb.Duration{Seconds: untilReset(over.GetCurrentLimit().GetUnit(), e.before)}
			}
			return a
		},
	},
	{
		name:   "all quotas are over",
		reason: "the reference denies since ratelimit#1059 if all quotas of a request are over, and never before",
		applies: func(e exchange, a answer) bool {
			return a.err == nil && a.response.GetOverallCode() == rls.RateLimitResponse_OK && !e.variant.shadow &&
				allQuotasOver(e, a.response)
		},
		expected: func(_ exchange, a answer) answer {
			a.response.OverallCode = rls.RateLimitResponse_OVER_LIMIT
			return a
		},
	},
}

// noConfiguration is what the reference says without one.
const noConfiguration = "no rate limit configuration loaded"

func refused(code codes.Code) func(exchange, answer) answer {
	return func(exchange, answer) answer { return answer{err: status.Error(code, "")} }
}

// violations are the indexes of the descriptors whose quota is over.
func violations(response *rls.RateLimitResponse) (indexes []int) {
	for _, value := range response.GetDynamicMetadata().GetFields()["quotaModeViolations"].GetListValue().GetValues() {
		indexes = append(indexes, int(value.GetNumberValue()))
	}
	return indexes
}

// allQuotasOver says whether there are quotas, and all of them are over. With QUOTA_MODE every descriptor is one, even
// if it has no limit.
func allQuotasOver(e exchange, response *rls.RateLimitResponse) bool {
	over, found := violations(response), false
	for i, status := range response.GetStatuses() {
		if !e.variant.quota && !slices.Contains(quotaNames, status.GetCurrentLimit().GetName()) {
			continue
		}
		found = true
		if !slices.Contains(over, i) {
			return false
		}
	}
	return found
}

// expect returns what the subject is to answer if the reference gives an answer, and the names of the differences
// between the two.
func (e exchange) expect(reference answer) (want answer, names []string) {
	want = answer{proto.CloneOf(reference.response), reference.err}
	for _, d := range differences {
		if d.applies(e, want) {
			want, names = d.expected(e, want), append(names, d.name)
		}
	}
	return want, names
}

// describe lists the differences of some names, with their reasons.
func describe(names []string) string {
	text := &strings.Builder{}
	for _, d := range differences {
		if slices.Contains(names, d.name) {
			text.WriteString("\nmeant: " + d.name + ": " + d.reason)
		}
	}
	return text.String()
}
