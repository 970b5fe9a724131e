package envoy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// slack is how much the clocks of two processes may seem to differ.
const slack = 20 * time.Millisecond

// An exchange is a request to both sides, between two times.
type exchange struct {
	variant       variant
	request       *rls.RateLimitRequest
	before, after time.Time
}

// seconds are the lengths of windows: by the reference, months have 30 days and years 365.
var seconds = map[rls.RateLimitResponse_RateLimit_Unit]int64{
	rls.RateLimitResponse_RateLimit_SECOND: 1,
	rls.RateLimitResponse_RateLimit_MINUTE: 60,
	rls.RateLimitResponse_RateLimit_HOUR:   60 * 60,
	rls.RateLimitResponse_RateLimit_DAY:    24 * 60 * 60,
	rls.RateLimitResponse_RateLimit_WEEK:   7 * 24 * 60 * 60,
	rls.RateLimitResponse_RateLimit_MONTH:  30 * 24 * 60 * 60,
	rls.RateLimitResponse_RateLimit_YEAR:   365 * 24 * 60 * 60,
}

// untilReset is how many seconds are left of a window.
func untilReset(unit rls.RateLimitResponse_RateLimit_Unit, now time.Time) int64 {
	return seconds[unit] - now.Unix()%seconds[unit]
}

// resets says whether so many seconds were left of a window at some time of the exchange.
func (e exchange) resets(unit rls.RateLimitResponse_RateLimit_Unit, left int64) bool {
	if seconds[unit] == 0 {
		return false
	}
	for at := e.before.Add(-slack).Unix(); at <= e.after.Add(slack).Unix(); at++ {
		if untilReset(unit, time.Unix(at, 0)) == left {
			return true
		}
	}
	return false
}

// straddles says whether a window of a unit ended during the exchange.
func (e exchange) straddles(unit time.Duration) bool {
	return e.before.Add(-slack).UnixNano()/int64(unit) != e.after.Add(slack).UnixNano()/int64(unit)
}

// compare lists the fields in which an answer differs from the wanted one, with both values.
func (e exchange) compare(want, got answer) (differences []string) {
	differ := func(field string, want, got any) {
		if wanted, given := fmt.Sprint(want), fmt.Sprint(got); wanted != given {
			differences = append(differences, fmt.Sprintf("%s: want %s, got %s", field, wanted, given))
		}
	}
	if want.err != nil || got.err != nil {
		differ("gRPC status", status.Code(want.err), status.Code(got.err))
		return differences
	}
	w, g := e.settle(want.response, got.response)
	if proto.Equal(w, g) {
		return nil
	}
	differ("overall_code", w.GetOverallCode(), g.GetOverallCode())
	differ("statuses", len(w.GetStatuses()), len(g.GetStatuses()))
	for i := range min(len(w.GetStatuses()), len(g.GetStatuses())) {
		field := fmt.Sprintf("statuses[%d].", i)
		w, g := w.GetStatuses()[i], g.GetStatuses()[i]
		differ(field+"code", w.GetCode(), g.GetCode())
		differ(field+"limit_remaining", w.GetLimitRemaining(), g.GetLimitRemaining())
		differ(field+"current_limit", text(w.GetCurrentLimit()), text(g.GetCurrentLimit()))
		differ(field+"duration_until_reset", text(w.GetDurationUntilReset()), text(g.GetDurationUntilReset()))
		differ(field+"quota", text(w.GetQuota()), text(g.GetQuota()))
	}
	differ("response_headers_to_add", headers(w), headers(g))
	differ("request_headers_to_add", len(w.GetRequestHeadersToAdd()), len(g.GetRequestHeadersToAdd()))
	differ("raw_body", w.GetRawBody(), g.GetRawBody())
	differ("dynamic_metadata", text(w.GetDynamicMetadata()), text(g.GetDynamicMetadata()))
	differ("quota", text(w.GetQuota()), text(g.GetQuota()))
	if len(differences) == 0 {
		differences = append(differences, "the message: fields that nobody knows")
	}
	return differences
}

// headers are those of the response, in order.
func headers(response *rls.RateLimitResponse) string {
	text := &strings.Builder{}
	for _, header := range response.GetResponseHeadersToAdd() {
		fmt.Fprintf(text, "[%s: %s%s]", header.GetKey(), header.GetValue(), header.GetRawValue())
	}
	return text.String()
}

// settle returns both responses without what may differ between them: the seconds until a window ends, if both are
// right about them, and the spaces in texts of messages, of which Go's library adds some at random.
func (e exchange) settle(want, got *rls.RateLimitResponse) (w, g *rls.RateLimitResponse) {
	w, g = proto.CloneOf(want), proto.CloneOf(got)
	for i := range min(len(w.GetStatuses()), len(g.GetStatuses())) {
		w, g := w.GetStatuses()[i], g.GetStatuses()[i]
		unit, wanted, given := w.GetCurrentLimit().GetUnit(), w.GetDurationUntilReset(), g.GetDurationUntilReset()
		if wanted != nil && given != nil && given.GetNanos() == 0 &&
			e.resets(unit, wanted.GetSeconds()) && e.resets(unit, given.GetSeconds()) {
			g.DurationUntilReset = wanted
		}
	}
	for i := range min(len(w.GetResponseHeadersToAdd()), len(g.GetResponseHeadersToAdd())) {
		wanted, given := w.GetResponseHeadersToAdd()[i], g.GetResponseHeadersToAdd()[i]
		if wanted.GetKey() == resetHeader && given.GetKey() == resetHeader &&
			e.reset(w, wanted.GetValue(), given.GetValue()) {
			given.Value = wanted.GetValue()
		}
	}
	squeeze(w.GetDynamicMetadata())
	squeeze(g.GetDynamicMetadata())
	dropShadowed(g)
	return w, g
}

// dropShadowed drops the list of descriptors that are over in shadow mode, which the reference does not have, if each of
// them is admitted and has nothing left.
func dropShadowed(r *rls.RateLimitResponse) {
	fields := r.GetDynamicMetadata().GetFields()
	for _, value := range fields["shadowModeViolations"].GetListValue().GetValues() {
		i := int(value.GetNumberValue())
		if i >= len(r.GetStatuses()) || r.GetStatuses()[i].GetCode() != rls.RateLimitResponse_OK ||
			r.GetStatuses()[i].GetLimitRemaining() > 0 {
			return
		}
	}
	delete(fields, "shadowModeViolations")
}

const resetHeader = "RateLimit-Reset"

// reset says whether both are the seconds until a window of the same limit ends.
func (e exchange) reset(response *rls.RateLimitResponse, wanted, given string) bool {
	w, err := strconv.ParseInt(wanted, 10, 64)
	g, err2 := strconv.ParseInt(given, 10, 64)
	if err != nil || err2 != nil || strconv.FormatInt(g, 10) != given {
		return false
	}
	for _, status := range response.GetStatuses() {
		unit := status.GetCurrentLimit().GetUnit()
		if e.resets(unit, w) && e.resets(unit, g) {
			return true
		}
	}
	return false
}

// squeeze makes the spaces of descriptors[].limit single ones.
func squeeze(metadata *structpb.Struct) {
	for _, one := range metadata.GetFields()["descriptors"].GetListValue().GetValues() {
		if limit, present := one.GetStructValue().GetFields()["limit"]; present {
			one.GetStructValue().Fields["limit"] = structpb.NewStringValue(
				strings.Join(strings.Fields(limit.GetStringValue()), " "))
		}
	}
}

// text is a message as JSON, "none" if there is none.
func text(message proto.Message) string {
	if !message.ProtoReflect().IsValid() {
		return "none"
	}
	compact := &bytes.Buffer{}
	// Go's library adds spaces at random here, too.
	if err := json.Compact(compact, []byte(protojson.Format(message))); err != nil {
		return err.Error()
	}
	return compact.String()
}

// show is an answer as a reader sees it.
func show(a answer) string {
	if a.err != nil {
		return a.err.Error()
	}
	return text(a.response)
}
