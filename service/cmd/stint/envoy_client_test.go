package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// unitSeconds are the windows of x-ratelimit-limit.
var unitSeconds = map[pb.RateLimitResponse_RateLimit_Unit]int{
	pb.RateLimitResponse_RateLimit_SECOND: 1, pb.RateLimitResponse_RateLimit_MINUTE: 60, pb.RateLimitResponse_RateLimit_HOUR: 3600,
	pb.RateLimitResponse_RateLimit_DAY: 86400, pb.RateLimitResponse_RateLimit_WEEK: 604800, pb.RateLimitResponse_RateLimit_MONTH: 2592000, pb.RateLimitResponse_RateLimit_YEAR: 31536000,
}

// pass is what Envoy's rate limit filter makes of a request: its status, and the fields that it adds.
func pass(t testing.TB, client pb.RateLimitServiceClient, keys ...string) (status int, header http.Header) {
	t.Helper()
	request := &pb.RateLimitRequest{Domain: "d"}
	for _, key := range keys {
		request.Descriptors = append(request.Descriptors, about("d", key, "v").Descriptors...)
	}
	response := must.Get(client.ShouldRateLimit(t.Context(), request))(t)
	status, header = http.StatusOK, http.Header{}
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		status = http.StatusTooManyRequests
		header.Set("x-envoy-ratelimited", "true")
		retry := int64(1)
		for _, d := range response.Statuses {
			if d.Code == pb.RateLimitResponse_OVER_LIMIT {
				retry = max(retry, d.DurationUntilReset.GetSeconds())
			}
		}
		header.Set("retry-after", fmt.Sprint(retry))
	}
	describe(response, header)
	return status, header
}

// describe adds the x-ratelimit fields, of draft version 3, from the status with the least remaining, and those that the
// service asks for.
func describe(response *pb.RateLimitResponse, header http.Header) {
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

// enveloped is a service with limits that end in a month or a year, as Envoy asks it.
func enveloped(t testing.TB, redis *testredis.Server) pb.RateLimitServiceClient {
	t.Helper()
	root := t.TempDir()
	const text = `
domain: d
descriptors:
  - {key: few, rate_limit: {unit: year, requests_per_unit: 2, name: few}}
  - {key: many, rate_limit: {unit: month, requests_per_unit: 10}}
`
	put(t, filepath.Join(root, "config", "d.yaml"), text)
	return drop(t, map[string]string{
		"RUNTIME_ROOT": root, "REDIS_URL": redis.Addr(), "LIMIT_RESPONSE_HEADERS_ENABLED": "true", "REDIS_TIMEOUT": "10s",
	}).dial(nil)
}

// What Envoy makes of answers is right: it admits, denies by 429 with the time to wait, and describes the limits.
func TestEnvoyDescribesLimits(t *testing.T) {
	t.Parallel()
	client := enveloped(t, testredis.Start(t))
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
		status, header := pass(t, client, "many", "few", "none")
		if status != want.status {
			t.Fatalf("request %d: %d %v", i, status, header)
		}
		for name, text := range map[string]string{
			"x-ratelimit-limit": want.limit, "x-ratelimit-remaining": want.left, "RateLimit-Limit": want.of, "RateLimit-Remaining": want.left,
		} {
			if got := header.Get(name); got != text {
				t.Errorf("request %d: %s is %q, want %q", i, name, got, text)
			}
		}
		for _, name := range []string{"x-ratelimit-reset", "RateLimit-Reset", "retry-after"} {
			var seconds int64
			_, err := fmt.Sscan(header.Get(name), &seconds)
			if denied := status == 429; name == "retry-after" && !denied {
				if header.Get(name) != "" || header.Get("x-envoy-ratelimited") != "" {
					t.Errorf("request %d is admitted, and says %v", i, header)
				}
			} else if err != nil || seconds > earliest+1 || seconds < ends(year)-1 {
				t.Errorf("request %d: %s is %q, want %d", i, name, header.Get(name), earliest)
			}
		}
	}
	if status, header := pass(t, client, "none"); status != 200 || len(header) != 0 {
		t.Errorf("no limit holds, and Envoy says %d %v", status, header)
	}
	_, header := pass(t, client, "many") // counted by each request, denied or not
	if got := header.Get("x-ratelimit-remaining"); got != "6" || header.Get("x-ratelimit-limit") != "10, 10;w=2592000" {
		t.Errorf("the other limit: %v", header)
	}
	var seconds int64
	must.Get(fmt.Sscan(header.Get("x-ratelimit-reset"), &seconds))(t)
	if seconds > ends(month)+1 || seconds < ends(month)-1 {
		t.Errorf("a month ends in %d s, want %d", seconds, ends(month))
	}
}

// While Redis is down Envoy hears that the service can't decide. After that it is as before.
func TestEnvoyWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := testredis.Start(t)
	client := enveloped(t, redis)
	decided := func() error {
		_, err := client.ShouldRateLimit(t.Context(), about("d", "many", "v"))
		return err
	}
	must.Do(t, decided())
	must.Do(t, redis.Stop())
	eventually(t, "it says that it can't decide", func() bool { return grpcstatus.Code(decided()) == codes.Unavailable })
	redis.Restart(t)
	eventually(t, "requests are decided again", func() bool { return decided() == nil })
}
