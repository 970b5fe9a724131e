package simulate

import (
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/rules"
)

// An Event is one request.
type Event struct {
	// Time is when it came. Events are in order of time; one that is earlier than the one before counts as of the same
	// time.
	Time stint.Instant
	// Whole says that Time is known to the second only. [Order] spreads such events within their
	// second.
	Whole bool
	// Status is how the log says it was answered, 0 if it does not.
	Status int
	// Line is its line in the input, from 1; of a pattern its number.
	Line int64
	// Hold says that the request holds what it takes until it ends. Default: nil, it takes.
	Hold *Hold
	// Request is what rules know of it. The attribute [CostAttribute] is what it takes of limits that were given
	// without rules; it takes 1 without.
	Request rules.Request
}

// A Hold says for how long a request holds its permits, from its time on. Its client renews it, so that
// it never expires.
type Hold struct {
	// For is how long, 0 or more.
	For time.Duration
	// Actual is what the request cost in the end: of the limits whose cost a request may name, or of all if
	// there are none. Below 0 it is what was held.
	Actual int64
}

// CostAttribute is the attribute by which the rules of [LimitRule] are paid.
const CostAttribute = "cost"

// LimitRule is a rule for limits that were given without one: they hold for every request, and count each client
// address, which is also what the key of an input stands for.
func LimitRule(id string, limits ...stint.Limit) rules.Rule {
	return rules.Rule{
		ID:      id,
		Scope:   []string{rules.PerIP},
		Missing: rules.MissingDeny,
		Cost:    rules.Cost{Attribute: CostAttribute},
		Limits:  limits,
	}
}

// A Candidate is one set of rules, to be compared with others.
type Candidate struct {
	// Name is what the report calls it. It has no default.
	Name string
	// Set are the rules. It must not be nil, unless Logged.
	Set *rules.Set
	// Logged says that no rules decide but the log: what it says was answered with 429 is denied, and all
	// else is admitted. Default: false.
	Logged bool
}

// A Config says what is simulated.
type Config struct {
	// Candidates decide all events, each by itself. At least one.
	Candidates []Candidate
	// MaxClients bounds the clients of each rule, and of each client of it with limits of its own, in each candidate. Past
	// it the clients of every other hash are left out, again and again, and the report says so. Default: 0, which is
	// 10,000,000.
	MaxClients int
	// MaxMemory bounds, in bytes, what the tables of all candidates take. Past it, clients are left
	// out as past MaxClients, and peaks are those of a part of a limit's span; what does not fit even
	// then is an error that wraps stint.ErrInvalid. What logs of single clients and waiting requests
	// take is not counted. Default: 0, no bound.
	MaxMemory int64
	// Proceed, if not nil, is asked for each block of some events, and by Finish. Its error ends the simulation. Default:
	// nil.
	Proceed func() error
	// DenyByDefault denies requests for which no rule holds. Default: false.
	DenyByDefault bool
	// NoHolds says that nobody knows for how long requests hold. Rules with a concurrency limit hold for
	// none of them then, as for evaluate. Default: false, such a rule and a request without a Hold are an
	// error.
	NoHolds bool
	// By is an attribute, by whose values requests are counted, too. Default: "", none.
	By string
	// Decided, if not nil, is called for each event and candidate once it is decided: in the order of
	// events, except those that wait, which come later. The verdict must not be kept. An error ends
	// the simulation.
	Decided func(*Verdict) error
}

const defaultMaxClients = 10_000_000

// A Verdict is what a candidate made of an event.
type Verdict struct {
	// Candidate is its name.
	Candidate string
	// Line and Time are the event's.
	Line int64
	Time stint.Instant
	// Allowed says whether the request is admitted.
	Allowed bool
	// Reason is why it is denied: a reason of the service's, logged, or invalid, for a request that the
	// service answers with 400.
	Reason string
	// Rule is the ID of the rule that decided, "" if none did.
	Rule string
	// Key is the client that this rule counted, "" if no limit was asked.
	Key string
	// Permits is what the request takes of the deciding limit.
	Permits int64
	// Decision is that of the rules' limits. Its Index counts the limits of all rules that decided, in
	// order.
	Decision stint.Decision
	// Waited is how long rules held the request.
	Waited time.Duration
	// Shadowed are the IDs of rules in shadow that would have denied.
	Shadowed []string
	// Exceeded are the IDs of rules that mark the request.
	Exceeded []string
}

func algorithmName(a stint.Algorithm) string { return strings.ToLower(a.String()) }

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Budget is a limit of each algorithm for so many permits in a length of time, written as 100/1m: buckets hold the
// permits, and let as many through in that time.
func Budget(text string) ([]stint.Limit, error) {
	rate, err := notation.ParseRate(text)
	if err != nil {
		return nil, err
	}
	limits := []stint.Limit{
		stint.TokenBucket(rate.Permits, rate), stint.LeakyBucket(rate.Permits, rate),
		stint.FixedWindow(rate.Permits, rate.Period), stint.SlidingWindowLog(rate.Permits, rate.Period),
		stint.SlidingWindowCounter(rate.Permits, rate.Period),
	}
	for _, l := range limits {
		if err := l.Validate(); err != nil {
			return nil, err
		}
	}
	return limits, nil
}
