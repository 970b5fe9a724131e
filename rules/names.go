package rules

import (
	"slices"

	"github.com/stint-go/stint"
)

var (
	missingNames  = []string{"", "skip", "deny", "ip"}
	onExceedNames = []string{"reject", "wait", "shadow"}
)

// String is skip, deny or ip, and nothing for MissingUnset.
func (m Missing) String() string { return nameOf(missingNames, uint8(m)) }

// ParseMissing reads skip, deny or ip.
func ParseMissing(name string) (Missing, error) {
	if i := slices.Index(missingNames, name); i > 0 {
		return Missing(i), nil
	}
	return MissingUnset, stint.Invalid("missing", name, "skip, deny or ip")
}

// String is reject, wait or shadow.
func (o OnExceed) String() string { return nameOf(onExceedNames, uint8(o)) }

// ParseOnExceed reads reject, wait or shadow.
func ParseOnExceed(name string) (OnExceed, error) {
	if i := slices.Index(onExceedNames, name); i >= 0 {
		return OnExceed(i), nil
	}
	return Reject, stint.Invalid("on_exceed", name, "reject, wait or shadow")
}

func nameOf(names []string, i uint8) string {
	if int(i) >= len(names) {
		return "unknown"
	}
	return names[i]
}
