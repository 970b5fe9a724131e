package rules

// AppendPath appends the canonical form of a path.
func AppendPath(to []byte, path string) []byte { return appendPath(to, path) }
