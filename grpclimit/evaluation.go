package grpclimit

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// targetAttribute is the attribute of an outgoing call that tells the connection's target.
const targetAttribute = "target"

// An evaluation is what deciding one call by rules needs for a moment. The zero value is ready to
// use, and one that is used again saves its allocations.
type evaluation struct {
	request rules.Request
	verdict enforce.Verdict
	header  http.Header
}

// receive describes an incoming call, but for who makes it.
func (e *evaluation) receive(ctx context.Context, method string) {
	md, _ := metadata.FromIncomingContext(ctx)
	e.request = rules.Request{Method: http.MethodPost, Path: method, Header: e.headerOf(md)}
	if authority := md[":authority"]; len(authority) == 1 {
		e.request.Host = authority[0]
	}
}

// send describes an outgoing call, but for who makes it.
func (e *evaluation) send(ctx context.Context, out outgoing) {
	md, _ := metadata.FromOutgoingContext(ctx)
	e.request = rules.Request{
		Method: http.MethodPost, Path: out.method, Header: e.headerOf(md),
		Host:       out.target[strings.LastIndexByte(out.target, '/')+1:],
		Attributes: map[string]string{targetAttribute: out.target},
	}
}

// headerOf is metadata with the names that HTTP has for them. What begins with a colon is no field.
func (e *evaluation) headerOf(md metadata.MD) http.Header {
	if e.header == nil {
		e.header = make(http.Header, len(md))
	}
	for name, values := range md {
		if !strings.HasPrefix(name, ":") {
			e.header[http.CanonicalHeaderKey(name)] = values
		}
	}
	return e.header
}

// denial is the status of a denied call, nil for an admitted one.
func (e *evaluation) denial(ctx context.Context) error {
	v := &e.verdict
	switch {
	case v.Allowed:
		return nil
	case v.Claim.Policy == nil:
		return deniedBy(v)
	}
	denials, err := denialsOf(v.Claim.Policy)
	if err != nil {
		return failed(ctx, err)
	}
	return denials.of(v.Decision)
}

// few is how many rules and fields an evaluation may have met whose room is kept.
const few = 256

// evaluations keeps them to be used again. The zero value is ready.
type evaluations struct{ pool sync.Pool }

func (p *evaluations) get() *evaluation {
	if e, ok := p.pool.Get().(*evaluation); ok {
		return e
	}
	return new(evaluation)
}

// put forgets the call.
func (p *evaluations) put(e *evaluation) {
	keep := len(e.header)+len(e.verdict.Matched) <= few
	e.request = rules.Request{}
	clear(e.header)
	if keep {
		p.pool.Put(e)
	}
}
