package document

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/stint-go/stint/internal/clip"
)

// maxAliased bounds the values that all aliases of a document stand for, which is how a short text
// becomes a long one. It is about what gopkg.in/yaml.v2 allows.
const maxAliased = 400_000

// aliases are the anchors of a document, and what its aliases may still stand for.
type aliases struct {
	anchors map[*yaml.Node]anchored
	left    int // less than none: they stood for too much
}

// An anchored value is one with an anchor. All its aliases share its memory.
type anchored struct {
	value Value
	size  int // the value and those in it, counted as often as they are there
	depth int // the lists and mappings in each other
}

// define notes the value of an anchor.
func (a *aliases) define(n *yaml.Node, v Value) {
	if a.anchors == nil {
		a.anchors = map[*yaml.Node]anchored{}
	}
	size, depth := measure(v)
	a.anchors[n] = anchored{v, size, depth}
}

// measure is how many values a value is, and how deep lists and mappings are in each other.
func measure(v Value) (size, depth int) {
	size = 1
	inner := func(v Value) {
		n, deep := measure(v)
		size, depth = size+n, max(depth, deep)
	}
	for _, item := range v.Items {
		inner(item)
	}
	for _, f := range v.Fields {
		inner(f.Value)
	}
	if v.Kind == KindList || v.Kind == KindMapping {
		depth++
	}
	return size, depth
}

// alias is what an alias stands for.
func (r *yamlReader) alias(n *yaml.Node, depth int) Value {
	at, a := r.start(n), r.aliases
	target, known := a.anchors[n.Alias]
	switch {
	case a.left < 0: // which is told
		return Value{At: at}
	case !known:
		r.faults.Add(at, "the value of the anchor %q contains itself", clip.To(maxName, n.Value))
		return Value{At: at}
	case depth+target.depth > maxDepth:
		r.faults.Add(at, "%s", tooDeep)
		return Value{At: at}
	}
	if a.left -= target.size; a.left < 0 {
		r.faults.Add(at, "the aliases stand for too many values; allowed: %d", maxAliased)
		return Value{At: at}
	}
	v := target.value
	v.At = at
	return v
}

// merged are the fields of a merge key, which stands behind so many other fields.
type merged struct {
	behind int
	fields []Field
}

// merge is the fields that a merge key merges: those of a mapping, or of several in a list, of which the first counts
// most.
func (r *yamlReader) merge(n *yaml.Node, depth int) (list []Field) {
	v := r.value(n, depth)
	from := []Value{v}
	if v.Kind == KindList {
		from = v.Items
	}
	for _, each := range slices.Backward(from) {
		if each.Kind == KindNull && len(*r.faults) > 0 { // an alias that has no value, for one of them
			return nil
		}
		if each.Kind != KindMapping {
			r.faults.Add(v.At, "<< is %v; allowed: a mapping, or a list of mappings", each)
			return nil
		}
		list = append(list, each.Fields...)
	}
	return list
}

// mergeAll puts the fields of merge keys between the others.
func mergeAll(list []Field, merges []merged) []Field {
	if len(merges) == 0 {
		return list
	}
	var all []Field
	begin := 0
	for _, m := range merges {
		all = append(append(all, list[begin:m.behind]...), m.fields...)
		begin = m.behind
	}
	return append(all, list[begin:]...)
}

// isBoolean11 reports whether a scalar is a boolean by YAML 1.1 alone. A text in quotes is none.
func isBoolean11(n *yaml.Node) bool {
	const quoted = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	lower := strings.ToLower(n.Value)
	if n.Style&quoted != 0 || !slices.Contains([]string{"y", "yes", "on", "n", "no", "off"}, lower) {
		return false
	}
	// yes, Yes and YES are, yEs is not.
	return n.Value == lower || n.Value == strings.ToUpper(lower) || n.Value == strings.ToUpper(lower[:1])+lower[1:]
}
