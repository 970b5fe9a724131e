package rules

import (
	"fmt"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// A Block is a pause after too many denials: once a client was denied After times within For, the first of these
// included, the rule denies it until For has passed since the first. Counted is each request of the client that the
// rule holds for, and that any rule's limits deny; what is banned, or lacks something, is not. Overrides have none.
// The zero value blocks nobody.
type Block struct {
	// After is how many denials block a client: 1 to 1,000,000,000. 1 is a time-out from the first denial on.
	After int64 `doc:"after" is:"integer 1 1000000000"`
	// For is how long after the first of them the client may come again: 1ms to 366d.
	For time.Duration `doc:"for" is:"duration 1ms 366d"`
}

// blockName is the name of the limit that a block is.
const blockName = "block"

// limit is the block as a limit.
func (b *Block) limit() stint.Limit {
	return stint.FixedWindow(b.After, b.For).FromFirst().OfDenials().Named(blockName)
}

// addBlock adds the rule's block to its own terms, as the last group. The policy that older terms have of the same
// limit is kept.
func (c *compiled) addBlock(old *terms) error {
	if c.Block == (Block{}) {
		return nil
	}
	var was *stint.Policy
	if n := len(old.groups) - 1; n >= 0 && old.groups[n].blocks {
		was = old.groups[n].policy
	}
	policy, err := c.policyOf(c.Block.limit(), was)
	c.own.groups = append(c.own.groups, group{policy: policy, cost: Cost{Permits: 1}, blocks: true})
	return err
}

// validateBlock reports what is wrong with the block, and what it can't stand beside.
func (r *Rule) validateBlock(f *faults) {
	if b := r.Block; b != (Block{}) {
		if b.After < 1 || b.After > bounds.MaxPermits {
			f.invalid("block.after", b.After, fmt.Sprintf("1 to %d denials", bounds.MaxPermits))
		}
		if b.For < bounds.MinPeriod || b.For > bounds.MaxPeriod || b.For%time.Microsecond != 0 {
			f.invalid("block.for", b.For, "1ms to 366d in whole microseconds")
		}
		for _, beside := range []struct {
			is    bool
			param string
			why   string
		}{
			{r.Unlimited, "unlimited", "which denies nothing"},
			{r.Banned, "banned", "which denies everything"},
			{r.Within != "", "within", "whose clients have limits of several rules"},
			{r.Otherwise != "", "otherwise", "whose clients have limits of several rules"},
			{r.OnExceed == Mark, "on_exceed: mark", "which denies nothing"},
			{r.reserved(r.Limits), "reserve or a concurrency limit", "as a reserve that is denied writes nothing"},
		} {
			if beside.is {
				f.invalid("block", plain("given"), fmt.Sprintf("none in a rule with %s, %s", beside.param, beside.why))
			}
		}
		for i, l := range r.Limits {
			at := fmt.Sprintf("limits[%d]", i)
			if l.Lease != 0 {
				f.invalid(at+".lease", l.Lease, "none in a rule with block, which has to see each denial")
			}
		}
	}
	r.eachLimit(func(at limitPlace, l *stint.Limit) {
		if r.Block != (Block{}) && l.Algorithm == stint.AlgorithmFixedWindow && l.Name == blockName {
			f.invalid(at.String()+".name", l.Name, "another name in a rule with block, whose own it is")
		}
		if l.Denials {
			f.invalid(at.String()+".Denials", true, "false, and the rule's Block in its place")
		}
	})
}
