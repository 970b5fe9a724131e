package holdoracle_test

import "flag"

// A difference from the model that is known, and tolerated.
type difference string

const (
	// Of Redis: after a step back of the clock to before the expiry of a hold, which a write has noticed, the hold is
	// taken for one that was reset.
	expiredThenBack difference = "expired-then-clock-back"
	// Of Redis: a peek of several claims in a batch may read what operations behind it in the batch have left.
	batchPeek difference = "batch-peek-reads-later"
	// A commit that reads a token bucket by a smaller capacity than is held says more in Applied than comes back.
	bucketShrunkApplied difference = "bucket-shrunk-applied"
	// RetryAfter of a sliding counter that another window wrote, while permits are held.
	counterWindowRetry difference = "counter-window-retry"
)

var strict = flag.String("strict", "", "a known difference that is not tolerated, or all")

func tolerated(d difference) bool { return *strict != "all" && *strict != string(d) }
