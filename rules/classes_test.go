package rules_test

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// A request's class is the rule's own text, so that an alert that waits, or a list of denials, keeps nothing of the request.
func TestClassOfTheRule(t *testing.T) {
	org, _ := organisation()
	org.Classes = classes()
	set := must.Get(rules.Compile([]rules.Rule{org}, rules.Options{}))(t)
	body := strings.Repeat("batch", 1000)
	class := body[:len("batch")]
	var m rules.Matches
	must.Do(t, set.Match(&rules.Request{Path: "/", Attributes: map[string]string{"class": class}}, &m))
	h := must.Get(m.AtTake(0))(t)
	same := unsafe.StringData(h.Class) == unsafe.StringData(class) //nolint:gosec // the addresses are compared
	if h.Class != "batch" || same {
		t.Errorf("class %q is a part of the request", h.Class)
	}
}
