package running

import (
	"time"

	"github.com/stint-go/stint"
)

// soon is when a request may come again that only permits held by requests under way deny: most of them come back.
const soon = time.Second

// AwaitEnds corrects the waits of a claim's limits, by what list says that is held of them.
func AwaitEnds(claim *stint.Claim, outs []stint.Outcome, list func() ([]stint.Hold, error)) {
	var live []stint.Hold
	for i := range outs {
		o, limit := &outs[i], claim.Policy.Limit(i)
		// What a limit takes by a cost of its own it keeps; a wait for an interval is for no permits.
		if o.Allowed || o.RetryAfter <= soon || o.RetryAfter == stint.Never || limit.Cost > 0 ||
			limit.Algorithm == stint.AlgorithmConcurrency || o.Remaining >= claim.Permits {
			continue
		}
		if live == nil {
			var err error
			if live, err = list(); err != nil || len(live) == 0 {
				return
			}
		}
		left := o.Remaining
		for _, h := range live {
			left += h.Permits[i]
		}
		if left >= claim.Permits {
			o.RetryAfter = soon
		}
	}
}
