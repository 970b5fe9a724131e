package rls

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// PolicyPrefix begins the names of descriptors' policies; the domain follows.
const PolicyPrefix = "envoy/"

// A tree is domains ready to be asked: each limit found by a walk over the entries of a descriptor,
// with its policies made. It is immutable; a new configuration is a new tree.
type tree struct {
	domains map[string]*domain
	list    []*domains.Domain // as they were given
	limits  int
}

// A domain is the limits of one.
type domain struct {
	name string
	root node
	// joined looks for descriptors by key and value joined by _, as the reference service does, so that user=internal
	// meets the key user_internal. Else keys and values are compared each by itself.
	joined bool
	// made has all limits by ID, for the next tree to take over what is unchanged.
	made map[string]*limit
	// kept is what domains of one name have in common, before and after they are changed.
	kept *kept
}

// A node is a level of a domain: what holds for the entries that led to it, and what comes next.
type node struct {
	// children are by KEY_VALUE, or by KEY for any value.
	children map[string]*node
	// key and value are the descriptor's own; a value of "" is any.
	key, value string
	// wildcards are those of the children with stars, in the order of the file.
	wildcards []wildcard
	limit     *limit // nil if none
	pattern   string // KEY_VALUE, if that is a wildcard
	// shared gives all that the wildcard matches one counter.
	shared bool
	// metric names statistics by the value.
	metric bool
}

// A wildcard is a child whose KEY_VALUE has stars.
type wildcard struct {
	composite, key, value pattern
	node                  *node
}

// matches reports whether an entry, as KEY_VALUE with a key of so many bytes, is one that the wildcard stands for.
func (w *wildcard) matches(composite []byte, key int, joined bool) bool {
	if joined {
		return w.composite.matches(composite)
	}
	return w.key.matches(composite[:key]) && (w.node.value == "" || w.value.matches(composite[key+1:]))
}

// A pattern is a text with stars: the parts between them.
type pattern []string

func newPattern(text string) pattern { return strings.Split(text, "*") }

// matches reports whether the parts are in a text in their order, the first at its beginning, the
// last at its end.
func (p pattern) matches(text []byte) bool {
	first, last := p[0], p[len(p)-1]
	if len(p) == 1 { // without a star
		return string(text) == first
	}
	if len(text) < len(first)+len(last) || string(text[:len(first)]) != first ||
		string(text[len(text)-len(last):]) != last {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range p[1 : len(p)-1] {
		at := bytes.Index(text, []byte(part))
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// A limit is what a descriptor that ends at a node is decided by.
type limit struct {
	domains.RateLimit
	// id is DOMAIN.KEY_VALUE.KEY, as the reference service calls it.
	id string
	// rule is what events name.
	rule   string
	domain string

	shadow, quota, detailed bool
	metadata                map[string]*structpb.Value

	// current is the limit as answers have it; nil if unlimited.
	current *pb.RateLimitResponse_RateLimit
	// policy is the limit itself; nil if there is nothing to decide, as with a limit of 0.
	policy *stint.Policy
	// counter counts for the reference accounting, whatever the limit is; nil if policy does.
	counter *stint.Policy
	// window tells when the window ends; nil if the algorithm has none of a fixed length.
	window *algorithm.Machine
	// counters are the limit's statistics; nil until they are used.
	counters atomic.Pointer[counters]
	// brought is what a request brought; the zero value if the limit is configured.
	brought override
}

// reference reports whether each request counts, denied or not.
func (l *limit) reference() bool { return l.Accounting == domains.Reference }

// compile makes a tree of domains, of which each name is one domain. What of an older tree, which may be
// nil, stays as it is keeps its policies, with what stores prepared for them.
func compile(list []*domains.Domain, accounting domains.Accounting, old *tree) (*tree, error) {
	t := &tree{domains: map[string]*domain{}, list: list}
	for _, given := range list {
		d := t.domains[given.Name]
		if d == nil {
			d = newDomain(given.Name)
			d.joined = accounting == domains.Reference
			t.domains[given.Name] = d
		}
		var was *domain
		if old != nil {
			was = old.domains[given.Name]
		}
		if was == nil {
			was = newDomain(given.Name)
		} else {
			d.kept = was.kept
		}
		if err := d.add(&d.root, given.Name+".", given.Descriptors, accounting, was); err != nil {
			return nil, fmt.Errorf("%s: %w", given.From, err)
		}
	}
	for _, d := range t.domains {
		t.limits += len(d.made)
	}
	return t, nil
}

// newDomain makes a domain without limits.
func newDomain(name string) *domain {
	return &domain{name: name, made: map[string]*limit{}, kept: &kept{
		overrides: map[override]*limit{}, counters: map[stint.Limit]*stint.Policy{},
	}}
}

// add adds descriptors below a node.
func (d *domain) add(
	n *node, path string, list []domains.Descriptor, accounting domains.Accounting, was *domain,
) error {
	if n.children == nil {
		n.children = make(map[string]*node, len(list))
	}
	for i := range list {
		given := &list[i]
		composite := given.Composite()
		next := &node{key: given.Key, value: given.Value, metric: given.ValueToMetric}
		if strings.Contains(composite, "*") {
			next.pattern = composite
			n.wildcards = append(n.wildcards, wildcard{
				newPattern(composite), newPattern(given.Key), newPattern(given.Value), next,
			})
			next.shared = given.ShareThreshold
		}
		if given.RateLimit != nil {
			l, err := d.newLimit(path+composite, given, accounting)
			if err != nil {
				return err
			}
			if old := was.made[l.id]; old != nil && old.same(l) {
				l = old
			}
			d.made[l.id], next.limit = l, l
		}
		if err := d.add(next, path+composite+".", given.Descriptors, accounting, was); err != nil {
			return err
		}
		n.children[composite] = next
	}
	return nil
}

// same reports whether two limits decide alike, and tell the same of it. Then the old one is kept,
// with its policies and what stores prepared for them.
func (l *limit) same(o *limit) bool {
	a, b := l.RateLimit, o.RateLimit
	sameReplaces := slices.Equal(a.Replaces, b.Replaces)
	a.Replaces, b.Replaces = nil, nil
	return sameReplaces && fmt.Sprint(a) == fmt.Sprint(b) && l.shadow == o.shadow && l.quota == o.quota &&
		l.detailed == o.detailed && fmt.Sprint(l.metadata) == fmt.Sprint(o.metadata)
}

// newLimit makes the limit of a descriptor, with its policies.
func (d *domain) newLimit(id string, given *domains.Descriptor, accounting domains.Accounting) (*limit, error) {
	l := &limit{
		RateLimit: *given.RateLimit, id: id, rule: PolicyPrefix + id, domain: d.name,
		shadow: given.ShadowMode, quota: given.QuotaMode, detailed: given.DetailedMetric,
	}
	if l.Accounting == "" {
		l.Accounting = accounting
	}
	if l.Algorithm == stint.AlgorithmConcurrency { // a place that nobody got is not counted
		l.Accounting = domains.Atomic
	}
	if given.Metadata != nil {
		fields, err := structpb.NewStruct(given.Metadata)
		if err != nil {
			return nil, fmt.Errorf("the metadata of %s: %w", id, err)
		}
		l.metadata = fields.Fields
	}
	return l, d.prepare(l, 1, "")
}

// prepare gives a limit its policies. The name tells its states from those of other limits.
func (d *domain) prepare(l *limit, multiplier int64, name string) error {
	if l.Unlimited {
		return nil
	}
	l.current = &pb.RateLimitResponse_RateLimit{
		RequestsPerUnit: l.RequestsPerUnit, Unit: pb.RateLimitResponse_RateLimit_Unit(l.Unit), Name: l.Name,
	}
	nominal, err := l.Limit(multiplier)
	if err != nil {
		return err
	}
	if counted := nominal; nominal.Algorithm == stint.AlgorithmFixedWindow {
		counted.Capacity = bounds.MaxPermits
		window := algorithm.NewMachine(counted)
		l.window = &window
		if l.reference() {
			if l.counter, err = d.kept.counterOf(d.name, counted); err != nil {
				return err
			}
		}
	}
	if l.RequestsPerUnit > 0 {
		nominal.Name += name
		l.policy, err = stint.NewPolicy(policyName(d.name), nominal)
	}
	return err
}

// policyName is the name of the policies of a domain, whatever its own is. A name that is too long
// for a policy stands as its SHA-256.
func policyName(domain string) string {
	name := PolicyPrefix + domain
	if _, err := stint.NewPolicy(name, stint.FixedWindow(1, bounds.MaxPeriod)); err != nil {
		sum := sha256.Sum256([]byte(domain))
		return PolicyPrefix + "sha256-" + hex.EncodeToString(sum[:16])
	}
	return name
}

// A lookup finds the limit of a descriptor. It is used again, to save its allocations.
type lookup struct {
	composite []byte
	// values are, for each entry, the pattern that stands for its value; "" is the value itself.
	values []string
	// metric is the name of the statistics if it is not the limit's own.
	metric []byte
	shared bool // whether any of the values is a pattern
}

// find finds the limit of a descriptor, nil if there is none: where all entries have led, by the
// entry's key and value, else by the first wildcard, else by the key alone. What the lookup holds
// is of this descriptor until the next. Children have different KEY_VALUE, so that one found by it is the only one that
// may be meant; unless keys and values are joined, it also has to have the entry's key and value.
func (f *lookup) find(d *domain, entries []*common.RateLimitDescriptor_Entry) *limit {
	f.values, f.shared = f.values[:0], false
	f.metric = append(f.metric[:0], d.name...)
	at := &d.root
	for i, e := range entries {
		f.composite = append(append(append(f.composite[:0], e.Key...), '_'), e.Value...)
		next := at.children[string(f.composite)]
		if next != nil && !d.joined && (next.key != e.Key || next.value != e.Value) {
			next = nil
		}
		exact, wild := next != nil, false
		for j := 0; next == nil && j < len(at.wildcards); j++ {
			if at.wildcards[j].matches(f.composite, len(e.Key), d.joined) {
				next, wild = at.wildcards[j].node, true
			}
		}
		if next == nil {
			next = at.children[e.Key]
		}
		if next == nil || !exact && !wild && !d.joined && (next.key != e.Key || next.value != "") {
			return nil
		}
		pattern := ""
		if wild && next.shared {
			pattern = next.valueFor(e.Key)
		}
		f.values, f.shared = append(f.values, pattern), f.shared || pattern != ""
		f.nameMetric(e, next, exact, wild)
		if i == len(entries)-1 {
			return next.limit
		}
		if at = next; len(at.children) == 0 {
			return nil
		}
	}
	return nil
}

// valueFor is a wildcard without the key of the entry that it matches.
func (n *node) valueFor(key string) string {
	if len(n.pattern) > len(key) && n.pattern[len(key)] == '_' && strings.HasPrefix(n.pattern, key) {
		return n.pattern[len(key)+1:]
	}
	return n.pattern
}

// nameMetric adds an entry to the name of the statistics, as value_to_metric has it.
func (f *lookup) nameMetric(e *common.RateLimitDescriptor_Entry, n *node, exact, wild bool) {
	value := ""
	switch {
	case wild && (n.shared || !n.metric):
		value = n.valueFor(e.Key)
	case exact || n.metric:
		value = e.Value
	}
	f.metric = append(append(f.metric, '.'), e.Key...)
	if value != "" {
		f.metric = append(append(f.metric, '_'), value...)
	}
}

// appendDetailed writes the name of statistics as detailed_metric has it, by the request's own values.
// Where values share a counter, their pattern stands for them.
func (f *lookup) appendDetailed(name []byte, domain string, entries []*common.RateLimitDescriptor_Entry) []byte {
	name = append(name, domain...)
	for i, e := range entries {
		name = append(append(name, '.'), e.Key...)
		switch {
		case f.values[i] != "":
			name = append(append(name, '_'), f.values[i]...)
		case e.Value != "" || !f.shared:
			name = append(append(name, '_'), e.Value...)
		}
	}
	return name
}

// appendKey writes the key of a descriptor's states. Joined, it is what the reference service has, in which the key a_b
// and the key a with a value that begins with b can't be told apart; else nothing reads alike.
func (f *lookup) appendKey(key []byte, entries []*common.RateLimitDescriptor_Entry, joined bool) []byte {
	for i, e := range entries {
		value := e.Value
		if i < len(f.values) && f.values[i] != "" {
			value = f.values[i]
		}
		if joined {
			key = append(append(append(append(key, e.Key...), '_'), value...), '_')
			continue
		}
		if i > 0 {
			key = append(key, '|')
		}
		key = appendEscaped(key, e.Key, '=')
		key = appendEscaped(append(key, '='), value, 0)
	}
	if len(key) > bounds.MaxKeyBytes {
		sum := sha256.Sum256(key)
		key = hex.AppendEncode(append(key[:0], `\sha256:`...), sum[:])
	}
	return key
}

// appendEscaped writes a text with a \ before what parts of a key are separated by.
func appendEscaped(to []byte, text string, also byte) []byte {
	for i := range len(text) {
		if c := text[i]; c == '|' || c == '\\' || also != 0 && c == also {
			to = append(to, '\\')
		}
		to = append(to, text[i])
	}
	return to
}
