package rest

import (
	"context"
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	rpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// addRateLimit makes the rate limit service, if there is a listener for it. The store, the
// observers and the admission are the service's, so that one overload and one event serve all
// protocols.
func (s *Service) addRateLimit(registerer prometheus.Registerer) error {
	if s.config.GRPCListen == "" {
		return nil
	}
	c := s.config.Envoy
	made, err := rls.New(rls.Config{
		Accounting: domains.Accounting(c.Accounting), MergeDomains: c.Merge, Shadow: c.Shadow, Quota: c.Quota,
		KeepDenied: c.KeepDenied, Metadata: c.Metadata, NearRatio: float32(c.NearRatio) / 100,
		Headers: rls.Headers(c.Headers),
		Store:   s.config.Store, Logger: s.config.Logger, Observe: s.observe, Enter: s.enterRateLimit,
		Overloaded: func(err error) { s.noteOverload(listen.GRPC, err) },
	})
	if err != nil {
		return err
	}
	s.rateLimit = made
	return registerer.Register(made.Collector())
}

// RateLimit is Envoy's rate limit service, which is given its domains; nil without a gRPC listener.
func (s *Service) RateLimit() *rls.Service { return s.rateLimit }

// EnterRPC waits until the work of a request may begin, which is none of the rate limit service. A peer is an Envoy,
// with all of its clients: fairness is between proxies.
func (s *Service) EnterRPC(ctx context.Context, cost int64) (leave func(), err error) {
	work, err := s.admission.Enter(ctx, cost, s.peer(ctx))
	return work.Leave, err
}

// enterRateLimit is EnterRPC of the rate limit service, whose context says by what requests are decided (enterFor).
func (s *Service) enterRateLimit(ctx context.Context, cost int64) (context.Context, func(), error) {
	if ctx.Value(enteredKey{}) != nil {
		return ctx, func() {}, nil
	}
	entered, work, err := s.enterFor(ctx, cost, listen.GRPC, s.peer(ctx))
	if err != nil && ctx.Err() != nil {
		err = ctx.Err() // gRPC has codes of its own for it
	}
	return entered, work.Leave, err
}

// peer names the peer of a call of gRPC.
func (s *Service) peer(ctx context.Context) func() string {
	return func() string {
		if p, ok := rpcpeer.FromContext(ctx); ok {
			return s.clients.Key(p.Addr.String(), nil)
		}
		return ""
	}
}

// rateLimitEndpoints are those of the rate limit service over HTTP, as the reference service has
// them.
var rateLimitEndpoints = map[string]endpoint{
	"/json":        {[]string{"POST"}, (*Service).rateLimitJSON},
	"/healthcheck": {readMethods, (*Service).healthcheck},
}

// enteredKey is where a context says that the work of its request has begun.
type enteredKey struct{}

// jsonText is for how many bytes of other text one of a request in JSON counts. A descriptor has 25 or more, and is an
// operation.
const jsonText = 4

// rateLimitJSON is ShouldRateLimit with its messages as JSON.
func (s *Service) rateLimitJSON(w http.ResponseWriter, r *http.Request) error {
	if !s.config.OpenJSON {
		if err := s.authority.mayManage(r); err != nil {
			return err
		}
	}
	text, err := s.readText(w, r, min(s.config.HTTP.MaxBodyBytes, listen.MessageBytes))
	if err != nil {
		return err
	}
	defer text.Release()
	// What is parsed takes up to 50 times as much memory as its text, so that there is one turn for both, the parsing
	// and the decision, also where overload admits.
	work, err := s.turn(r.Context(), capacity.CostOf(1, jsonText*len(text.Text)), s.address(r))
	if err != nil {
		return err
	}
	defer work.Leave()
	request, err := rls.ReadJSON([]byte(text.Text))
	if err != nil {
		return err
	}
	response, err := s.rateLimit.ShouldRateLimit(context.WithValue(r.Context(), enteredKey{}, true), request)
	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return notedOverload{stint.ErrOverloaded}
	case err != nil:
		return problem.New(httpStatus(status.Code(err)), "%s", status.Convert(err).Message())
	}
	body, err := protojson.Marshal(response)
	if err != nil {
		return err
	}
	w.Header()["Content-Type"] = jsonType
	if response.OverallCode == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(body) // a client that is gone has no use for the error
	return nil
}

// httpStatus is the status of HTTP for an error of the rate limit service.
func httpStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument:
		return http.StatusBadRequest
	case codes.Internal:
		return http.StatusInternalServerError
	default:
		return http.StatusServiceUnavailable
	}
}

// healthcheck says OK while the service is ready.
func (s *Service) healthcheck(w http.ResponseWriter, r *http.Request) error {
	if !s.Ready(r.Context()) {
		return problem.New(http.StatusInternalServerError, "the service is not ready")
	}
	_, _ = w.Write([]byte("OK")) // a client that is gone has no use for the error
	return nil
}
