package httplimit

import (
	"net/http"
	"sync"

	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// An evaluation is what deciding one request by rules needs for a moment. The zero value is
// ready to use, and one that is used again saves its allocations.
type evaluation struct {
	request     rules.Request
	verdict     enforce.Verdict
	undescribed bool // whether the program could not describe the request
}

// describe has the program complete the description, if it wants to.
func (e *evaluation) describe(complete func(*http.Request, *rules.Request) error, r *http.Request) error {
	if complete == nil {
		return nil
	}
	err := complete(r, &e.request)
	e.undescribed = err != nil
	return err
}

// fewRules is how many rules an evaluation may have met whose room is kept.
const fewRules = 256

// evaluations keeps them to be used again. The zero value is ready.
type evaluations struct{ pool sync.Pool }

func (p *evaluations) get() *evaluation {
	if e, ok := p.pool.Get().(*evaluation); ok {
		return e
	}
	return new(evaluation)
}

// put forgets the request.
func (p *evaluations) put(e *evaluation) {
	e.request, e.undescribed = rules.Request{}, false
	if len(e.verdict.Matched) <= fewRules {
		p.pool.Put(e)
	}
}
