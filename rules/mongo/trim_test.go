package mongo

import "testing"

// A state may go when another of its rule is applied, or when it only says of a version that is
// not kept that the rule is gone.
func TestOutdated(t *testing.T) {
	at := func(rule string, version int64) state { return state{ID: stateID(rule, version), Version: version} }
	gone := func(rule string, version int64) state {
		s := at(rule, version)
		s.Deleted = true
		return s
	}
	for _, c := range []struct {
		name  string
		s     state
		after []state
		want  bool
	}{
		{"the last one", at("a", 5), nil, false},
		{"another rule comes", at("a", 5), []state{at("b", 6)}, false},
		{"a rule with a longer ID comes", at("a", 5), []state{at("aa", 6)}, false},
		{"a newer one comes", at("a", 5), []state{at("a", 6)}, true},
		{"a newer one comes that is not applied", at("a", 5), []state{at("a", 2001)}, false},
		{"the rule is gone since", at("a", 5), []state{gone("a", 6)}, true},
		{"gone, long ago", gone("a", 1000), nil, true},
		{"gone, by a version that is kept", gone("a", 1001), nil, false},
		{"gone, and back", gone("a", 1500), []state{at("a", 1600)}, true},
	} {
		if got := c.s.outdated(c.after, 2000, 1000); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// States are in the order of their versions, those of one rule beside each other.
func TestStateID(t *testing.T) {
	for _, pair := range [][2]string{
		{stateID("a", 9), stateID("a", 10)},
		{stateID("a", 1<<62), stateID("b", 1)},
		{versionID(9), versionID(10)},
		{versionID(999_999), versionID(1 << 62)},
	} {
		if pair[0] >= pair[1] {
			t.Errorf("%s does not come before %s", pair[0], pair[1])
		}
	}
}
