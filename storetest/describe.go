package storetest

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/stint-go/stint"
)

// describeLimit lists the fields of a limit that are set.
func describeLimit(l stint.Limit) string {
	var set []string
	eachField(l, stint.Limit{}, func(field string, value, _ any) { set = append(set, fmt.Sprintf("%s %v", field, value)) })
	return "{" + strings.Join(set, ", ") + "}"
}

// describeOp words an operation.
func describeOp(op stint.Op) string {
	var claims []string
	for _, c := range append([]stint.Claim{op.Claim}, op.And...) {
		claim := fmt.Sprintf("%d of key %q under policy %q of", c.Permits, c.Key, c.Policy.Name())
		for _, l := range c.Policy.Limits() {
			claim += " " + describeLimit(l)
		}
		claims = append(claims, claim)
	}
	return op.Verb.String() + " " + strings.Join(claims, " and ")
}

// eachField calls with the fields in which two structs differ.
func eachField[T comparable](got, want T, with func(field string, got, want any)) {
	if got == want {
		return
	}
	g, w := reflect.ValueOf(got), reflect.ValueOf(want)
	for i := range g.NumField() {
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); a != b {
			with(g.Type().Field(i).Name, a, b)
		}
	}
}
