package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// An envoyFilter does with answers what Envoy's rate limit filter does.
type envoyFilter struct {
	client  pb.RateLimitServiceClient
	timeout time.Duration // Envoy's default is 20 ms
	deny    bool          // failure_mode_deny
}

// A stream is a request through the filter.
type stream struct {
	status int
	header http.Header
	failed error // of the service
}

func (s stream) String() string { return fmt.Sprintf("%d %v, %v", s.status, s.header, s.failed) }

// unitSeconds are the windows of x-ratelimit-limit.
var unitSeconds = map[pb.RateLimitResponse_RateLimit_Unit]int{
	pb.RateLimitResponse_RateLimit_SECOND: 1, pb.RateLimitResponse_RateLimit_MINUTE: 60, pb.RateLimitResponse_RateLimit_HOUR: 3600,
	pb.RateLimitResponse_RateLimit_DAY: 86400, pb.RateLimitResponse_RateLimit_WEEK: 604800, pb.RateLimitResponse_RateLimit_MONTH: 2592000, pb.RateLimitResponse_RateLimit_YEAR: 31536000,
}

// pass sends a request through the filter: the descriptors before it goes upstream, and those of done, if any, when its
// stream ends, denied or not, whose answer is ignored.
func (f *envoyFilter) pass(t testing.TB, before, done []*common.RateLimitDescriptor) stream {
	t.Helper()
	s := stream{status: http.StatusOK, header: http.Header{}}
	ctx, cancel := context.WithTimeout(t.Context(), f.timeout)
	response, err := f.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: before})
	cancel()
	switch {
	case err != nil:
		if s.failed = err; f.deny {
			s.status = http.StatusInternalServerError
		}
	case response.OverallCode == pb.RateLimitResponse_OVER_LIMIT:
		s.status = http.StatusTooManyRequests
		s.header.Set("x-envoy-ratelimited", "true")
		retry := int64(1)
		for _, d := range response.Statuses {
			if d.Code == pb.RateLimitResponse_OVER_LIMIT {
				retry = max(retry, d.DurationUntilReset.GetSeconds())
			}
		}
		s.header.Set("retry-after", fmt.Sprint(retry))
	}
	f.describe(response, s.header)
	if done != nil {
		ctx, cancel := context.WithTimeout(t.Context(), f.timeout)
		_, _ = f.client.ShouldRateLimit(ctx, &pb.RateLimitRequest{Domain: "d", Descriptors: done})
		cancel()
	}
	return s
}

// describe adds the x-ratelimit fields, of draft version 3, from the status with the least remaining, and those that the
// service asks for.
func (f *envoyFilter) describe(response *pb.RateLimitResponse, header http.Header) {
	var least *pb.RateLimitResponse_DescriptorStatus
	policies := ""
	for _, d := range response.GetStatuses() {
		limit := d.CurrentLimit
		if limit == nil {
			continue
		}
		if least == nil || d.LimitRemaining < least.LimitRemaining {
			least = d
		}
		policies += fmt.Sprintf(", %d;w=%d", limit.RequestsPerUnit, unitSeconds[limit.Unit])
		if limit.Name != "" {
			policies += fmt.Sprintf(";name=%q", limit.Name)
		}
	}
	if least != nil {
		header.Set("x-ratelimit-limit", fmt.Sprint(least.CurrentLimit.RequestsPerUnit)+policies)
		header.Set("x-ratelimit-remaining", fmt.Sprint(least.LimitRemaining))
		header.Set("x-ratelimit-reset", fmt.Sprint(least.DurationUntilReset.GetSeconds()))
	}
	for _, h := range response.GetResponseHeadersToAdd() {
		header.Add(h.Key, h.Value)
	}
}

// entry is a descriptor of one entry, with hits of its own unless they are below 0.
func entry(key string, hits int64) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: "v"}}}
	if hits >= 0 {
		d.HitsAddend = wrapperspb.UInt64(uint64(hits))
	}
	return d
}

// filtered is the filter before a service with limits that end in a year.
func filtered(t *testing.T, redis *testredis.Server) *envoyFilter {
	t.Helper()
	root := t.TempDir()
	const text = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: year, requests_per_unit: 2, name: few}}
  - {key: many, rate_limit: {unit: month, requests_per_unit: 10}}
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 100}}
`
	put(t, filepath.Join(root, "config", "d.yaml"), text)
	d := drop(t, map[string]string{"RUNTIME_ROOT": root, "REDIS_URL": redis.Addr(), "LIMIT_RESPONSE_HEADERS_ENABLED": "true", "REDIS_TIMEOUT": "10s"})
	return &envoyFilter{client: d.dial(nil), timeout: patience}
}

// What Envoy makes of answers is right: it admits, denies by 429 with the time to wait, and describes the limits.
func TestEnvoyDescribesLimits(t *testing.T) {
	t.Parallel()
	f := filtered(t, testredis.Start(t))
	both := []*common.RateLimitDescriptor{entry("many", -1), entry("few", -1), entry("none", -1)}
	const year, month = 365 * 86400, 30 * 86400
	ends := func(length int64) int64 { return length - time.Now().Unix()%length }
	for i, want := range []struct {
		status          int
		limit, left, of string
	}{
		{200, `2, 10;w=2592000, 2;w=31536000;name="few"`, "1", "2"},
		{200, `2, 10;w=2592000, 2;w=31536000;name="few"`, "0", "2"},
		{429, `2, 10;w=2592000, 2;w=31536000;name="few"`, "0", "2"},
	} {
		earliest := ends(year)
		s := f.pass(t, both, nil)
		if s.status != want.status || s.failed != nil {
			t.Fatalf("request %d: %v", i, s)
		}
		for name, text := range map[string]string{
			"x-ratelimit-limit": want.limit, "x-ratelimit-remaining": want.left, "RateLimit-Limit": want.of, "RateLimit-Remaining": want.left,
		} {
			if got := s.header.Get(name); got != text {
				t.Errorf("request %d: %s is %q, want %q", i, name, got, text)
			}
		}
		for _, name := range []string{"x-ratelimit-reset", "RateLimit-Reset", "retry-after"} {
			var seconds int64
			_, err := fmt.Sscan(s.header.Get(name), &seconds)
			if denied := s.status == 429; name == "retry-after" && !denied {
				if s.header.Get(name) != "" || s.header.Get("x-envoy-ratelimited") != "" {
					t.Errorf("request %d is admitted, and says %v", i, s.header)
				}
			} else if err != nil || seconds > earliest+1 || seconds < ends(year)-1 {
				t.Errorf("request %d: %s is %q, want %d", i, name, s.header.Get(name), earliest)
			}
		}
	}
	s := f.pass(t, []*common.RateLimitDescriptor{entry("none", -1)}, nil)
	if s.status != 200 || len(s.header) != 0 {
		t.Errorf("no limit holds, and Envoy says %v", s)
	}
	s = f.pass(t, []*common.RateLimitDescriptor{entry("many", -1)}, nil) // counted by each request, denied or not
	if got := s.header.Get("x-ratelimit-remaining"); got != "6" || s.header.Get("x-ratelimit-limit") != "10, 10;w=2592000" {
		t.Errorf("the other limit: %v", s.header)
	}
	var seconds int64
	if _, err := fmt.Sscan(s.header.Get("x-ratelimit-reset"), &seconds); err != nil || seconds > ends(month)+1 || seconds < ends(month)-1 {
		t.Errorf("a month ends in %d s, want %d", seconds, ends(month))
	}
}

// While Redis is down Envoy hears of an error, within its 20 ms or as UNAVAILABLE, and lets requests pass, or denies them
// if failure_mode_deny is set. Afterwards it is as before.
func TestEnvoyWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	f := filtered(t, redis)
	list := []*common.RateLimitDescriptor{entry("many", -1)}
	if s := f.pass(t, list, nil); s.status != 200 || s.failed != nil {
		t.Fatal(s)
	}
	must.Do(t, redis.Stop())
	f.timeout = 20 * time.Millisecond
	for deny, want := range map[bool]int{false: 200, true: 500} {
		f.deny = deny
		for range 20 {
			if s := f.pass(t, list, list); s.status != want || s.failed == nil || len(s.header) > 0 {
				t.Fatalf("failure_mode_deny %t: %v", deny, s)
			}
		}
	}
	f.timeout = patience
	eventually(t, "the service says that it can't decide", func() bool {
		s := f.pass(t, list, nil)
		return s.failed != nil && strings.Contains(s.failed.Error(), "Unavailable")
	})
	redis.Restart(t)
	eventually(t, "requests are decided again", func() bool {
		s := f.pass(t, list, nil)
		return s.status == 200 && s.failed == nil && s.header.Get("x-ratelimit-remaining") != ""
	})
}

// Hits that Envoy reports when a stream ends count, those of denied streams as well, beyond the limit, too.
func TestEnvoyReportsWhenStreamsEnd(t *testing.T) {
	t.Parallel()
	f := filtered(t, testredis.Start(t))
	look := []*common.RateLimitDescriptor{entry("tokens", 0)}
	for i, want := range []struct {
		hits   int64
		status int
		left   string
	}{
		{60, 200, "100"}, {0, 200, "40"}, {40, 200, "40"}, {30, 200, "0"}, {7, 429, "0"}, {0, 429, "0"},
	} {
		s := f.pass(t, look, []*common.RateLimitDescriptor{entry("tokens", want.hits)})
		if s.status != want.status || s.header.Get("x-ratelimit-remaining") != want.left {
			t.Errorf("stream %d: %v, want %d with %s left", i, s, want.status, want.left)
		}
	}
	d := entry("tokens", 37) // 137 were counted: without this 100 are
	d.IsNegativeHits = true
	if s := f.pass(t, []*common.RateLimitDescriptor{d}, nil); s.header.Get("x-ratelimit-remaining") != "0" {
		t.Errorf("after 37 were given back: %v", s.header)
	}
	if s := f.pass(t, look, nil); s.status != 200 {
		t.Errorf("at the limit a look is %v", s)
	}
}
