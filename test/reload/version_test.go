package reload_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
)

// A known rule is one as the model knows it, with policies of the model's own.
type known struct {
	rule      rules.Rule
	host      string   // in small letters
	segments  []string // of its path; nil: any path
	below     bool     // whether the path goes on
	shared    int      // its place among the shared rules, -1 of others
	policy    *stint.Policy
	overrides map[string]*stint.Policy // nil of those without limits
}

// newKnown takes a rule's pattern apart.
func newKnown(r *rules.Rule) *known {
	k := &known{rule: *r, host: strings.ToLower(strings.Join(r.Match.Hosts, "")), shared: -1} // one at most
	path, below := strings.CutSuffix(strings.Join(r.Match.Paths, ""), "/**")
	k.below = below || len(r.Match.Paths) == 0
	if path != "" {
		k.segments = strings.Split(path[1:], "/")
	}
	return k
}

func (k *known) hasTeam() bool { return slices.Contains(k.segments, "{team}") }

// prepare makes the policies.
func (k *known) prepare() error {
	if number, shared := strings.CutPrefix(k.rule.ID, sharedPrefix); shared {
		k.shared, _ = strconv.Atoi(number)
	}
	var err error
	if len(k.rule.Limits) > 0 {
		if k.policy, err = stint.NewPolicy("rule/"+k.rule.ID, k.rule.Limits...); err != nil {
			return err
		}
	}
	k.overrides = map[string]*stint.Policy{}
	for _, o := range k.rule.Overrides {
		k.overrides[o.Key] = nil
		if len(o.Limits) > 0 {
			if k.overrides[o.Key], err = stint.NewPolicy("rule/"+k.rule.ID, o.Limits...); err != nil {
				return err
			}
		}
	}
	return nil
}

// matches looks at everything that the rule asks of a request, one after another.
func (k *known) matches(r *request) bool {
	if suffix, below := strings.CutPrefix(k.host, "*"); below && !strings.HasSuffix(r.host, suffix) || !below && k.host != "" && k.host != r.host {
		return false
	}
	if methods := k.rule.Match.Methods; len(methods) > 0 && !slices.Contains(methods, r.Method) {
		return false
	}
	for name, value := range k.rule.Match.Headers {
		lines := r.Header.Values(name)
		if len(lines) == 0 || value != "*" && !slices.Contains(lines, value) {
			return false
		}
	}
	if len(r.segments) < len(k.segments) || len(r.segments) > len(k.segments) && !k.below {
		return false
	}
	for i, segment := range k.segments {
		if segment != "*" && segment[0] != '{' && segment != r.segments[i] {
			return false
		}
	}
	return true
}

// A version is a set as the model knows it.
type version struct {
	number  int
	byID    map[string]*known
	at      map[string][]*known // rules of paths whose first segment is this
	anyPath []*known
}

// newVersion makes one; what an older one knows of rules that are the same is kept.
func newVersion(number int, list []rules.Rule, old *version) (*version, error) {
	v := &version{number: number, byID: make(map[string]*known, len(list)), at: map[string][]*known{}}
	for i := range list {
		id := list[i].ID
		var k *known
		if old != nil {
			k = old.byID[id]
		}
		if k == nil || !reflect.DeepEqual(k.rule, list[i]) {
			k = newKnown(&list[i])
			if err := k.prepare(); err != nil {
				return nil, fmt.Errorf("rule %s: %w", id, err)
			}
		}
		v.byID[id] = k
		switch {
		case k.rule.Disabled:
		case len(k.segments) == 0 || k.segments[0] == "*":
			v.anyPath = append(v.anyPath, k)
		default:
			v.at[k.segments[0]] = append(v.at[k.segments[0]], k)
		}
	}
	return v, nil
}

// match is the rules that hold for a request, in order.
func (v *version) match(r *request) (found []*known) {
	for _, list := range [][]*known{v.anyPath, v.at[r.segments[0]]} {
		for _, k := range list {
			if k.matches(r) {
				found = append(found, k)
			}
		}
	}
	slices.SortFunc(found, func(a, b *known) int {
		return cmp.Or(cmp.Compare(b.rule.Priority, a.rule.Priority), cmp.Compare(a.rule.ID, b.rule.ID))
	})
	return found
}

// numberOf is the number of the set that the matched rules are of. Those of two sets have none.
func numberOf(matched []string) (int, error) {
	if len(matched) > 0 {
		first, begins := strings.CutPrefix(matched[0], "first-")
		last, ends := strings.CutPrefix(matched[len(matched)-1], "last-")
		if number, err := strconv.Atoi(first); begins && ends && first == last && err == nil {
			return number, nil
		}
	}
	return 0, fmt.Errorf("matched are %v: not one whole set", matched)
}
