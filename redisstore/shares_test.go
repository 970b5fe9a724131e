package redisstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/storetest"
)

// shareModel is a limit's one state, driven one operation after another.
type shareModel struct {
	algorithm.Machine
	state algorithm.State
}

func newShareModel(limit stint.Limit) *shareModel {
	return &shareModel{Machine: algorithm.NewMachine(limit)}
}

func (m *shareModel) carryOut(s redisstore.InternalOp, now stint.Instant) (out stint.Outcome, more int64) {
	if s.Op.Verb == redisstore.ReturnLease {
		m.ReturnLease(&m.state, now, s.Op.Permits, s.TakenAt)
		return stint.Outcome{Allowed: true}, 0
	}
	m.Apply(algorithm.ActionOf(s.Op.Verb), &m.state, now, s.Op.Permits, s.Op.Keep, &out)
	return out, m.Admit(&m.state, now, 1, 0, s.Bulk)
}

// Shares are taken and lapse in the server as the algorithms in Go say, whichever part
// of the script carries them out.
func TestSharesAgree(t *testing.T) {
	const batches = 400
	for name, limit := range map[string]stint.Limit{
		"bucket":        stint.TokenBucket(50, stint.Per(7, 300*time.Millisecond)),
		"fast bucket":   stint.TokenBucket(1_000_000, stint.Per(bounds.MaxPermits, time.Second)),
		"slow bucket":   stint.TokenBucket(1_000_000, stint.PerDay(1000)),
		"window":        stint.FixedWindow(50, time.Second),
		"calendar":      stint.CalendarWindow(50, stint.CalendarMinute, ""),
		"large windows": stint.FixedWindow(bounds.MaxPermits, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(9, 9))
			clock := storetest.NewClock(dawn)
			store := newStore(t, redisstore.Options{Now: clock.Now})
			policy := policyOf(t, "", limit)
			model := newShareModel(limit)
			unit := max(1, limit.Capacity/50)
			var out []redisstore.InternalOp // lapses of what is leased
			gaveBack := 0
			for range batches {
				clock.Advance(time.Duration(rng.Int64N(60_000_000) >> rng.IntN(26)).Truncate(time.Microsecond))
				now := clock.Instant()
				var sendings []redisstore.InternalOp
				for range 1 + rng.IntN(4) {
					s := redisstore.InternalOp{Op: op(stint.VerbTake, "k", policy, 1)}
					switch pick := rng.IntN(10); {
					case pick < 4:
						s.Bulk = unit * (1 + rng.Int64N(20))
					case pick < 7 && len(out) > 0:
						i := rng.IntN(len(out))
						s, out[i] = out[i], out[len(out)-1]
						out = out[:len(out)-1]
					case pick == 7:
						s.Op.Verb, s.Op.Permits = stint.VerbSettle, unit*(1-2*rng.Int64N(2))
					default:
						s.Op.Permits = unit * (1 + rng.Int64N(5))
					}
					sendings = append(sendings, s)
				}
				sendings = append(sendings, redisstore.InternalOp{Op: op(stint.VerbPeek, "k", policy, 1)})
				for i, got := range store.DecideInOneBatch(t, sendings...) {
					s := sendings[i]
					before := model.state.Numbers
					want, more := model.carryOut(s, now)
					if s.Op.Verb == redisstore.ReturnLease {
						if model.state.Numbers != before {
							gaveBack++
						}
						continue
					}
					if d := got.Decision; d.Allowed != want.Allowed || d.Remaining != want.Remaining || d.RetryAfter != want.RetryAfter || got.BulkAdmitted != more {
						t.Fatalf("%s %d and %d more at %d: %+v, want %+v and %d", s.Op.Verb, s.Op.Permits, s.Bulk, now, got, want, more)
					}
					if more > 0 {
						out = append(out, redisstore.InternalOp{Op: op(redisstore.ReturnLease, "k", policy, more), TakenAt: now})
					}
				}
			}
			// What the server has stored is what the model has.
			want, _ := model.carryOut(redisstore.InternalOp{Op: op(stint.VerbPeek, "k", policy, 1)}, clock.Instant())
			checkLeft(t, store, "k", policy, want.Remaining, "at the end")
			if gaveBack == 0 {
				t.Error("nothing was given back")
			}
		})
	}
}
