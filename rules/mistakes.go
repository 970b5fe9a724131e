package rules

import (
	"slices"
	"strings"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
)

// A mistake is a part of a rule that is valid, and can hardly be meant. [Options] say whether it is a fault;
// else it is a [Warning].
type mistake struct {
	kind string // as a Warning's
	// param, value and allowed are as of a fault.
	param   string
	value   any // a string or plain
	allowed string
	// harmless says that some requests get what is meant, so that it is always a warning.
	harmless bool
}

// The kinds of mistakes.
const (
	kindDialect = "has a path that is written as for another router"
	kindMethod  = "has a method that no request has"
)

// warning is the mistake as a warning.
func (m *mistake) warning() Warning {
	text := stint.Invalid(m.param, m.value, m.allowed).Error()
	return Warning{Kind: m.kind, Detail: prefix.Trim(text), Mistake: !m.harmless}
}

// maxMistakes bounds the warnings of one rule's mistakes.
const maxMistakes = 16

// warnOfMistakes warns of mistakes, the first ones if they are many.
func (c *compiled) warnOfMistakes(list []Warning) []Warning {
	mistakes := c.mistakes()
	for i := range mistakes[:min(len(mistakes), maxMistakes)] {
		list = append(list, mistakes[i].warning())
	}
	return list
}

// refuse notes the mistakes of a rule that the rule was without before; was may be nil.
func (f *faults) refuse(rule, was *Rule) {
	var known []mistake
	if was != nil {
		known = was.mistakes()
	}
	for _, m := range rule.mistakes() {
		if !m.harmless && !slices.Contains(known, m) {
			f.invalid(m.param, m.value, m.allowed)
		}
	}
}

// mistakes are the rule's, which may have faults.
func (r *Rule) mistakes() (list []mistake) {
	for _, method := range r.Match.Methods {
		if strings.ContainsAny(method, "*|") && isToken(method) {
			list = append(list, mistake{
				kind: kindMethod, param: "match.methods", value: method,
				allowed: "each method by itself, such as GET, or no methods, which is any",
			})
		}
	}
	for _, paths := range []struct {
		param string
		texts []string
	}{{"match.paths", r.Match.Paths}, {"match.except", r.Match.Except}} {
		for i, text := range paths.texts {
			if _, valid := takePattern(text); !valid {
				continue
			}
			if allowed, likely := inDialect(text); allowed != "" {
				list = append(list, mistake{
					kind: kindDialect, param: placeOf(paths.param, i, len(paths.texts)), value: text,
					allowed: allowed, harmless: likely,
				})
			}
		}
	}
	return r.neverAdmits(list)
}
