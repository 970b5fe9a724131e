package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/stint-go/stint"
)

func formatInstant(at stint.Instant) string {
	return at.Time().Format("2006-01-02T15:04:05.000000Z")
}

func formatWait(d time.Duration) string {
	if d == stint.Never {
		return "never"
	}
	return fmt.Sprintf("%s (%dus)", d, d.Microseconds())
}

// describeLimit writes a limit as Go code, without its name when that is empty.
func describeLimit(l stint.Limit) string {
	var b strings.Builder
	duration := stint.FormatDuration
	switch {
	case l.Algorithm == stint.AlgorithmTokenBucket:
		fmt.Fprintf(&b, "TokenBucket(%d, %s)", l.Capacity, l.Rate)
	case l.Algorithm == stint.AlgorithmLeakyBucket:
		fmt.Fprintf(&b, "LeakyBucket(%d, %s)", l.Capacity, l.Rate)
	case l.Calendar != stint.CalendarNone:
		fmt.Fprintf(&b, "CalendarWindow(%d, %s, %q)", l.Capacity, l.Calendar, l.TimeZone)
	case l.Algorithm == stint.AlgorithmFixedWindow:
		fmt.Fprintf(&b, "FixedWindow(%d, %s)", l.Capacity, duration(l.Window))
	case l.Algorithm == stint.AlgorithmSlidingWindowLog:
		fmt.Fprintf(&b, "SlidingWindowLog(%d, %s)", l.Capacity, duration(l.Window))
	default:
		fmt.Fprintf(&b, "SlidingWindowCounter(%d, %s)", l.Capacity, duration(l.Window))
	}
	if l.Name != "" {
		fmt.Fprintf(&b, ".Named(%q)", l.Name)
	}
	if l.MinInterval != 0 {
		fmt.Fprintf(&b, " min_interval %s", duration(l.MinInterval))
	}
	if l.CountDenied {
		b.WriteString(" count_denied")
	}
	if l.MaxDebt != 0 {
		fmt.Fprintf(&b, " max_debt %d", l.MaxDebt)
	}
	switch l.Lease {
	case 0:
	case stint.LeaseAuto:
		b.WriteString(" lease auto")
	default:
		fmt.Fprintf(&b, " lease %d", l.Lease)
	}
	return b.String()
}

func describePolicy(p *stint.Policy) string {
	limits := make([]string, p.Len())
	for i := range limits {
		limits[i] = describeLimit(p.Limit(i))
	}
	return fmt.Sprintf("%q[%s]", p.Name(), strings.Join(limits, ", "))
}

func describeOp(op stint.Op) string { return describeOpWith(op, describePolicy) }

// describeOpWith words an operation, with another way to name a policy.
func describeOpWith(op stint.Op, policy func(*stint.Policy) string) string {
	var b strings.Builder
	b.WriteString(op.Verb.String())
	for i := range 1 + len(op.And) {
		claim := op.Claim
		if i > 0 {
			claim = op.And[i-1]
			b.WriteString(" and")
		}
		if op.Verb != stint.Reset {
			fmt.Fprintf(&b, " %d", claim.Permits)
		}
		fmt.Fprintf(&b, " of key %q under %s", claim.Key, policy(claim.Policy))
	}
	return b.String()
}
