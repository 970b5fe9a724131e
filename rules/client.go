package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
)

// An Outcome is what a rule that matches does with a request. The zero value is Limited.
type Outcome uint8

// The outcomes.
const (
	// Limited requests are decided by the rule's limits, or its override's.
	Limited Outcome = iota
	// Skipped requests lack what the rule's scope asks for, and it does not hold for them.
	Skipped
	// Unlimited requests are not limited by the rule.
	Unlimited
	// Banned requests are denied.
	Banned
	// Lacking requests are denied as they lack what the rule's scope asks for.
	Lacking
	// Included requests are decided by another rule that holds for them, within this rule's limits.
	Included
)

var outcomeNames = []string{"limited", "skipped", "unlimited", "banned", "lacking", "included"}

// String is the outcome in a word.
func (s Outcome) String() string { return nameOf(outcomeNames, uint8(s)) }

// A Matched rule is one that matches, with what it makes of the request's client. The claims of one
// rule are decided together, all or none: Claim first, then And. Most rules have one.
type Matched struct {
	// Rule must not be changed.
	Rule *Rule
	// Outcome says whether Claim is to be decided.
	Outcome Outcome
	// Claim is the client's key, the rule's policy for it, and the cost. It is empty unless
	// Outcome is Limited.
	Claim stint.Claim
	// And are further claims of the client where limits of the rule have other costs, each with a policy of its own
	// limits. Default: none.
	And []stint.Claim
	// Named is how many of the claims, Claim first, have costs that a request may name.
	Named int
	// Vias say of each claim, Claim first, what a request is charged by that takes of it, such as
	// ViaBorrowed. Default: nil, the rule's own limits.
	Vias []string
	// Ways say of each claim, Claim first, of which of several ways it is, from 0: one of them is charged (see
	// [stint.Way]). Default: nil, the claims have to admit all together.
	Ways []uint8
	// Class is the request's class, if the rule has classes.
	Class string
	// Client is the key of the client that the rule counts, if Outcome is Limited. Of a rule with Within or
	// Otherwise, claims on limits of another rule have the key of that rule's client.
	Client string
	// By is the rule that decides, within this one's limits, if Outcome is Included and a request was
	// matched. It must not be changed.
	By *Rule

	// places says of a request whose cost is a fault that a limit of the client is of concurrency.
	places bool
}

// NeedsReserve reports whether only a Reserve can take of the client's limits, as one of them is of
// concurrency, or the rule has a Count. Where the client is not known the rule's own limits say it.
func (h *Matched) NeedsReserve() bool {
	switch {
	case h.Outcome == Lacking:
		return h.Rule.NeedsReserve()
	case h.Outcome != Limited:
		return false
	case h.Claim.Policy == nil:
		return h.places || h.Rule.countsAnswers()
	}
	return h.Rule.countsAnswers() || h.Claim.Policy.NeedsReserve() ||
		slices.ContainsFunc(h.And, func(c stint.Claim) bool { return c.Policy.NeedsReserve() })
}

// At tells what the i-th rule makes of the request. The error wraps stint.ErrInvalid: a cost
// that the request names and that is none, or above the rule's MaxCost.
//
// The claim's key is the client as an [Override] names it, with these exceptions, none of which can
// be the key of another client: an API key, and what is no printable text or longer than a key may
// be, appears as its SHA-256, behind \sha256: ; a client counted by address, as Missing says,
// appears behind \ip: .
//
// What it tells is written to h, with an error the rule alone. verb is what is to be done: what has been decided before
// is not undone by a cost above the rule's MaxCost, of a settlement, a reset or the end of what a client
// holds. At that end a client that an override bans by now has the rule's own limits.
//
// The order matters: a rule that another one includes decides nothing; then the client and the terms that hold for it;
// then what of the limits is paid how.
func (m *Matches) At(i int, verb stint.Verb, h *Matched) (err error) {
	c, ending := &m.rules[i], verb > stint.VerbReserve
	*h = Matched{Rule: &c.Rule}
	if by := m.includedBy(c.compiled, ending); by != nil {
		h.Outcome, h.By = Included, &by.Rule
		return nil
	}
	var key string
	var t *terms
	if key, t, h.Outcome = m.client(c, ending); h.Outcome != Limited {
		return nil
	}
	keep, class := c.classOf(m.request)
	h.Class, h.Client = class, key
	lists := c.parent != nil || c.otherwise != nil || len(t.groups) > 1
	if lists {
		m.lend(h)
	}
	if c.parent != nil {
		bounded := !ending && verb != stint.VerbSettle && verb != stint.VerbReset
		err = m.matchWithin(h, c.compiled, key, keep, ending, bounded)
	} else {
		err = h.decideBy(c.compiled, t, key, m.cost, keep)
	}
	if err == nil && c.parent == nil && c.otherwise != nil && h.Outcome == Limited {
		err = m.decideOtherwise(h, c.compiled, ending)
	}
	if lists {
		m.own(h)
	}
	if err != nil {
		places := slices.ContainsFunc(t.groups, func(g group) bool { return g.policy.NeedsReserve() })
		*h = Matched{Rule: h.Rule, places: places}
	}
	return err
}

// matchWithin makes the claims of a rule that is within others. If the cost is bounded, one above the rule's MaxCost is
// an error.
func (m *Matches) matchWithin(h *Matched, c *compiled, key string, keep Percent, ending, bounded bool) error {
	permits, err := m.cost(&c.cost)
	if err != nil {
		return err
	}
	if bounded && c.MaxCost > 0 && permits > c.MaxCost {
		return stint.Invalid(cmp.Or(c.Cost.Header, c.Cost.Attribute, "cost"), permits,
			fmt.Sprintf("a cost of 1 to %d, the rule's max_cost", c.MaxCost))
	}
	if h.Outcome = m.findLevels(c, key, ending); h.Outcome != Limited {
		return nil
	}
	h.decideWithin(m.levels, max(permits, 1), keep)
	if g := (group{cost: c.Cost}); g.named() {
		h.Named = len(h.Vias)
	}
	return nil
}

// client is the key of the client that a rule counts, and its terms, or the outcome if there are
// none to be decided by. A client that lacks a part has no override, as there is no key to find one
// by. Of the keys the two commonest, the address alone and the one of all clients, are not copied.
func (m *Matches) client(c *match, ending bool) (key string, t *terms, outcome Outcome) {
	address := m.request.Address
	if c.networks {
		address = c.counted.networkOf(address)
	}
	t = &c.own
	lacks := m.appendClient(c, address) || c.PartitionBy != "" && m.partition(c) == ""
	switch {
	case !lacks:
		holds := func(o *terms) bool { return o.holds(m.Now) }
		if o := c.overrideOf(m.key, m.address, address, &m.network, holds); o != nil && (!ending || !o.bans()) {
			t = o
		}
	case c.Missing == MissingSkip:
		return "", nil, Skipped
	case c.Missing == MissingIP && address != "":
		m.key = appendPart(append(m.key[:0], fallbackPrefix...), PerIP, keyPart{text: address})
	default:
		return "", nil, Lacking
	}
	switch string(m.key) { // without allocating what is there
	case address:
		key = address
	case "*":
		key = "*"
	default:
		key = m.keyText()
	}
	if value := m.partition(c); value != "" && !lacks {
		key = inPartition(partitionTag(value), key)
	}
	return key, t, Limited
}

// decideBy makes the claims of a client, of which cost tells the permits, or says why there are
// none. What a class leaves to others is kept, and what floors within the rule's limit need. Of a
// limit of capacity C in which floors keep K, a class with Keep p leaves p percent of C-K to
// others, besides K itself: the request may take as long as C - K - p(C-K) is not reached.
func (h *Matched) decideBy(c *compiled, t *terms, key string, cost func(*Cost) (int64, error), class Percent) error {
	switch {
	case t.unlimited:
		h.Outcome = Unlimited
	case t.bans():
		h.Outcome = Banned
	}
	for i := range t.groups {
		g := &t.groups[i]
		permits, err := cost(&g.cost)
		if err != nil {
			return err
		}
		claim := &h.Claim
		if i > 0 {
			h.And = append(h.And, stint.Claim{})
			claim = &h.And[i-1]
		}
		claim.Key, claim.Policy, claim.Permits, claim.Keep = key, g.policy, permits, c.kept
		if class > 0 && !g.blocks {
			claim.Keep += class.of(g.policy.Limit(0).Capacity - c.kept)
		}
		if g.named() {
			h.Named++
		}
	}
	return nil
}

// cost is what the request takes of limits. A value of several lines is a fault and not the first
// of them: which one a server behind would read is not known.
func (m *Matches) cost(c *Cost) (int64, error) {
	if len(c.Sum) > 0 {
		return m.sum(c.Sum)
	}
	return m.number(c.Header, c.Attribute, c.Permits, 1)
}

// sum is the sum of parts, rounded up. There are 8 at most: below 8 x 10^9 x 10^9 thousandths, which fit.
func (m *Matches) sum(parts []CostPart) (int64, error) {
	sum := int64(0)
	for i := range parts {
		p := &parts[i]
		n, err := m.number(p.Header, p.Attribute, p.Default, 0)
		if err != nil {
			return 0, err
		}
		sum += n * int64(p.Weight)
	}
	if sum = inWhole(sum); sum > bounds.MaxPermits {
		return 0, stint.Invalid("cost", sum, fmt.Sprintf("a sum of up to %d", bounds.MaxPermits))
	}
	return max(sum, 1), nil
}

// number is that in a header field or an attribute, or what stands for none.
func (m *Matches) number(header, attribute string, none, least int64) (int64, error) {
	text, named := "", ""
	switch {
	case header != "":
		lines := m.request.Header[header]
		if len(lines) > 1 {
			return 0, stint.Invalid(header, strconv.Itoa(len(lines))+" lines", "one")
		}
		if len(lines) == 1 {
			text = lines[0]
		}
		named = header
	case attribute != "":
		text, named = m.request.Attributes[attribute], attribute
	}
	if text == "" {
		return none, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > bounds.MaxPermits {
		const most = 64
		return 0, stint.Invalid(named, text[:min(len(text), most)], fmt.Sprintf("a cost, %d to %d", least, bounds.MaxPermits))
	}
	return n, nil
}

// appendClient writes the client's key into m.key, as long as it may be. It reports whether the
// request lacks a part. The parts stand in the order of the rule's scope, with | between, each
// escaped by appendPart so that no two clients have one key. address is the request's, as the rule counts it.
func (m *Matches) appendClient(c *match, address string) (lacks bool) {
	m.key = m.key[:0]
	for i, scope := range c.Scope {
		value := m.value(c, i)
		if value == "" {
			return true
		}
		if i > 0 {
			m.key = append(m.key, '|')
		}
		if scope == PerIP || c.networks && isPerIP(scope) {
			m.address, value = len(m.key), address
		}
		m.key = appendPart(m.key, scope, keyPart{text: value})
	}
	return false
}

// value is what the request has for a part of the rule's scope, "" if it lacks it.
func (m *Matches) value(c *match, i int) string {
	switch scope := c.Scope[i]; scope {
	case Global:
		return "*"
	case PerIP:
		return m.request.Address
	case PerUser:
		return m.request.User
	case PerAPIKey:
		return m.request.APIKey
	default:
		if c.networks && isPerIP(scope) {
			return m.request.Address
		}
		name := scope[len(CustomPrefix):]
		if c.parameters[i] {
			return m.parameter(c, name)
		}
		return m.request.Attributes[name]
	}
}

// partition is what the request has for the rule's PartitionBy; "" without one, whatever attributes
// it has.
func (m *Matches) partition(c *match) string {
	if c.PartitionBy == "" {
		return ""
	}
	return m.request.Attributes[c.PartitionBy]
}

// Lacks are the scopes of the i-th rule that the request has nothing for, in the rule's order, and the
// attribute of its PartitionBy as a scope: nil if it lacks nothing. PerIP is the last of them also where
// the request would be counted by its address as Missing says, and has none.
func (m *Matches) Lacks(i int) []string {
	c := &m.rules[i]
	var lacks []string
	for j, scope := range c.Scope {
		if m.value(c, j) == "" {
			lacks = append(lacks, scope)
		}
	}
	if attribute := Custom(c.PartitionBy); c.PartitionBy != "" && m.partition(c) == "" &&
		!slices.Contains(lacks, attribute) {
		lacks = append(lacks, attribute)
	}
	if len(lacks) > 0 && c.Missing == MissingIP && m.request.Address == "" && !slices.ContainsFunc(lacks, isPerIP) {
		lacks = append(lacks, PerIP)
	}
	return lacks
}

// ClientKey is the key under which the state of a client is kept whom an [Override] would name so,
// as [Matches.At] has it. Behind \ip: it is an address of clients that are counted by address, as
// Missing says. It holds no API key, so it may be shown. The error wraps stint.ErrInvalid:
// the rule can have no such client. An IPv6 network may have any number of bits here; by which
// clients are counted a [Set] knows.
func (r *Rule) ClientKey(client string) (string, error) { return r.clientKey(client, 0, false) }

// OverrideKey is ClientKey for the key of an override, which may also name a network: a text that
// holds no API key.
func (r *Rule) OverrideKey(key string) (string, error) { return r.clientKey(key, 0, true) }

// clientKey is ClientKey where IPv6 clients are counted by so many bits; 0 stands for any number.
func (r *Rule) clientKey(client string, bits int, networks bool) (string, error) {
	tag := ""
	if !networks { // an override is one of all partitions
		var err error
		if tag, client, err = r.cutPartition(client); err != nil {
			return "", err
		}
	}
	if address, found := strings.CutPrefix(client, fallbackPrefix); found && r.Missing == MissingIP && tag == "" {
		if allowed := addressFault(address, r.masks(bits), false); allowed != "" {
			return "", stint.Invalid("key", r.shownKey(client), "behind "+fallbackPrefix+" "+allowed)
		}
		return client, nil
	}
	key, _, err := r.readKey("key", client, bits, networks)
	if err != nil {
		return "", err
	}
	return inPartition(tag, key), nil
}

// ClientClaims are the key and the policies under which a rule may have counted a client: its own
// and those of overrides that the client has, its own one's and networks', ended or not. They carry no
// cost. The error wraps stint.ErrInvalid: there is no such rule, or it can have no such client. All of
// them are listed, since a client whom an override was given or taken from, or whose override has ended,
// has left state under the other policies.
func (s *Set) ClientClaims(id, client string) (claims []stint.Claim, err error) {
	c, err := s.client(id, client)
	if err != nil {
		return nil, err
	}
	limits := 0
	for _, t := range append([]*terms{&c.rule.own}, c.overrides...) {
		if limits += t.limits(); limits > bounds.MaxOpLimits {
			break
		}
		for _, g := range t.groups {
			claims = append(claims, stint.Claim{Key: c.key, Policy: g.policy})
		}
	}
	for _, policy := range []*stint.Policy{c.floor, c.rule.borrow} {
		if policy != nil {
			claims = append(claims, stint.Claim{Key: c.key, Policy: policy})
		}
	}
	return claims, nil
}

// ClientMatch is what a rule makes of a client, as [Matches.At] has it; its claims have a cost of
// 1. Errors are those of ClientClaims. It is what administrators are shown: nothing is known of a
// request, so that costs are 1 and classes are left out.
// now is as [Matches.Now].
func (s *Set) ClientMatch(id, client string, now func() time.Time) (Matched, error) {
	c, err := s.client(id, client)
	if err != nil {
		return Matched{}, err
	}
	t := &c.rule.own
	if at := slices.IndexFunc(c.overrides, func(o *terms) bool { return o.holds(now) }); at >= 0 {
		t = c.overrides[at]
	}
	h := Matched{Rule: &c.rule.Rule, Client: c.key}
	for i, policy := range []*stint.Policy{c.floor, c.rule.borrow} {
		if policy != nil {
			h.add(stint.Claim{Key: c.key, Policy: policy, Permits: 1}, []string{ViaGuaranteed, ViaBorrowed}[i], 0)
		}
	}
	h.Ways = nil // both are shown
	if c.rule.parent != nil {
		if h.Claim.Policy == nil {
			h.Outcome = Included
		}
		return h, nil
	}
	return h, h.decideBy(c.rule, t, c.key, func(*Cost) (int64, error) { return 1, nil }, 0)
}

// A known client is one that was named, and not found in a request.
type known struct {
	rule      *compiled
	key       string
	overrides []*terms      // ended or not, in the order in which they come
	floor     *stint.Policy // nil: none
}

// client finds what a rule has of a client.
func (s *Set) client(id, client string) (k known, err error) {
	c := s.byID[id]
	if c == nil {
		return known{}, stint.Invalid("rule", id, "the ID of a rule in force")
	}
	k.rule = c
	if k.key, err = c.clientKey(client, s.bits, false); err != nil {
		return known{}, err
	}
	_, client, _ = c.cutPartition(client)
	if parts, err := splitKey("key", client, ""); err == nil { // not one that is counted by address
		text, start := c.keyOf(parts)
		address := ""
		if at := c.addressPart(); at >= 0 {
			address = parts[at].text
		}
		c.overrideOf(text, start, address, new([]byte), func(o *terms) bool {
			if !slices.Contains(k.overrides, o) { // its own one may be a network's
				k.overrides = append(k.overrides, o)
			}
			return false
		})
		k.floor = c.floorOf(text)
	}
	return k, nil
}

// overrideOf is the first override of a client that holds: its own, else that of the longest network that has its
// address; nil if there is none. The address is a part of the client's key, from start on. Networks
// are tried from the longest prefix on: each one makes the key that an override of that network
// has, and looks it up, which takes as many lookups as there are different lengths.
func (c *compiled) overrideOf(
	key []byte, start int, address string, buffer *[]byte, holds func(*terms) bool,
) *terms {
	if len(c.overrides) == 0 {
		return nil
	}
	o := c.overrideAt(key, holds)
	if o != nil || len(c.lengths[0])+len(c.lengths[1]) == 0 || address == noAddress {
		return o
	}
	host, _, _ := strings.Cut(address, "/")
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	for _, length := range c.lengths[ipVersion(ip)] {
		network, _ := ip.Prefix(length) // as long as the address at most
		*buffer = append(network.AppendTo(append((*buffer)[:0], key[:start]...)), key[start+len(address):]...)
		if o := c.overrideAt(*buffer, holds); o != nil {
			return o
		}
	}
	return nil
}

// overrideAt is the override of a key, nil if there is none or it does not hold.
func (c *compiled) overrideAt(key []byte, holds func(*terms) bool) *terms {
	if o := c.overrides[string(bounded(key))]; o != nil && holds(o) {
		return o
	}
	return nil
}
