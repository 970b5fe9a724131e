package session

import (
	"context"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
)

// A process knows the sessions that it ended while the store is unreachable, and forgets them when they have expired.
func TestEndedSessionsWithoutTheStore(t *testing.T) {
	e := must.Get(NewEnded(unreachable{memstore.New(memstore.Config{})}))(t)
	now := time.Unix(0, 0)
	e.now = func() time.Time { return now }
	e.End(t.Context(), "one")
	if !e.Has(t.Context(), "one") || e.Has(t.Context(), "two") {
		t.Error("the session that ended counts, or the other does not")
	}
	now = now.Add(Lifetime + time.Second)
	e.End(t.Context(), "two")
	if len(e.here) != 1 {
		t.Errorf("%d sessions are kept, want 1", len(e.here))
	}
}

// unreachable is a store that can't be asked.
type unreachable struct{ stint.Store }

func (unreachable) Decide(context.Context, stint.Op) (stint.Decision, error) {
	return stint.Decision{}, stint.ErrUnavailable
}
