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
// Every rule that matches a request holds for it; none hides another. Package enforce decides all
// of their limits in one step of a store: the request is admitted when all admit, and takes nothing
// when one does not. Rules in shadow are decided each by itself, and never deny.
//
// # Whom a rule counts
//
// A rule has a state for each client, and its scope says what a client is: everybody together, an
// address, a user, an API key, an attribute, or several of them at once. A request that lacks what
// the scope asks for is not counted with others that lack it, but is treated as the rule's
// [Missing] says. State belongs to the rule's ID and to the client: it survives every change of the
// rule but that of its ID, by the rules for a changed limit in docs/internals/semantics.md.
//
// # Which requests a rule matches
//
// A request's path has one canonical form, see docs/matching.md: every spelling of a path has the rules
// of that form. Programs differ in what they do with dots, encoded slashes, backslashes,
// runs of slashes (which may begin an authority), parameters (;) and #. So a path with any of these has several
// variants, 308 at most and 1,864 with parameters, and a rule holds if its
// pattern matches any of them: whichever variant a program uses, all rules of the route that it
// finds hold. A parameter's value comes from the first variant that matches, the canonical one
// first. Such a path may have 8 KiB, and 512 bytes that separate segments: half as many if it may begin with an
// authority, an eighth with parameters.
//
// The patterns are kept in a tree of the segments of hosts and paths: matching costs as much as the
// path is long, however many rules there are.
package rules

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
)

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
	// Alone says that the rules are some of a set, to be checked each by itself: how they stand to others by Within and
	// Otherwise is not looked at, and the set can't decide. Default: false.
	Alone bool
	// Review says that the rules are being written: what can hardly be meant, such as the path /users/:id or a cost
	// above the limit, is a fault. A rule of Previous may keep what it has of that. Default: false, it is a warning
	// with Mistake, so that rules that were accepted once are in force.
	Review bool
}

// A Set is rules ready to be matched. It is immutable and safe for concurrent use; make it
// with [Compile]. The zero value has no rule.
type Set struct {
	// rules are by rank: by priority, the highest first, and by ID.
	rules  []*compiled
	byID   map[string]*compiled
	strict bool
	// bits are those by which IPv6 clients are counted.
	bits int

	// hosts has the trees of a host's own rules, below those of the hosts below a name, and always
	// that of rules for any host.
	hosts  map[string]*node
	below  map[string]*node // of the hosts below a name
	always *node            // of any host

	// apart has the warnings of findApart by rule, once somebody asks.
	apartOnce sync.Once
	apart     map[string]Warning
}

// A compiled rule is a rule with what can be known before a request comes.
type compiled struct {
	Rule
	// rank is its place in the set's rules.
	rank int
	// how many limits the rule adds at most to the operation of a request
	maxLimits int
	// own is what clients without an override have, and cost the rule's, as requests are asked for it.
	own  terms
	cost Cost
	// paths and except are the patterns of Match; fields its header fields.
	paths  []pattern
	except []pattern
	// strict is the set's.
	strict bool
	fields []field
	// which parts of the scope are parameters of the paths
	parameters []bool
	// overrides are by the client's key, as [compiled.readKey] writes it.
	overrides  map[string]*terms
	classNames map[string]string
	family
	// lengths of those that overrides have in the place of an address, the longest first: of IPv4, and
	// of IPv6
	lengths [2][]int
	// networks is whether the rule counts networks by PerNetwork, of counted bits.
	networks bool
	counted  masks
}

// Terms are what a rule has for a client. With neither limits nor unlimited it is banned.
type terms struct {
	groups    []group
	unlimited bool
	within    bool // what the client has is in floors, and borrowed
	// until is when an override ends, in microseconds; 0 is never.
	until int64
}

// holds reports whether an override has not ended. now is as [Matches.Now].
func (t *terms) holds(now func() time.Time) bool {
	return t.until == 0 || now == nil || now().UnixMicro() < t.until
}

// A group is limits of one cost. All groups of a rule have the rule's policy name, so that a limit's state is the same
// in each.
type group struct {
	policy *stint.Policy
	cost   Cost
	// capacity is that of each of them where classes leave a part of it; else 0.
	capacity int64
	blocks   bool // it is the rule's block
}

// named reports whether a request may name the cost.
func (g *group) named() bool { return g.cost.named() }

// bans reports whether the client is banned.
func (t *terms) bans() bool { return !t.unlimited && !t.within && len(t.groups) == 0 }

// limits is how many there are.
func (t *terms) limits() (n int) {
	for i := range t.groups {
		n += t.groups[i].policy.Len()
	}
	return n
}

// Compile checks rules and makes a set of them. Everything that is wrong is reported at once,
// joined; each is a [*Fault], except faults of all rules together. Rules of which one request may
// meet more than 1,000 limits are a fault as well. Rules that Previous has unchanged
// are taken over with everything that was computed for them, so that one edit of a set of 100,000
// rules costs what comparing them does.
//
// In order: each rule by itself; how rules stand to each other; their order; the trees; the number
// of limits that one request can meet. Each step reports all of its faults, and a later one is not
// begun with faults of an earlier one.
func Compile(list []Rule, options Options) (*Set, error) {
	if len(list) > bounds.MaxRules {
		return nil, stint.Invalid("rules", len(list), fmt.Sprintf("at most %d rules", bounds.MaxRules))
	}
	bits := cmp.Or(options.IPv6Prefix, defaultIPv6Prefix)
	if bits < 1 || bits > 128 {
		return nil, stint.Invalid("IPv6Prefix", bits, "1 to 128")
	}
	s := &Set{
		rules:  make([]*compiled, len(list)),
		byID:   make(map[string]*compiled, len(list)),
		strict: options.StrictSlash,
		bits:   bits,
	}
	var all []error
	first := make(map[string]int, len(list))
	for i := range list {
		f := faults{index: i, id: list[i].ID, bits: bits}
		if s.rules[i] = options.Previous.unchanged(&list[i], s); s.rules[i] == nil {
			list[i].validate(&f)
			if options.Review {
				f.refuse(&list[i], options.Previous.rule(list[i].ID))
			}
		}
		if at, twice := first[list[i].ID]; twice && list[i].ID != "" {
			f.invalid("id", list[i].ID, fmt.Sprintf("an ID that no other rule has; rule %d has it", at))
		} else {
			first[list[i].ID] = i
		}
		if all = append(all, f.all...); len(all) > maxFaults {
			break
		}
	}
	if err := prefix.Join(all...); err != nil {
		return nil, err
	}
	for i, c := range s.rules {
		if c == nil {
			var err error
			if c, err = compile(&list[i], options); err != nil {
				return nil, err
			}
			s.rules[i] = c
		}
		s.byID[c.ID] = c
	}
	if !options.Alone {
		if err := s.relate(first, options.Previous); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(s.rules, func(a, b *compiled) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), strings.Compare(a.ID, b.ID))
	})
	segments, limits := 0, 0
	for i, c := range s.rules {
		c.rank = i
		limits += c.maxLimits
		if !c.Disabled {
			segments += s.index(c)
		}
		if segments > maxPlanted {
			return nil, stint.Invalid("rules",
				plain(fmt.Sprintf("more than %d segments of paths, those of several hosts counted for each", maxPlanted)), "fewer")
		}
	}
	if limits > bounds.MaxOpLimits {
		if err := s.checkLimitCount(first); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// maxFaults is how many faults there are before no more rules are looked at: nobody reads so many, and
// anybody who may ask whether rules are right could send 100,000 rules that are not.
const maxFaults = 2000

// unchanged returns a copy of what the set, which may be nil, made of the same rule, for another set to rank; nil if it
// has none.
func (s *Set) unchanged(rule *Rule, next *Set) *compiled {
	if old := s.rule(rule.ID); old == nil || s.bits != next.bits || s.strict != next.strict || !old.Equal(rule) {
		return nil
	}
	c := *s.byID[rule.ID]
	return &c
}

// maxPlanted bounds what the trees have, as a rule has each of its paths in the tree of each of its
// hosts. 4 million segments take some hundreds of MB, so a set with more is refused rather than the
// process killed.
const maxPlanted = 1 << 22

// index adds a rule to the trees in which requests find it, and returns its number of segments.
func (s *Set) index(c *compiled) (segments int) {
	paths := c.paths
	if len(paths) == 0 {
		paths = []pattern{{rest: true}}
	}
	for _, p := range paths {
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

// compile prepares one rule that is valid. What the rule of the same ID had in the previous set is
// looked at, since a limit that stayed keeps its policy and what stores prepared for it.
func compile(rule *Rule, options Options) (c *compiled, err error) {
	c = &compiled{Rule: rule.Clone(), fields: fieldsOf(rule.Match.Headers), strict: options.StrictSlash}
	c.classNames, c.cost = c.Classes.names(), rule.Cost.canonical()
	c.paths, c.except = parsePatterns(rule.Match.Paths, c.strict), parsePatterns(rule.Match.Except, c.strict)
	for _, scope := range rule.Scope {
		c.parameters = append(c.parameters, rule.hasParameter(scope))
	}
	if at := c.addressPart(); at >= 0 && c.Scope[at] != PerIP {
		c.networks, c.counted = true, c.masks(cmp.Or(options.IPv6Prefix, defaultIPv6Prefix))
	}
	old := options.Previous.was(rule)
	if c.own, err = c.newTerms(rule.Limits, rule.Costs, rule.Unlimited, &old.own); err != nil {
		return nil, err
	}
	if err = c.addBlock(&old.own); err != nil {
		return nil, err
	}
	if len(rule.Overrides) > 0 {
		c.overrides = make(map[string]*terms, len(rule.Overrides))
	}
	for i := range rule.Overrides {
		o := &rule.Overrides[i]
		key, parts, err := c.readKey("key", o.Key, 0, true)
		if err != nil {
			return nil, err
		}
		c.addNetwork(parts)
		known, err := c.newTerms(o.Limits, o.Costs, o.Unlimited, old.overrides[key])
		if err != nil {
			return nil, err
		}
		if !o.Until.IsZero() {
			known.until = o.Until.UnixMicro()
		}
		c.overrides[key] = &known
	}
	c.maxLimits = c.mostLimits()
	return c, nil
}

// was is what the set, which may be nil, has of a rule, if its policies say the same of failures; else nothing.
func (s *Set) was(rule *Rule) *compiled {
	if of := s.rule(rule.ID); of != nil && of.OnStoreFailure == rule.OnStoreFailure && of.Timeout == rule.Timeout {
		return s.byID[rule.ID]
	}
	return &compiled{}
}

// mostLimits is how many limits the rule by itself adds at most to the operation of a request.
func (c *compiled) mostLimits() int {
	if c.Disabled || c.OnExceed == Shadow {
		return 0 // such rules are decided by themselves
	}
	most := c.own.limits()
	for _, o := range c.overrides {
		most = max(most, o.limits())
	}
	return most
}

// addNetwork notes how long the network is that an override may have in the place of an address.
func (c *compiled) addNetwork(parts []keyPart) {
	at := c.addressPart()
	if at < 0 {
		return
	}
	network, err := netip.ParsePrefix(parts[at].text)
	if err != nil {
		return
	}
	of := &c.lengths[ipVersion(network.Addr())]
	if place, known := slices.BinarySearchFunc(*of, network.Bits(), func(a, b int) int { return b - a }); !known {
		*of = slices.Insert(*of, place, network.Bits())
	}
}

// PolicyPrefix begins the names of rules' policies; the ID follows. Who keeps other policies in
// the same store must not let their names begin with it.
const PolicyPrefix = "rule/"

// reserved reports whether limits of the rule are there for a Reserve: the rule says how it holds,
// or they have places.
func (r *Rule) reserved(limits []stint.Limit) bool {
	return r.Reserve != Reserve{} || hasPlaces(limits)
}

// asReserved are limits of the rule. Where they are there for a Reserve, a cost that the limit has as a
// number is its own: the end of a hold leaves it as it was taken, but with a Count.
func (r *Rule) asReserved(limits []stint.Limit, costs []Cost) []stint.Limit {
	if !r.reserved(limits) || r.countsAnswers() {
		return limits
	}
	limits = slices.Clone(limits)
	for i := range min(len(limits), len(costs)) {
		if c := costs[i]; !c.named() {
			limits[i].Cost = c.Permits
		}
	}
	return limits
}

// newTerms groups limits by their costs, those with costs that a request may name first. A policy that older terms have
// of the same limits is kept, with all that stores prepared for it.
func (c *compiled) newTerms(limits []stint.Limit, costs []Cost, unlimited bool, old *terms) (terms, error) {
	var members [][]stint.Limit
	t := terms{unlimited: unlimited, within: c.Within != ""}
	for i, limit := range c.asReserved(limits, costs) {
		g := group{cost: c.Cost}
		if i < len(costs) && !costs[i].isZero() {
			g.cost = costs[i]
		}
		if c.Classes.Has() {
			g.capacity = limit.Capacity
		}
		g.cost = g.cost.canonical()
		at := slices.IndexFunc(t.groups, func(known group) bool {
			return known.cost.equal(g.cost) && known.capacity == g.capacity
		})
		if at < 0 {
			at = len(t.groups)
			if g.named() {
				at = slices.IndexFunc(append(t.groups, group{}), func(known group) bool { return !known.named() })
			}
			t.groups, members = slices.Insert(t.groups, at, g), slices.Insert(members, at, nil)
		}
		members[at] = append(members[at], limit)
	}
	if old == nil {
		old = &terms{}
	}
	for i := range t.groups {
		g := &t.groups[i]
		if at := slices.IndexFunc(old.groups,
			func(was group) bool { return slices.Equal(was.policy.Limits(), members[i]) }); at >= 0 {
			g.policy = old.groups[at].policy
			continue
		}
		var err error
		if g.policy, err = c.newPolicy(members[i]...); err != nil {
			return t, err
		}
	}
	return t, nil
}

// newPolicy makes a policy of the rule.
func (c *compiled) newPolicy(limits ...stint.Limit) (*stint.Policy, error) {
	policy, err := stint.NewPolicy(PolicyPrefix+c.ID, limits...)
	if err != nil {
		return nil, prefix.Errorf("rule %q: %w", c.ID, err)
	}
	policy.Prepared(&failureOwner, func() any { return Failure{Policy: c.OnStoreFailure, Timeout: c.Timeout} })
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

// rule is the rule of an ID in the set, which may be nil; nil if there is none.
func (s *Set) rule(id string) *Rule {
	if s == nil || s.byID[id] == nil {
		return nil
	}
	return &s.byID[id].Rule
}

// A Failure is what a rule says for the time while the store is unreachable.
type Failure struct {
	// Policy decides then. "" is as for all.
	Policy OnStoreFailure
	// Timeout bounds each call of the store; 0 is as for all.
	Timeout time.Duration
}

// failureOwner owns the failures that policies carry.
var failureOwner byte

// FailureOf is what the rule of a policy says for the time while the store is unreachable; the zero
// Failure for a policy that is no rule's.
func FailureOf(policy *stint.Policy) Failure {
	failure, _ := policy.Prepared(&failureOwner, func() any { return Failure{} }).(Failure)
	return failure
}

// A Source is where rules come from, and where they change: files, or a store that processes share.
type Source interface {
	// Follow makes a set of the rules that are there and hands it to take, and again whenever they
	// have changed, until ctx is done; then it returns nil. What can't be used, or not be read, is
	// told to refused, as a whole and with all its faults, and taken by nobody: the set from before
	// stays in force. When that is over take is called again, perhaps with the same set or with one
	// that is equal: so the set in force is what the source has, as far as is known, if take was
	// called after refused. Both are called by one goroutine at a time. An error is returned when the
	// source can't be followed at all.
	Follow(ctx context.Context, take func(*Set), refused func(error)) error
}
