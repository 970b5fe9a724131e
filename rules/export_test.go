package rules

import "github.com/stint-go/stint"

// AppendPath appends the canonical form of a path.
func AppendPath(to []byte, path string) []byte { return appendPath(to, path) }

// AtTake is At for a request that takes.
func (m *Matches) AtTake(i int) (matched Matched, err error) {
	err = m.At(i, stint.VerbTake, &matched)
	return matched, err
}
