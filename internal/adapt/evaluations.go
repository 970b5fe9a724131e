package adapt

import (
	"net/http"
	"sync"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// An Evaluation is what the adapters of HTTP and of gRPC need while they decide one request.
type Evaluation struct {
	Request rules.Request
	Verdict enforce.Verdict
	// Header is an empty header that an adapter may fill for the request. It may be nil.
	Header http.Header

	each []stint.Outcome // of plain limits
}

// Evaluations keep evaluations to be used again, which saves their allocations. The zero value is
// ready to use, and safe for concurrent use. An evaluation of an error should not be put back, as
// the store may still write to it.
type Evaluations struct{ pool sync.Pool }

// Get returns an evaluation with an empty request. Its verdict is that of another request until it
// is decided.
func (p *Evaluations) Get() *Evaluation {
	if e, ok := p.pool.Get().(*Evaluation); ok {
		return e
	}
	return new(Evaluation)
}

// Put forgets the request. The evaluation must not be used afterwards.
//
// Those that grew large are left to the garbage collector.
func (p *Evaluations) Put(e *Evaluation) {
	const few = 256 // rules and fields whose memory is kept
	if len(e.Header)+len(e.Verdict.Matched) > few {
		return
	}
	e.Request = rules.Request{}
	if e.Header != nil {
		clear(e.Header)
	}
	p.pool.Put(e)
}
