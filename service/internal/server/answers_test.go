package server_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server"
)

// Answers are counted by listener, route and status, whoever gives them, and whatever paths clients make up.
func TestAnswersAreCounted(t *testing.T) {
	type own struct{}
	d := newAdminFixture(t, rulestore.NewMemory(), func(c *server.Config) {
		c.GRPCListen = "127.0.0.1:0"
		c.Middleware = func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), own{}, strings.TrimPrefix(r.URL.Path, "/spans/"))))
			})
		}
		c.Trace = func(ctx context.Context) string {
			if id, _ := ctx.Value(own{}).(string); id == "ours" {
				return id
			}
			return ""
		}
	})
	d.load()
	traced := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, path := range []string{check + "?key=a", check + "?key=a", check + "?key=", "/made/up", "/spans/ours"} {
		r := d.request(http.MethodGet, d.server.Addr().String(), path)
		r.Header.Set("Traceparent", traced)
		d.send(r)
	}
	for _, path := range []string{"/api/v1/rules", "/api/v1/rules/nobody", "/api/v1/rules/somebody", "/nothing"} {
		d.send(d.request(http.MethodGet, d.server.AdminAddr().String(), path))
	}
	conn := d.dial()
	_, _ = rate(t.Context(), conn, "v")
	_, _ = pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &pb.RateLimitRequest{})
	families := must.Get(d.server.Gatherer().Gather())(t)
	var got, exemplars []string
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			switch family.GetName() {
			case "rate_limiter_answers_total":
				got = append(got, strings.Join(labels, " ")+" "+strings.Repeat("I", int(m.GetCounter().GetValue())))
			case "rate_limiter_answer_seconds":
				for _, b := range m.GetHistogram().GetBucket() {
					if b.GetExemplar() != nil {
						exemplars = append(exemplars, labels[0]+" "+labels[2]+" "+b.GetExemplar().GetLabel()[0].GetValue())
					}
				}
			}
		}
	}
	want := []string{
		check + " http 200 II", check + " http 400 I",
		shouldRateLimit + " grpc InvalidArgument I", shouldRateLimit + " grpc OK I", "GET /api/v1/rules admin 200 I",
		"GET /api/v1/rules/{rule} admin 404 II",
		"other admin 404 I", "other http 404 II",
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers\n%q\nwant\n%q", got, want)
	}
	for _, want := range []string{check + " 200 " + traced[3:35], check + " 400 " + traced[3:35], "other 404 ours"} {
		if !slices.Contains(exemplars, want) { // of which bucket depends on how busy the machine is
			t.Errorf("exemplars %q, and none is %s", exemplars, want)
		}
	}
}
