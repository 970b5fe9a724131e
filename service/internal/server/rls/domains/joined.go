package domains

import (
	"fmt"
	"strings"

	"github.com/stint-go/stint/internal/clip"
)

const (
	maxJoined     = 100 // warnings
	maxUnderscore = 32  // of a key
	maxShown      = 128 // bytes of a key
)

// Joined warns of keys that another key of their level reaches by its value where the service's
// accounting is reference, since the two are looked up as KEY_VALUE then: a client named internal is
// counted by the key user_internal beside the key user. In the atomic accounting they are apart.
func Joined(list []*Domain) (warnings []string) {
	tops := map[string][]placed{} // by domain, as several may be merged
	var names []string
	for _, d := range list {
		if tops[d.Name] == nil {
			names = append(names, d.Name)
		}
		tops[d.Name] = append(tops[d.Name], place(d.From+": descriptors", d.Descriptors)...)
	}
	for _, name := range names {
		warnings = joined(warnings, tops[name])
	}
	return warnings
}

// A placed descriptor is one with where it is.
type placed struct {
	*Descriptor
	at string
}

func place(path string, list []Descriptor) []placed {
	all := make([]placed, len(list))
	for i := range list {
		all[i] = placed{&list[i], fmt.Sprintf("%s[%d]", path, i)}
	}
	return all
}

// joined adds the warnings of one level, and of those below.
func joined(warnings []string, level []placed) []string {
	keys := make(map[string]bool, len(level))
	for _, d := range level {
		keys[d.Key] = true
	}
	for _, d := range level {
		if len(warnings) > maxJoined {
			return warnings
		}
		if key, value, found := reached(d.Descriptor, keys); found && len(warnings) == maxJoined {
			warnings = append(warnings, "and more keys that other keys reach by their values")
		} else if found {
			own, other := clip.To(maxShown, d.Key), clip.To(maxShown, key)
			warnings = append(warnings, fmt.Sprintf("%s: under envoy.accounting: reference, as in Envoy's reference service, "+
				"the key %q also counts %s=%s, since key and value are joined by _; rename it so that it does not begin with %s_, "+
				"or set atomic", d.at, own, other, clip.To(maxShown, value), other))
		}
		warnings = joined(warnings, place(d.at+".descriptors", d.Descriptors))
	}
	return warnings
}

// reached is the key and the value that a descriptor of another key is reached by.
func reached(d *Descriptor, keys map[string]bool) (key, value string, found bool) {
	composite, at := d.Composite(), 0
	for range maxUnderscore {
		next := strings.IndexByte(d.Key[at:], '_')
		if next < 0 {
			break
		}
		at += next + 1
		if keys[d.Key[:at-1]] {
			return d.Key[:at-1], composite[at:], true
		}
	}
	return "", "", false
}
