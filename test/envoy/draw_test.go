package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A domain is one configuration, loaded under several names, and the requests to it. One request is in flight at a
// time.
//
// The two sides compute windows from the same clock, but a moment after each other. Where a window ends between their
// answers, they count the same request in different windows. Such a request says nothing, and the counters differ from
// then on. So a domain is loaded under several names, its generations, and goes on with the next one, whose counters
// are all at zero. As nearly all such requests are avoided by waiting for the end of a window that is near, few
// generations are needed for that. In a long run, domains also go on now and then because their long windows are full.
type domain struct {
	number      int
	generation  int
	generations int
	retired     bool // it differed
	seconds     bool // it has limits per second
	descriptors []*descriptor
	random      *rand.Rand
	drawn       int                           // how many requests were
	favourites  []*common.RateLimitDescriptor // which are sent again and again, for a while

	counters map[string]counter // by their names in the reference
	collides bool               // whether different descriptors may share a counter
}

const (
	// while is for how many requests a domain keeps its favourites.
	while = 40
	// lifetime is for how many requests a domain keeps its generation.
	lifetime = 5 * while
)

// generationsFor is how many names a domain has that gets so many requests: some more than it needs.
func generationsFor(requests int) int { return 4 + requests/lifetime }

func drawDomain(seed uint64, number int, collides bool) *domain {
	random := rand.New(rand.NewPCG(seed, uint64(number)))
	d := &domain{
		number: number, random: random, seconds: chance(random, 3), collides: collides,
		counters: make(map[string]counter),
	}
	d.descriptors = drawDescriptors(random, 1, 10, d.seconds, collides)
	return d
}

// drawValue draws a value for a descriptor that has none. Now and then there are new ones, whose counters are at zero.
func (d *domain) drawValue() string {
	if chance(d.random, 50) {
		return fmt.Sprint("v", d.drawn/while)
	}
	return pick(d.random, values)
}

// name has no underscore, so that no domain shares a counter with another one.
func (d *domain) name() string { return d.nameOf(d.generation) }

func (d *domain) nameOf(generation int) string { return fmt.Sprintf("d%dg%d", d.number, generation) }

// draw draws a request, whose domain is that of the generation.
func (d *domain) draw() *rls.RateLimitRequest {
	if d.drawn%while == 0 {
		d.favourites = nil
		for range 6 {
			d.favourites = append(d.favourites, d.drawDescriptor())
		}
	}
	if d.drawn > 0 && d.drawn%lifetime == 0 {
		d.generation++
	}
	d.drawn++
	request := &rls.RateLimitRequest{Domain: d.name()}
	if chance(d.random, 30) {
		request.HitsAddend = uint32(d.random.IntN(6))
	}
	if chance(d.random, 1) {
		d.drawInvalid(request)
		return request
	}
	for range 1 + d.random.IntN(5) {
		if len(request.Descriptors) > 0 && chance(d.random, 8) {
			request.Descriptors = append(request.Descriptors, proto.CloneOf(pick(d.random, request.Descriptors)))
			continue
		}
		one := d.drawDescriptor()
		if chance(d.random, 65) {
			one = proto.CloneOf(pick(d.random, d.favourites))
		}
		d.addHits(one)
		d.override(one)
		if !d.collides {
			one = d.canonical(one)
		}
		request.Descriptors = append(request.Descriptors, one)
	}
	if chance(d.random, 2) {
		request.Domain = "nowhere"
	}
	return request
}

func (d *domain) addHits(one *common.RateLimitDescriptor) {
	switch {
	case chance(d.random, 25):
		one.HitsAddend = wrapperspb.UInt64(uint64(d.random.IntN(6)))
	case chance(d.random, 0.3):
		one.HitsAddend = wrapperspb.UInt64(1_000_000_000) // the most that a route of Envoy adds
	}
}

// override adds a limit that beats the configured one. The reference ends at one of unit 0, so that none is sent.
func (d *domain) override(one *common.RateLimitDescriptor) {
	if !chance(d.random, 10) {
		return
	}
	units := []envoytype.RateLimitUnit{
		envoytype.RateLimitUnit_MINUTE, envoytype.RateLimitUnit_HOUR, envoytype.RateLimitUnit_DAY,
		envoytype.RateLimitUnit_MONTH, envoytype.RateLimitUnit_YEAR,
	}
	if d.seconds {
		units = append(units, envoytype.RateLimitUnit_SECOND)
	}
	one.Limit = &common.RateLimitDescriptor_RateLimitOverride{
		RequestsPerUnit: uint32(d.random.IntN(13)), Unit: pick(d.random, units),
	}
}

// drawDescriptor draws one that mostly finds a limit.
func (d *domain) drawDescriptor() *common.RateLimitDescriptor {
	drawn := &common.RateLimitDescriptor{}
	add := func(key, value string) {
		drawn.Entries = append(drawn.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	level := d.descriptors
	if chance(d.random, 10) {
		level = nil
	}
	for len(level) > 0 {
		at := pick(d.random, level)
		add(d.drawEntry(at))
		level = at.below
		if at.limit != nil && chance(d.random, 50) {
			break
		}
	}
	const deepest = 4
	for len(drawn.Entries) == 0 || len(drawn.Entries) < deepest && chance(d.random, 6) {
		value := pick(d.random, values)
		if chance(d.random, 10) {
			value = ""
		}
		add(pick(d.random, keys), value)
	}
	return drawn
}

// drawEntry draws an entry that finds a descriptor, though perhaps another one is found first.
func (d *domain) drawEntry(at *descriptor) (key, value string) {
	full := at.full()
	switch prefix, wildcard := strings.CutSuffix(full, "*"); {
	case wildcard:
		full = prefix + pick(d.random, []string{"", "1", "2", "y", "a", "b_c", d.drawValue()})
		if !strings.Contains(full, "_") {
			full += "_" + d.drawValue()
		}
	case at.value == "":
		full += "_" + d.drawValue()
		if chance(d.random, 3) {
			full = at.key + "_"
		}
	}
	// The text is split where the descriptor splits it, or at another underscore.
	key, value, _ = strings.Cut(full, "_")
	if splitKey := strings.TrimSuffix(at.key, "*"); strings.HasPrefix(full, splitKey+"_") && !chance(d.random, 15) {
		key, value = splitKey, strings.TrimPrefix(full, splitKey+"_")
	} else if places := strings.Count(full, "_"); places > 1 {
		parts := strings.Split(full, "_")
		place := 1 + d.random.IntN(places)
		key, value = strings.Join(parts[:place], "_"), strings.Join(parts[place:], "_")
	}
	return key, value
}

// find looks a descriptor up as the reference does: at each level the text of key and value, then the first wildcard
// that is the beginning of it, then the key. It returns the limit that it finds, and the keys and values that name its
// counter. This is not what answers are compared with: it only serves to keep away from accidents of the reference.
func (d *domain) find(one *common.RateLimitDescriptor) (found *limit, parts []string) {
	level := d.descriptors
	for i, entry := range one.GetEntries() {
		full, value := entry.GetKey()+"_"+entry.GetValue(), entry.GetValue()
		named := func(text string) int {
			return slices.IndexFunc(level, func(at *descriptor) bool { return at.full() == text })
		}
		at := named(full)
		if at < 0 {
			at = slices.IndexFunc(level, func(at *descriptor) bool {
				prefix, wildcard := strings.CutSuffix(at.full(), "*")
				return wildcard && strings.HasPrefix(full, prefix)
			})
			if at >= 0 && slices.Contains(level[at].flags, "share_threshold") {
				if !d.collides { // the reference has a counter for each way to split the text
					entry.Key, entry.Value = level[at].key, strings.TrimPrefix(full, level[at].key+"_")
				}
				value = strings.TrimPrefix(level[at].full(), entry.GetKey()+"_")
			}
		}
		if at < 0 {
			at = named(entry.GetKey())
		}
		if at < 0 {
			return nil, nil
		}
		parts = append(parts, entry.GetKey(), value)
		if i == len(one.GetEntries())-1 {
			return level[at].limit, parts
		}
		level = level[at].below
	}
	return nil, nil
}

// A counter is what a name of one in the reference stands for.
type counter struct {
	identity string
	first    *common.RateLimitDescriptor // that had it
}

// canonical keeps different limits from sharing a counter, as they do in the reference by accident: its counters are
// named by the text of all keys and values, joined by underscores, and by the beginning of the window. So (a=b_c) and
// (a_b=c) share one, and so do an override per minute and a limit per hour during the first minute of an hour. In each
// domain the first descriptor that has a counter stands for all those that would share it.
func (d *domain) canonical(one *common.RateLimitDescriptor) *common.RateLimitDescriptor {
	found, parts := d.find(one)
	unit := ""
	switch {
	case one.GetLimit() != nil:
		unit, parts = one.GetLimit().GetUnit().String(), nil
		for _, entry := range one.GetEntries() {
			parts = append(parts, entry.GetKey(), entry.GetValue())
		}
	case found == nil || found.unlimited:
		return one
	default:
		unit = strings.ToUpper(found.unit)
	}
	name, identity := strings.Join(parts, "_"), strings.Join(append(parts, unit), "\x00")
	known, seen := d.counters[name]
	if !seen {
		d.counters[name] = counter{identity, proto.CloneOf(one)}
	} else if known.identity != identity {
		other := proto.CloneOf(known.first)
		other.HitsAddend = one.GetHitsAddend()
		return other
	}
	return one
}

// drawInvalid draws a request that the subject refuses on purpose. The reference may answer it, so that it must not
// count.
func (d *domain) drawInvalid(request *rls.RateLimitRequest) {
	entry := &common.RateLimitDescriptor_Entry{Value: pick(d.random, values)}
	invalid := &common.RateLimitDescriptor{HitsAddend: wrapperspb.UInt64(0)}
	switch d.random.IntN(4) {
	case 0:
		request.Domain = ""
		request.Descriptors = append(request.Descriptors, proto.CloneOf(pick(d.random, d.favourites)))
		return
	case 1:
		return
	case 2: // without entries
	case 3:
		valid := proto.CloneOf(pick(d.random, d.favourites)).GetEntries()
		invalid.Entries = append(valid[:len(valid)-1:len(valid)-1], entry)
		if len(valid) < 4 && chance(d.random, 50) {
			invalid.Entries = append(valid, entry)
		}
	}
	other := proto.CloneOf(pick(d.random, d.favourites))
	other.HitsAddend = wrapperspb.UInt64(0)
	request.Descriptors = append(request.Descriptors, other, invalid)
	if chance(d.random, 30) {
		request.Descriptors = request.Descriptors[1:]
	}
}
