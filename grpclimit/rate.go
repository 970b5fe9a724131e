package grpclimit

import (
	"net/http"

	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/httplimit"
)

// names are the metadata that a call can carry.
var names = [...]string{"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "retry-after"}

// rate writes the metadata of decisions: the header fields that HTTP has for them.
type rate struct {
	headers *httplimit.Headers
	fields  [len(names)]string // names as HTTP spells them
}

func newRate(policy *stint.Policy) *rate {
	r := &rate{headers: httplimit.NewHeaders(policy, httplimit.XRateLimit|httplimit.RetryAfter)}
	for i, name := range names {
		r.fields[i] = http.CanonicalHeaderKey(name)
	}
	return r
}

// of is the metadata of a call, nil when there is nothing to say.
func (r *rate) of(c *call) metadata.MD {
	if r == nil || !c.decided || c.decision.Degraded {
		return nil
	}
	header := make(http.Header, len(names))
	r.headers.Write(header, c.decision, nil)
	md := make(metadata.MD, len(names))
	for i, name := range names {
		if values := header[r.fields[i]]; values != nil {
			md[name] = values
		}
	}
	return md
}
