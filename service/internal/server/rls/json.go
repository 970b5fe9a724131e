package rls

import (
	"net/http"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/stint-go/stint/service/internal/server/problem"
)

// ReadJSON reads a request by the rules of protobuf's JSON.
func ReadJSON(text []byte) (*pb.RateLimitRequest, error) {
	request := &pb.RateLimitRequest{}
	if err := protojson.Unmarshal(text, request); err != nil {
		return nil, problem.New(http.StatusBadRequest, "the body is no RateLimitRequest in JSON: %s",
			problem.Short(err.Error()))
	}
	return request, nil
}
