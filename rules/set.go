// Package rules finds the limits that hold for a request: rules in, and for each
// request the keys, limits and costs that are decided together.
//
//	set, err := rules.Compile(list, rules.Options{})
//	...
//	set.Match(&rules.Request{Method: "GET", Path: "/api/users"}, &matches)
//	for i := range matches.Len() {
//		matched, err := matches.At(i)
//		...
//	}
//
// Every rule that matches a request holds for it; none hides another. Package enforce decides
// all of their limits in one step of a store: the request is admitted when all admit,
// and takes nothing when one does not. Rules in shadow are decided each by itself, and
// never deny.
//
// # Whom a rule counts
//
// A rule has a state for each client, and its scope says what a client is: everybody
// together, an address, a user, an API key, an attribute, or several of them at once. A
// request that lacks what the scope asks for is not counted with others that lack it, but
// is treated as the rule's [Missing] says. State belongs to the rule's ID and to the
// client: it survives every change of the rule but that of its ID, by the rules for a changed
// limit in docs/internals/semantics.md.
//
// # Which requests a rule matches
//
// A request's path has one canonical form, see [AppendPath]: every spelling of a path has the rules
// of that form. Programs differ in what they do with dots, encoded slashes, backslashes,
// runs of slashes (which may begin an authority) and #. So a path with any of these has several variants, 252 at most, and a rule holds if its
// pattern matches any of them: whichever variant a program uses, all rules of the route that it
// finds hold. A parameter's value comes from the first variant that matches, the canonical one
// first. [MaxOddPathBytes] and [MaxOddPathCuts] bound a path with several variants.
//
// The patterns are kept in a tree of the segments of hosts and paths: matching costs as much as the
// path is long, however many rules there are.
package rules

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// MaxRules bounds the rules of a set.
const MaxRules = 100_000

// Options say how a set is compiled. The zero value is a first set.
type Options struct {
	// Previous is the set that the new one takes the place of. What it prepared for limits
	// that stay as they are is kept. Default: nil, none.
	Previous *Set
	// StrictSlash tells /users from /users/. Default: false, a slash at the end of a
	// path does not matter.
	StrictSlash bool
	// IPv6Prefix is by how many bits of their address IPv6 clients are counted, 1 to 128, as
	// clientip.Config has it: overrides that name other networks would never apply, and are faults.
	// Default: 0, which is 64.
	IPv6Prefix int
}

// A Set is rules ready to be matched. It is immutable and safe for concurrent use; make it
// with [Compile]. The zero value has no rule.
type Set struct {
	rules  []*compiled // by rank
	byID   map[string]*compiled
	strict bool
	bits   int // by which IPv6 clients are counted

	hosts  map[string]*node // of a host's own rules
	below  map[string]*node // of the hosts below a name
	always *node            // of any host
}

// A compiled rule is a rule with what can be known before a request comes.
type compiled struct {
	Rule
	rank      int
	weight    int     // see mostLimits
	groups    []group // nil without limits
	paths     []pattern
	except    []pattern
	strict    bool // as the set
	taken     bool // whether an older set made it, which may be in force
	fields    []field
	scope     []part
	overrides map[string]*override // by the client, all with API keys hashed or none; nil: none
	hashed    bool                 // whether one of them names an API key by its hash
	networks  [2][]int             // see networksOf
}

type override struct {
	groups    []group
	unlimited bool
}

// A group is limits of one cost. All groups of a rule have the rule's policy name, so that a limit's state is the same in each.
type group struct {
	policy *stint.Policy
	cost   Cost
}

// named reports whether a request may name the cost.
func (g *group) named() bool { return g.cost.Header != "" || g.cost.Attribute != "" }

// countOf is how many limits there are.
func countOf(groups []group) (limits int) {
	for i := range groups {
		limits += groups[i].policy.Len()
	}
	return limits
}

// Compile checks rules and makes a set of them. Everything that is wrong is reported at once,
// joined; each is a [*Fault], except faults of all rules together. Rules of which one request may meet more than
// stint.MaxOpLimits limits are a fault as well.
func Compile(list []Rule, options Options) (*Set, error) {
	if len(list) > MaxRules {
		return nil, stint.Invalid("rules", len(list), fmt.Sprintf("at most %d rules", MaxRules))
	}
	bits := cmp.Or(options.IPv6Prefix, defaultIPv6Prefix)
	if bits < 1 || bits > 128 {
		return nil, stint.Invalid("IPv6Prefix", bits, "1 to 128")
	}
	var all []error
	first := make(map[string]int, len(list))
	for i := range list {
		f := faults{index: i, id: list[i].ID, bits: bits}
		if options.Previous.unchanged(&list[i], bits, options.StrictSlash) == nil {
			list[i].validate(&f)
		}
		if at, twice := first[list[i].ID]; twice && list[i].ID != "" {
			f.invalid("id", list[i].ID, fmt.Sprintf("an ID that no other rule has; rule %d has it", at))
		} else {
			first[list[i].ID] = i
		}
		all = append(all, f.all...)
	}
	if err := prefix.Join(all...); err != nil {
		return nil, err
	}
	s := &Set{byID: make(map[string]*compiled, len(list)), strict: options.StrictSlash, bits: bits}
	for i := range list {
		c := options.Previous.unchanged(&list[i], bits, options.StrictSlash)
		if c == nil {
			var err error
			if c, err = compile(&list[i], options); err != nil {
				return nil, err
			}
		}
		s.rules = append(s.rules, c)
		s.byID[c.ID] = c
	}
	slices.SortFunc(s.rules, func(a, b *compiled) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.ID, b.ID))
	})
	known := map[string]string{}
	segments := 0
	for i, c := range s.rules {
		c.rank = i
		if !c.Disabled {
			segments += s.plant(c, known)
		}
		if segments > maxPlanted {
			return nil, stint.Invalid("rules", plain(fmt.Sprintf("more than %d segments of paths, those of several hosts counted for each", maxPlanted)), "fewer")
		}
	}
	if err := s.exceeds(first); err != nil {
		return nil, err
	}
	return s, nil
}

// unchanged returns a copy of what the set made of the same rule, for another set to rank; nil if it has none. The set may be
// nil.
func (s *Set) unchanged(rule *Rule, bits int, strict bool) *compiled {
	if s == nil || s.bits != bits || s.strict != strict {
		return nil
	}
	old := s.byID[rule.ID]
	if old == nil || !old.Equal(rule) {
		return nil
	}
	c := *old
	c.taken = true
	return &c
}

// maxPlanted bounds what the trees have, as a rule has each of its paths in the tree of each of its hosts.
const maxPlanted = 1 << 22

// plant puts a rule where requests find it, and returns in how many segments. The text of a segment that many patterns
// have is kept once, in known.
func (s *Set) plant(c *compiled, known map[string]string) (segments int) {
	paths := c.paths
	if len(paths) == 0 {
		paths = []pattern{{rest: true}}
	}
	for _, p := range paths {
		for i := range p.segments {
			text := p.segments[i].literal
			switch _, ok := known[text]; {
			case c.taken: // the older set reads it, and has its text once
				if !ok {
					known[text] = text
				}
				continue
			case !ok:
				known[text] = strings.Clone(text)
			}
			p.segments[i].literal = known[text]
		}
		if len(c.Match.Hosts) == 0 {
			if s.always == nil {
				s.always = new(node)
			}
			s.always.add(p, c)
			segments += len(p.segments) + 1
		}
		for _, text := range c.Match.Hosts {
			s.root(text).add(p, c)
			segments += len(p.segments) + 1
		}
	}
	return segments
}

// root is the tree of the hosts of a pattern.
func (s *Set) root(text string) *node {
	host, _ := parseHostPattern(text) // which is valid
	trees := &s.hosts
	if host.below {
		trees = &s.below
	}
	if *trees == nil {
		*trees = map[string]*node{}
	}
	if (*trees)[host.name] == nil {
		(*trees)[host.name] = new(node)
	}
	return (*trees)[host.name]
}

func compile(rule *Rule, options Options) (*compiled, error) {
	c := &compiled{Rule: rule.Clone(), fields: fieldsOf(rule.Match.Headers), scope: scopeOf(rule), hashed: rule.namesHashes(), networks: networksOf(rule)}
	c.strict = options.StrictSlash
	c.paths, c.except = parsePatterns(rule.Match.Paths, c.strict), parsePatterns(rule.Match.Except, c.strict)
	var old *compiled
	if options.Previous != nil {
		old = options.Previous.byID[rule.ID]
	}
	var err error
	if len(rule.Limits) > 0 {
		if c.groups, err = c.newGroups(rule.Limits, rule.Costs, old, ""); err != nil {
			return nil, err
		}
	}
	for i := range rule.Overrides {
		o := &rule.Overrides[i]
		known, client := &override{unlimited: o.Unlimited}, o.Key
		if c.hashed {
			client = c.hashedClient(client)
		}
		if len(o.Limits) > 0 {
			if known.groups, err = c.newGroups(o.Limits, o.Costs, old, client); err != nil {
				return nil, err
			}
		}
		if c.overrides == nil {
			c.overrides = make(map[string]*override, len(rule.Overrides))
		}
		c.overrides[client] = known
	}
	return c, nil
}

// policyName is under which name the rule's state is kept.
func policyName(id string) string { return PolicyPrefix + id }

// PolicyPrefix begins the names of rules' policies; the ID follows. Who keeps other policies in
// the same store must not let their names begin with it.
const PolicyPrefix = "rule/"

// newGroups groups limits by their costs, those with costs that a request may name first.
func (c *compiled) newGroups(limits []stint.Limit, costs []Cost, old *compiled, client string) (groups []group, err error) {
	var members [][]stint.Limit
	for i, limit := range limits {
		g := group{cost: c.Cost}
		if i < len(costs) && costs[i] != (Cost{}) {
			g.cost = costs[i]
		}
		g.cost.Permits, g.cost.Header = max(g.cost.Permits, 1), http.CanonicalHeaderKey(g.cost.Header)
		at := slices.IndexFunc(groups, func(known group) bool { return known.cost == g.cost })
		if at < 0 {
			at = len(groups)
			if g.named() {
				at = slices.IndexFunc(append(groups, group{}), func(known group) bool { return !known.named() })
			}
			groups, members = slices.Insert(groups, at, g), slices.Insert(members, at, nil)
		}
		members[at] = append(members[at], limit)
	}
	for i := range groups {
		if groups[i].policy, err = c.newPolicy(members[i], old, client); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// newPolicy makes the policy of limits of the rule, or takes the one that an older set has of the
// same client if it is the same.
func (c *compiled) newPolicy(limits []stint.Limit, old *compiled, client string) (*stint.Policy, error) {
	if old != nil && old.OnStoreFailure == c.OnStoreFailure && old.Timeout == c.Timeout {
		groups := old.groups
		if client != "" {
			groups = nil
			if o := old.overrides[client]; o != nil {
				groups = o.groups
			}
		}
		for i := range groups {
			if slices.Equal(groups[i].policy.Limits(), limits) {
				return groups[i].policy, nil
			}
		}
	}
	policy, err := stint.NewPolicy(policyName(c.ID), limits...)
	if err != nil {
		return nil, prefix.Errorf("rule %q: %w", c.ID, err)
	}
	failure := Failure{Policy: c.OnStoreFailure, Timeout: c.Timeout}
	policy.Prepared(failureOwner{}, func() any { return failure })
	return policy, nil
}

// Len is the number of rules, disabled ones included.
func (s *Set) Len() int { return len(s.rules) }

// Rules returns the rules by priority and ID. The caller must not change what they hold.
func (s *Set) Rules() []Rule {
	rules := make([]Rule, len(s.rules))
	for i, c := range s.rules {
		rules[i] = c.Rule
	}
	return rules
}

// Rule returns the rule of an ID.
func (s *Set) Rule(id string) (Rule, bool) {
	c, ok := s.byID[id]
	if !ok {
		return Rule{}, false
	}
	return c.Rule, true
}

// Changes are the IDs in which a set differs from an older one, each list sorted.
type Changes struct {
	Added, Removed, Changed []string
}

// None reports whether the sets have the same rules.
func (c Changes) None() bool { return len(c.Added)+len(c.Removed)+len(c.Changed) == 0 }

// ChangesFrom compares the set with an older one, which may be nil.
func (s *Set) ChangesFrom(old *Set) Changes {
	if old == nil {
		old = &Set{}
	}
	was, is := old.Rules(), s.Rules()
	for _, list := range [][]Rule{was, is} {
		slices.SortFunc(list, func(a, b Rule) int { return strings.Compare(a.ID, b.ID) })
	}
	return Summarize(Diff(was, is))
}

// A Change is what happened to one rule.
type Change struct {
	ID string
	// Before is the rule as it was; nil if there was none.
	Before *Rule
	// After is the rule as it is; nil if there is none any more.
	After *Rule
}

// Diff compares two lists of rules, each sorted by ID.
func Diff(old, now []Rule) (changes []Change) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(now) == 0 || len(old) > 0 && old[0].ID < now[0].ID:
			changes, old = append(changes, Change{ID: old[0].ID, Before: &old[0]}), old[1:]
		case len(old) == 0 || now[0].ID < old[0].ID:
			changes, now = append(changes, Change{ID: now[0].ID, After: &now[0]}), now[1:]
		default:
			if !old[0].Equal(&now[0]) {
				changes = append(changes, Change{ID: now[0].ID, Before: &old[0], After: &now[0]})
			}
			old, now = old[1:], now[1:]
		}
	}
	return changes
}

// Summarize returns the IDs of changes.
func Summarize(changes []Change) (ids Changes) {
	for _, c := range changes {
		switch {
		case c.Before == nil:
			ids.Added = append(ids.Added, c.ID)
		case c.After == nil:
			ids.Removed = append(ids.Removed, c.ID)
		default:
			ids.Changed = append(ids.Changed, c.ID)
		}
	}
	return ids
}

// A Failure is what a rule says for the time while the store is unreachable.
type Failure struct {
	// Policy decides then. "" is as for all.
	Policy OnStoreFailure
	// Timeout bounds each call of the store; 0 is as for all.
	Timeout time.Duration
}

// failureOwner owns the failures that policies carry.
type failureOwner struct{}

// FailureOf is what the rule of a policy says for the time while the store is unreachable; the zero
// Failure for a policy that is no rule's.
func FailureOf(policy *stint.Policy) Failure {
	failure, _ := policy.Prepared(failureOwner{}, func() any { return Failure{} }).(Failure)
	return failure
}

// A Source is where rules come from, and where they change: files, or a store that processes
// share.
type Source interface {
	// Follow makes a set of the rules that are there and hands it to take, and again whenever
	// they have changed, until ctx is done; then it returns nil. What can't be used, or not be read,
	// is told to refused, as a whole and with all its faults, and taken by nobody: the set from before
	// stays in force. When that is over take is called again, perhaps with the same set or with one that is equal:
	// so the set in force is what the source has, as far as is known, if take was called after refused. Both are
	// called by one goroutine at a time. An error is returned when the source can't be followed at all.
	Follow(ctx context.Context, take func(*Set), refused func(error)) error
}
