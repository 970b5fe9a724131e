package grpclimit

import (
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// maxPause is how long a server is believed at most.
	maxPause = 24 * time.Hour
	// maxPauses bounds how many keys pause at a time; of more nothing is noted.
	maxPauses = 10_000
)

// pauses holds until when servers asked not to be called, by key. The zero value is
// ready. It is safe for concurrent use.
type pauses struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// left is how long the key's pause still lasts, 0 when there is none.
func (p *pauses) left(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	until, pausing := p.until[key]
	if !pausing {
		return 0
	}
	left := time.Until(until)
	if left <= 0 {
		delete(p.until, key)
	}
	return max(left, 0)
}

// add makes the key pause so long from now on. A pause that lasts longer stays.
func (p *pauses) add(key string, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if len(p.until) >= maxPauses {
		for key, until := range p.until {
			if !until.After(now) {
				delete(p.until, key)
			}
		}
	}
	until, pausing := p.until[key]
	if !pausing && len(p.until) >= maxPauses {
		return
	}
	if p.until == nil {
		p.until = make(map[string]time.Time)
	}
	if end := now.Add(min(pause, maxPause)); end.After(until) {
		p.until[key] = end
	}
}

// heed notes what the server asked for, if it did: a call that was refused with
// RESOURCE_EXHAUSTED or UNAVAILABLE and RetryInfo.
func (c *Client) heed(key string, err error) (wait time.Duration, asked bool) {
	refused, ok := status.FromError(err)
	if err == nil || !ok || refused.Code() != codes.ResourceExhausted && refused.Code() != codes.Unavailable {
		return 0, false
	}
	for _, detail := range refused.Details() {
		if retry, ok := detail.(*errdetails.RetryInfo); ok && retry.GetRetryDelay().IsValid() {
			wait = max(wait, retry.GetRetryDelay().AsDuration())
			asked = true
		}
	}
	if wait > 0 {
		c.pauses.add(key, wait)
	}
	return wait, asked
}

// asked is the error of a call that would leave while its key pauses.
func asked(left time.Duration) error {
	refused := status.New(codes.ResourceExhausted, "the server asked to be called later")
	if detailed, err := refused.WithDetails(retryInfo(left)); err == nil { // a duration can always be written
		refused = detailed
	}
	return refused.Err()
}

// heldTooLong is the error of a call that rules would hold longer than it waits.
func heldTooLong(most time.Duration) error {
	return status.Errorf(codes.ResourceExhausted, "rules would hold the call longer than it waits, %s", most)
}
