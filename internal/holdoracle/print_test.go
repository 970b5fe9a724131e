package holdoracle_test

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/holdoracle"
)

func readable(op stint.Op) string {
	var b strings.Builder
	fmt.Fprint(&b, op.Verb)
	for i, c := range append([]stint.Claim{op.Claim}, op.And...) {
		switch {
		case c.Way != stint.Must:
			fmt.Fprintf(&b, " %v", c.Way)
		case i > 0:
			b.WriteString(" and")
		}
		fmt.Fprintf(&b, " %d of %s", c.Permits, c.Key)
		if c.Keep != 0 {
			fmt.Fprintf(&b, " keeping %d", c.Keep)
		}
		fmt.Fprintf(&b, " by %s[", c.Policy.Name())
		for i, l := range c.Policy.Limits() {
			if i > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%v %d", l.Algorithm, l.Capacity)
			if l.IsBucket() {
				fmt.Fprintf(&b, " at %v", l.Rate)
			} else if l.Window > 0 {
				fmt.Fprintf(&b, " in %v", l.Window)
			}
			if l.MinInterval > 0 {
				fmt.Fprintf(&b, " apart %v", l.MinInterval)
			}
			if l.MaxDebt != 0 {
				fmt.Fprintf(&b, " debt %d", l.MaxDebt)
			}
			if l.Cost != 0 {
				fmt.Fprintf(&b, " cost %d", l.Cost)
			}
		}
		b.WriteString("]")
	}
	if h := op.Hold; h != nil {
		fmt.Fprintf(&b, " as %s ttl %v", h.ID, h.TTL)
		if h.Keep {
			b.WriteString(" keep")
		}
		if h.ExpiresAt != 0 {
			fmt.Fprintf(&b, " until %.6f", float64(h.ExpiresAt-dawn)/1e6)
		}
	}
	return b.String()
}

func answer(a holdoracle.Answer) string {
	if a.Err != nil {
		return "-> " + a.Err.Error()
	}
	var b strings.Builder
	b.WriteString("-> ")
	if h := a.Hold; h != (stint.HoldOp{}) {
		fmt.Fprintf(&b, "%s ", said(h))
	}
	for _, e := range a.Each {
		b.WriteString(outcome(e))
	}
	return b.String()
}

func said(h stint.HoldOp) string {
	var b strings.Builder
	if h.ExpiresAt != 0 {
		fmt.Fprintf(&b, "until %.6f ", float64(h.ExpiresAt-dawn)/1e6)
	}
	for word, is := range map[string]bool{
		"replayed": h.Replayed, "lost": h.Lost, "late": h.Late, "reset": h.Reset, "full": h.Full,
	} {
		if is {
			b.WriteString(word + " ")
		}
	}
	return b.String()
}

// fields are a decision's, all of them.
func fields(d stint.Decision) string {
	type bare stint.Decision
	return fmt.Sprintf("%+v", bare(d))
}

func outcome(e stint.Outcome) string {
	word := "denied"
	if e.Allowed {
		word = "ok"
	}
	text := fmt.Sprintf("[%s, %d left, reset after %v", word, e.Remaining, e.ResetAfter)
	if e.RetryAfter == stint.Never {
		text += ", never"
	} else if e.RetryAfter != 0 {
		text += fmt.Sprintf(", retry after %v", e.RetryAfter)
	}
	if e.Delay != 0 {
		text += fmt.Sprintf(", delay %v", e.Delay)
	}
	if e.Applied != 0 {
		text += fmt.Sprintf(", applied %d", e.Applied)
	}
	return text + "]"
}
