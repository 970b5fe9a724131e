package registry

import (
	"time"

	"github.com/stint-go/stint/rules"
)

const (
	// KeptVersions is how many versions a backend keeps at least, the newest ones, as far as they
	// fit.
	KeptVersions = 1000
	// KeptBytes bounds the versions that a backend keeps in memory, each as JSON: there is room for
	// eight of the largest.
	KeptBytes = 64 << 20
	// MaxVersionBytes bounds what one edit may change: the version as JSON.
	MaxVersionBytes = 8 << 20
	// MaxRuleBytes bounds a rule as JSON, so that the next edit of it, which holds it as it was and
	// as it is, is not too large.
	MaxRuleBytes = 2 << 20
)

// A Head names the newest version of all. The zero value is that of a backend without any.
type Head struct {
	// Number counts the versions from 1.
	Number int64
	// At is when it was made, microseconds since the Unix epoch. It tells versions of one number
	// apart, of which one was lost with the backend's data.
	At int64
}

// An Author says who makes an edit, and what for.
type Author struct {
	// By is who makes it, such as a token's name. Default: "", nobody knows.
	By string
	// Action says in a few words what it does, such as "replace login". Default: "".
	Action string
	// Comment is what the author has to say. Default: "".
	Comment string
}

// A Version is what one edit made of the rules.
type Version struct {
	Head
	Author
	// Changes are by ID, at least one.
	Changes []Change
}

// Time is when the version was made.
func (v *Version) Time() time.Time { return time.UnixMicro(v.At) }

// A Change is what happened to one rule.
type Change struct {
	ID string
	// Before is the rule as it was; nil if there was none.
	Before *rules.Rule
	// After is the rule as it is; nil if there is none any more.
	After *rules.Rule
}

// A Snapshot is all rules as they are at a version.
type Snapshot struct {
	Head
	// Rules are by ID. They must not be changed.
	Rules []rules.Rule
}
