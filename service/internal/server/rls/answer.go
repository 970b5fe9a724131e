package rls

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint"
)

// answer makes the response, and counts. The statuses are in the order of the request's
// descriptors, and lie in one block of memory, as do their durations. OVER_LIMIT of one that is in
// shadow, or of a service that is, changes its own code and not the whole.
func (d *decision) answer() *pb.RateLimitResponse {
	s := d.service
	response := &pb.RateLimitResponse{
		OverallCode: pb.RateLimitResponse_OK,
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, len(d.checks)),
	}
	made := make([]struct {
		status pb.RateLimitResponse_DescriptorStatus
		reset  durationpb.Duration
	}, len(d.checks))
	for i := range d.checks {
		k := &d.checks[i]
		m := &made[i]
		m.status.Code = pb.RateLimitResponse_OK
		response.Statuses[i] = &m.status
		if k.unlimited {
			m.status.LimitRemaining = math.MaxUint32
		}
		if k.limit == nil {
			continue
		}
		if d.denies(k) {
			m.status.Code = pb.RateLimitResponse_OVER_LIMIT
		}
		m.status.CurrentLimit = k.limit.current
		m.status.LimitRemaining = uint32(min(k.remaining, math.MaxUint32))
		m.reset.Seconds = seconds(k.until())
		m.status.DurationUntilReset = &m.reset
		if k.counters != nil && k.hits >= 0 && !d.commits(k) {
			k.counters.count(k, s.config.NearRatio)
		}
	}
	if d.exceeded() {
		response.OverallCode = pb.RateLimitResponse_OVER_LIMIT
		if s.config.Shadow {
			response.OverallCode = pb.RateLimitResponse_OK
			s.stats.globalShadow.Add(1)
		}
	}
	if s.config.Headers != (Headers{}) {
		response.ResponseHeadersToAdd = d.headers()
	}
	if s.config.Metadata {
		response.DynamicMetadata = d.metadata()
	}
	return response
}

// until is how long a client has to wait: of what is denied for its turn, else until the limit is
// as before. The reset of a window is what the client is told in any case; other algorithms can
// tell when the next request would be admitted. A place may be free at any time: a second is what
// Retry-After says, too.
func (k *check) until() time.Duration {
	switch {
	case !k.over || k.limit.window != nil || k.wait == stint.Never:
		return k.reset
	case k.limit.Algorithm == stint.AlgorithmConcurrency:
		return time.Second
	}
	return k.wait
}

// seconds are whole seconds, rounded up, so that nobody comes back too early.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// headers tell of the limit that is exceeded, the last of several, or else of the one with the
// least remaining. Limits without end say nothing and are passed over.
func (d *decision) headers() []*core.HeaderValue {
	var least *check
	over := false
	for i := range d.checks {
		k := &d.checks[i]
		if k.limit == nil || k.unlimited {
			continue
		}
		denies := d.denies(k)
		if denies || !over && k.remaining < math.MaxUint32 && (least == nil || k.remaining < least.remaining) {
			least, over = k, over || denies
		}
	}
	if least == nil {
		return nil
	}
	names := d.service.config.Headers
	var fields []*core.HeaderValue
	for _, f := range []struct {
		name string
		n    int64
	}{
		{names.Limit, int64(least.limit.RequestsPerUnit)},
		{names.Remaining, least.remaining},
		{names.Reset, seconds(least.until())},
	} {
		if f.name != "" {
			fields = append(fields, &core.HeaderValue{Key: f.name, Value: strconv.FormatInt(f.n, 10)})
		}
	}
	return fields
}

// metadata is the request, as the reference service hands it to Envoy, with the metadata of limits
// that were asked. The names of its fields, such as quotaModeViolations, are those of the reference
// service, by which access logs and filters may go; shadowModeViolations, the indexes of the
// descriptors that are over a limit in shadow mode, is our own.
func (d *decision) metadata() *structpb.Struct {
	text, number := structpb.NewStringValue, structpb.NewNumberValue
	r := d.request
	var descriptors, violations, shadowed []*structpb.Value
	merged := map[string]*structpb.Value{}
	quota := false
	for i, given := range r.Descriptors {
		k := &d.checks[i]
		descriptors = append(descriptors, structpb.NewStructValue(&structpb.Struct{Fields: describe(given)}))
		if k.limit == nil {
			continue
		}
		quota = quota || k.limit.quota
		switch {
		case k.over && k.limit.shadow:
			shadowed = append(shadowed, number(float64(i)))
		case k.over && d.quota(k):
			violations = append(violations, number(float64(i)))
		}
		if !k.over {
			for name, value := range k.limit.metadata {
				if merged[name] == nil { // of several limits the first counts
					merged[name] = value
				}
			}
		}
	}
	fields := map[string]*structpb.Value{
		"domain":           text(r.Domain),
		"descriptors":      structpb.NewListValue(&structpb.ListValue{Values: descriptors}),
		"quotaModeEnabled": structpb.NewBoolValue(quota),
	}
	if r.HitsAddend != 0 {
		fields["hitsAddend"] = number(float64(r.HitsAddend))
	}
	if len(violations) > 0 {
		fields["quotaModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: violations})
	}
	if len(shadowed) > 0 {
		fields["shadowModeViolations"] = structpb.NewListValue(&structpb.ListValue{Values: shadowed})
	}
	if len(merged) > 0 {
		fields["metadata"] = structpb.NewStructValue(&structpb.Struct{Fields: merged})
	}
	return &structpb.Struct{Fields: fields}
}

// describe is a descriptor as the reference service writes it: its entries as KEY=VALUE, and the
// limit and the addend that it brought along.
func describe(given *common.RateLimitDescriptor) map[string]*structpb.Value {
	entries := make([]*structpb.Value, len(given.Entries))
	for i, e := range given.Entries {
		entries[i] = structpb.NewStringValue(e.Key + "=" + e.Value)
	}
	fields := map[string]*structpb.Value{"entries": structpb.NewListValue(&structpb.ListValue{Values: entries})}
	if given.Limit != nil {
		fields["limit"] = structpb.NewStringValue(fmt.Sprint(given.Limit))
	}
	if given.HitsAddend != nil {
		fields["hitsAddend"] = structpb.NewNumberValue(float64(given.HitsAddend.Value))
	}
	return fields
}

// observe tells of the request, by the limit that decided it: the one with the longest wait if it
// is denied, else the one with the least remaining; and of each limit in shadow mode, which all are
// if the service is. The end of a stream (a commit) is told of by no event, as its start was.
func (d *decision) observe(ctx context.Context, start time.Time, code pb.RateLimitResponse_Code) {
	tell := d.service.config.Observe
	if tell == nil {
		return
	}
	var decider *check
	commits := false
	for i := range d.checks {
		k := &d.checks[i]
		commits = commits || d.commits(k)
		if k.limit == nil || d.inShadow(k) || d.commits(k) {
			continue
		}
		switch {
		case decider == nil || k.over && !decider.over, k.over == decider.over && k.over && k.wait > decider.wait,
			!k.over && !decider.over && k.remaining < decider.remaining:
			decider = k
		}
	}
	if decider == nil && commits {
		return // a stream that has ended is no request
	}
	e := &d.event
	*e = stint.Event{At: stint.Instant(start.UnixMicro())}
	e.Decision.Allowed = code == pb.RateLimitResponse_OK
	if decider != nil {
		d.describeEvent(e, decider, e.Decision.Allowed)
	}
	tell(ctx, e)
	for i := range d.checks {
		if k := &d.checks[i]; k.limit != nil && d.inShadow(k) && !d.commits(k) {
			*e = stint.Event{At: stint.Instant(start.UnixMicro()), Shadow: true}
			// A quota that is used up denies only a request that has no other one left.
			d.describeEvent(e, k, !k.over || !k.limit.shadow && d.quota(k) && !d.exceeded())
			tell(ctx, e)
		}
	}
}

// inShadow reports whether a check decides and denies nobody.
func (d *decision) inShadow(k *check) bool { return k.limit.shadow || d.service.config.Shadow }

// describeEvent fills in what a check decided.
func (d *decision) describeEvent(e *stint.Event, k *check, allowed bool) {
	e.Rule, e.Set = k.limit.rule, k.limit.domain
	e.Claim = stint.Claim{Key: k.key, Policy: k.limit.policy, Permits: max(k.hits, 1)}
	e.Decision = stint.Decision{
		Allowed: allowed, Degraded: k.degraded, Source: k.source, At: k.at,
		Limit: int64(k.limit.RequestsPerUnit), Remaining: k.remaining, ResetAfter: k.reset,
	}
	switch {
	case k.held:
		e.Verb = stint.VerbReserve
	case k.hits == 0:
		e.Verb = stint.VerbPeek
	case k.hits < 0:
		e.Verb = stint.VerbSettle
	}
	if !allowed {
		e.Decision.RetryAfter = k.wait
		e.Reason = stint.ReasonLimit
		if k.wait == stint.Never {
			e.Reason = stint.ReasonNever
		}
		if k.full {
			e.Reason = stint.ReasonHolds
		}
		if k.limit.RequestsPerUnit == 0 {
			e.Reason = stint.ReasonBanned
		}
	}
}

// joined is a list of texts in lines, of which a hundred are enough for a log.
func joined(texts []string) string {
	const most = 100
	text := ""
	for i, part := range texts {
		if i == most {
			return text + fmt.Sprintf("\nand %d more", len(texts)-most)
		}
		if i > 0 {
			text += "\n"
		}
		text += part
	}
	return text
}
