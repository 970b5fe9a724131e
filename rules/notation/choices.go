package notation

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/rules"
)

// A named is a choice with its name.
type named[T comparable] struct {
	name  string
	value T
}

// The choices that rules have, in the order of messages.
var (
	missings = []named[rules.Missing]{{"skip", rules.MissingSkip}, {"deny", rules.MissingDeny}, {"ip", rules.MissingIP}}
	excesses = []named[rules.OnExceed]{{"reject", rules.Reject}, {"wait", rules.Wait}, {"shadow", rules.Shadow}}
	failures = []named[rules.OnStoreFailure]{{"open", rules.FailOpen}, {"closed", rules.FailClosed}, {"local", rules.FailLocal}}
)

// costKinds are the kinds that the tags of [rules.Cost] name.
var costKinds = document.Kinds{
	"some": func(field any, allowed []string) document.Reader {
		return some(field.(*string), strings.Join(allowed, " "))
	},
	"permits": func(field any, _ []string) document.Reader {
		return document.Integer(field.(*int64), 1, stint.MaxPermits)
	},
}

// kinds are the kinds that the tags of the other structs of package rules name.
var kinds = document.Kinds{
	"some":  costKinds["some"],
	"id":    func(field any, _ []string) document.Reader { return id(field.(*string)) },
	"short": func(field any, _ []string) document.Reader { return shortText(field.(*string)) },
	"texts": func(field any, allowed []string) document.Reader {
		return texts(field.(*[]string), strings.Join(allowed, " "))
	},
	"not":              func(field any, _ []string) document.Reader { return not(field.(*bool)) },
	"scope":            func(field any, _ []string) document.Reader { return scope(field.(*[]string)) },
	"missing":          func(field any, _ []string) document.Reader { return choice(field.(*rules.Missing), missings) },
	"on_exceed":        func(field any, _ []string) document.Reader { return choice(field.(*rules.OnExceed), excesses) },
	"on_store_failure": func(field any, _ []string) document.Reader { return choice(field.(*rules.OnStoreFailure), failures) },
	"cost":             func(field any, _ []string) document.Reader { return cost(field.(*rules.Cost)) },
	"limits": func(field any, _ []string) document.Reader {
		return document.ReaderFunc(func(path document.Path, v Value, faults *Faults) {
			v.Items = slices.Clone(v.Items)
			for i := range v.Items {
				item := &v.Items[i]
				item.Fields = slices.DeleteFunc(slices.Clone(item.Fields), func(f Field) bool { return f.Name == "cost" })
			}
			*field.(*[]stint.Limit), _ = Limits(path.String(), v, faults)
		})
	},
}

// nameList is how a message lists choices: open, closed or local.
func nameList[T comparable](choices []named[T]) string {
	var names []string
	for _, c := range choices {
		names = append(names, c.name)
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// choice reads the name of one of several values.
func choice[T comparable](field *T, choices []named[T]) Setter {
	return document.Scalar(nameList(choices), func(text string) bool {
		i := slices.IndexFunc(choices, func(c named[T]) bool { return c.name == text })
		if i < 0 {
			return false
		}
		*field = choices[i].value
		return true
	}, KindText)
}

// id reads a rule's name.
func id(field *string) Setter {
	return document.Scalar(fmt.Sprintf("1 to %d letters, digits or any of - _ . :", rules.MaxIDBytes), func(text string) bool {
		*field = text
		return text != "" && len(text) <= rules.MaxIDBytes && !strings.ContainsFunc(text, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-_.:", r)
		})
	}, KindText)
}

// not reads the opposite of a field.
func not(field *bool) Setter {
	var is bool
	read := Boolean(&is)
	return func(v Value, fault func(Value, string)) {
		read(v, fault)
		*field = !is
	}
}

// some reads a text that is not empty.
func some(field *string, allowed string) Setter {
	return document.Scalar(allowed, func(text string) bool {
		*field = text
		return text != "" && utf8.ValidString(text)
	}, KindText)
}

// shortText reads what people call something.
func shortText(field *string) Setter {
	return document.Scalar(fmt.Sprintf("a text of up to %d bytes", rules.MaxTextBytes), func(text string) bool {
		*field = text
		return len(text) <= rules.MaxTextBytes && utf8.ValidString(text)
	}, KindText)
}

// texts reads a list of texts that are not empty. Of an empty list it makes none.
func texts(field *[]string, allowed string) Setter {
	return listOf(field, allowed, func(text string) bool { return text != "" && utf8.ValidString(text) })
}

// listOf reads a list of the texts that are allowed. Of an empty list it makes none.
func listOf(field *[]string, allowed string, is func(text string) bool) Setter {
	read := document.List(field, allowed, func(text string) (string, bool) { return text, is(text) })
	return func(v Value, fault func(Value, string)) {
		read(v, fault)
		if len(*field) == 0 {
			*field = nil
		}
	}
}

// scope reads one scope, or a list of those that make a composite key.
func scope(field *[]string) Setter {
	const allowed = "global, per_ip, per_user, per_api_key or custom:ATTRIBUTE"
	list := listOf(field, allowed, func(text string) bool {
		switch text {
		case rules.Global, rules.PerIP, rules.PerUser, rules.PerAPIKey:
			return true
		default:
			attribute, custom := strings.CutPrefix(text, rules.CustomPrefix)
			return custom && attribute != "" && utf8.ValidString(attribute)
		}
	})
	return func(v Value, fault func(Value, string)) {
		switch {
		case v.Kind == KindText:
			list(Value{At: v.At, Kind: KindList, Items: []Value{v}}, fault)
		case v.Kind == KindList && len(v.Items) > 0:
			list(v, fault)
		default:
			fault(v, allowed+", or a list of them")
		}
	}
}
