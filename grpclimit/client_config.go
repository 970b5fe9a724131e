package grpclimit

import (
	"context"
	"errors"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/rules"
)

// DefaultMaxWait is how long a client's call waits at most when nothing else is
// said.
const DefaultMaxWait = time.Minute

// A TargetKeyFunc names what an outgoing call is charged to. target is that of the
// connection, as grpc.NewClient got it; fullMethod reads /package.Service/Method. It
// must be safe for concurrent use. Its errors are as those of a [KeyFunc].
type TargetKeyFunc func(ctx context.Context, target, fullMethod string) (string, error)

// A TargetDescribeFunc completes what rules know of an outgoing call. The description must not be
// kept. It must be safe for concurrent use.
type TargetDescribeFunc func(ctx context.Context, target, fullMethod string, r *rules.Request) error

// A ClientConfig says what a [Client] is made of.
type ClientConfig struct {
	// Limiter decides by plain limits when a call may leave. It must be nil when there are Rules,
	// and only then.
	Limiter *stint.Limiter
	// Rules decide in its place: all that match the call. They see the method POST, the full
	// method as the path, the target's endpoint as the host, the outgoing metadata as header,
	// and the attribute "target", which is the connection's; there is no client address. A call that they
	// deny fails at once, and waits only where a rule says so (rules.Wait). One that a leaky bucket
	// admits waits for its turn, whatever the rule says. Default: nil.
	Rules enforce.Decider
	// Describe completes what Rules know of a call, such as its user and further attributes. There is a
	// map of attributes, with "target", to which it may add; in one that it puts in its place "target" is
	// added where it is missing, to a copy. It must be nil without Rules. Its errors are as those of a KeyFunc. Default: nil.
	Describe TargetDescribeFunc
	// Key names what a call is charged to; what a server asks of one call its key's
	// other calls heed as well. With Rules it is for the latter alone. Default: nil, the
	// connection's target.
	Key TargetKeyFunc
	// Cost is what a call costs; a stream is charged where it starts, with no request.
	// A cost of 0 does not ask the limiter. It must be nil with Rules, which say what a call costs.
	// Default: nil, 1.
	Cost CostFunc
	// MaxWait bounds how long a call waits before it leaves, and before each time that
	// it leaves again. A call that would wait longer, or past its deadline, fails at
	// once with RESOURCE_EXHAUSTED. Default: 0, which is DefaultMaxWait.
	MaxWait time.Duration
	// Retries is how often a unary call is made again that the server refused with
	// RetryInfo. Each time is charged. Default: 0, none.
	Retries int
}

// Validate reports everything that is wrong with the configuration, joined; each
// fault is a [stint.InvalidError].
func (c ClientConfig) Validate() error {
	var faults []error
	switch {
	case c.Limiter == nil && c.Rules == nil:
		faults = append(faults, stint.Invalid("limiter", "nil", "a limiter made by stint.New or stint.NewLimiter, or rules"))
	case c.Limiter != nil && c.Rules != nil:
		faults = append(faults, stint.Invalid("rules", "set", "nil beside a limiter of plain limits"))
	}
	if c.Rules == nil && c.Describe != nil {
		faults = append(faults, stint.Invalid("describe", "set", "nil without rules"))
	}
	if c.Rules != nil && c.Cost != nil {
		faults = append(faults, stint.Invalid("cost", "set", "nil with rules, which say what a call costs"))
	}
	if c.MaxWait < 0 {
		faults = append(faults, stint.Invalid("max_wait", c.MaxWait, "0 or more"))
	}
	if c.Retries < 0 {
		faults = append(faults, stint.Invalid("retries", c.Retries, "0 or more"))
	}
	return errors.Join(faults...)
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.Key == nil {
		c.Key = func(_ context.Context, target, _ string) (string, error) { return target, nil }
	}
	if c.Cost == nil {
		c.Cost = costOfOne
	}
	if c.MaxWait == 0 {
		c.MaxWait = DefaultMaxWait
	}
	return c
}
