package grpclimit

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// counted is the status by which rules count a call of a code: what google/rpc/code.proto says that HTTP has for it.
var counted = [...]int{
	codes.OK: 200, codes.Canceled: 499, codes.Unknown: 500, codes.InvalidArgument: 400, codes.DeadlineExceeded: 504,
	codes.NotFound: 404, codes.AlreadyExists: 409, codes.PermissionDenied: 403, codes.ResourceExhausted: 429,
	codes.FailedPrecondition: 400, codes.Aborted: 409, codes.OutOfRange: 400, codes.Unimplemented: 501,
	codes.Internal: 500, codes.Unavailable: 503, codes.DataLoss: 500, codes.Unauthenticated: 401,
}

// codeOf is what a call ends with whose handler has returned an error, or none, as grpc-go has it.
func codeOf(err error) codes.Code {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return s.Code()
}

// answered says what a call has ended with, if that decides whether it is counted.
func (s *Server) answered(c *call, code codes.Code) {
	switch {
	case !c.cost.Counts():
	case s.config.Count != nil:
		c.cost.Answered(int(code))
	case int(code) < len(counted):
		c.cost.Answered(counted[code])
	default:
		c.cost.Answered(counted[codes.Unknown])
	}
}
