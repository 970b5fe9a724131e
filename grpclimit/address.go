package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/rules"
)

// address is the client's, as [Config.Clients] finds it. Metadata is read only behind a trusted peer, so that a
// client that is its own peer can't choose its name.
func (s *Server) address(ctx context.Context, e *adapt.Evaluation) string {
	from := "" // nothing is known of the peer
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from = p.Addr.String()
	}
	if len(e.Header) == 0 && s.clients.TrustsPeer(from) {
		md, _ := metadata.FromIncomingContext(ctx)
		fill(e, md)
	}
	return s.clients.Key(from, e.Header)
}

// describe is a call as rules see it, without its host and its caller.
func describe(e *adapt.Evaluation, method string, md metadata.MD) {
	fill(e, md)
	e.Request = rules.Request{Method: http.MethodPost, Path: method, Header: e.Header}
}

// fill makes metadata the header. It gets the names that HTTP has for it; what begins with a colon is no field.
func fill(e *adapt.Evaluation, md metadata.MD) {
	if e.Header == nil {
		e.Header = make(http.Header, len(md))
	}
	for name, values := range md {
		if !strings.HasPrefix(name, ":") {
			e.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
}
