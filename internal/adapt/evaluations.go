package adapt

import (
	"sync"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// Evaluations keep evaluations to be used again, which saves their allocations. The zero value is
// ready to use, and safe for concurrent use. An evaluation of an error should not be put back, as
// the store may still write to it.
type Evaluations struct{ pool sync.Pool }

// Get returns an evaluation with an empty request. Its verdict is that of another request until it
// is decided.
func (p *Evaluations) Get() *enforce.Evaluation {
	if e, ok := p.pool.Get().(*enforce.Evaluation); ok {
		return e
	}
	return new(enforce.Evaluation)
}

// Put forgets the request. The evaluation must not be used afterwards.
//
// Those that grew large are left to the garbage collector.
func (p *Evaluations) Put(e *enforce.Evaluation) {
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
