package envoy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A descriptor is one of a configuration.
type descriptor struct {
	key, value string
	limit      *limit
	flags      []string // such as shadow_mode
	below      []*descriptor
}

type limit struct {
	unit      string
	requests  uint32
	unlimited bool
	name      string
	replaces  []string
}

// Keys and values are drawn from few, which are the beginnings of each other and meet in their underscores: the key a
// with the value b_c is the same text to a lookup as the key a_b with the value c.
var (
	keys     = []string{"a", "b", "c", "a_b", "b_c", "a_b_c", "x"}
	values   = []string{"a", "b", "c", "b_c", "a_b", "c_a", "x", "x1", "x2", "xy", "1", "12"}
	patterns = []string{"*", "x*", "x1*", "b*", "b_*", "a*", "1*", "a_b*"}

	names = []string{"n1", "n2", "n3", "n4"}
	// quotaNames tell limits in quota mode, all of which have one, from others by their answers.
	quotaNames = []string{"q1", "q2", "q3"}
)

// full is the key that a lookup finds a descriptor by.
func (d *descriptor) full() string {
	if d.value == "" {
		return d.key
	}
	return d.key + "_" + d.value
}

func (d *descriptor) wildcard() bool { return strings.HasSuffix(d.full(), "*") }

// pick draws one of some.
func pick[T any](random *rand.Rand, some []T) T { return some[random.IntN(len(some))] }

// chance is true in so many percent of cases.
func chance(random *rand.Rand, percent float64) bool { return random.Float64()*100 < percent }

// drawDescriptors draws the descriptors of one level, from 1 to most. seconds says whether a limit may be per
// second, and collides whether a key that is a wildcard by itself may share its counter, which in the reference
// only the same keys do.
func drawDescriptors(random *rand.Rand, level, most int, seconds, collides bool) (drawn []*descriptor) {
	taken := make(map[string]bool)
	for range 1 + random.IntN(most) {
		d := &descriptor{key: pick(random, keys)}
		switch kind := random.IntN(100); {
		case kind < 40:
			d.value = pick(random, values)
		case kind < 65:
			d.value = pick(random, patterns)
		case kind < 68:
			d.key += "*" // a wildcard, too, though it has no value
		}
		if taken[d.full()] {
			continue // the reference does not load what is there twice
		}
		taken[d.full()] = true
		const deepest = 4
		if level < deepest && chance(random, 60-10*float64(level)) {
			d.below = drawDescriptors(random, level+1, 4, seconds, collides)
		}
		if d.below == nil && !chance(random, 4) || chance(random, 50) {
			d.limit = drawLimit(random, seconds)
		}
		for _, flag := range []string{"shadow_mode", "detailed_metric", "value_to_metric"} {
			if chance(random, 12) {
				d.flags = append(d.flags, flag)
			}
		}
		if chance(random, 25) {
			d.flags = append(d.flags, "quota_mode")
			if d.limit != nil {
				d.limit.name = pick(random, quotaNames)
				d.limit.replaces = without(d.limit.replaces, d.limit.name)
			}
		}
		if d.wildcard() && chance(random, 40) && (collides || d.value != "") {
			d.flags = append(d.flags, "share_threshold")
		}
		drawn = append(drawn, d)
	}
	return drawn
}

func without(some []string, one string) []string {
	return slices.DeleteFunc(some, func(other string) bool { return other == one })
}

func drawLimit(random *rand.Rand, seconds bool) *limit {
	units := []string{
		"minute", "minute", "minute", "Minute", "hour", "hour", "HOUR", "day", "day", "week", "month", "year",
	}
	if seconds {
		units = append(units, "second", "second")
	}
	l := &limit{unit: pick(random, units), requests: uint32(1 + random.IntN(12))}
	switch kind := random.IntN(100); {
	case kind < 6:
		l.requests = 0
	case kind < 8:
		l.requests = 999_999_999 // counters end above: see TestGreatestLimit
	case kind < 18:
		l.unlimited, l.unit = true, ""
	}
	if chance(random, 40) {
		l.name = pick(random, names)
	}
	for chance(random, 15) {
		l.replaces = append(l.replaces, pick(random, slices.Concat(names, quotaNames)))
	}
	l.replaces = without(l.replaces, l.name)
	return l
}

// yaml writes a configuration.
func yaml(domain string, descriptors []*descriptor) string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "domain: %s\ndescriptors:\n", domain)
	for _, d := range descriptors {
		d.write(text, "  ")
	}
	return text.String()
}

func (d *descriptor) write(text *strings.Builder, indent string) {
	line := func(format string, arguments ...any) {
		text.WriteString(indent + "  ")
		fmt.Fprintf(text, format+"\n", arguments...)
	}
	fmt.Fprintf(text, "%s- key: %q\n", indent, d.key)
	if d.value != "" {
		line("value: %q", d.value)
	}
	if l := d.limit; l != nil {
		line("rate_limit:")
		if l.name != "" {
			line("  name: %s", l.name)
		}
		if l.unlimited {
			line("  unlimited: true")
		} else {
			line("  unit: %s", l.unit)
			line("  requests_per_unit: %d", l.requests)
		}
		if len(l.replaces) > 0 {
			line("  replaces:")
		}
		for _, name := range l.replaces {
			line("    - name: %s", name)
		}
	}
	for _, flag := range d.flags {
		line("%s: true", flag)
	}
	if len(d.below) > 0 {
		line("descriptors:")
	}
	for _, below := range d.below {
		below.write(text, indent+"    ")
	}
}
