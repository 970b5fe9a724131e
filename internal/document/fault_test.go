package document_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/document"
)

// Of very many faults the first are told, and that there are more.
func TestMaxFaults(t *testing.T) {
	for n, want := range map[int]int{999: 999, 1000: 1000, 1001: 1001, 1002: 1001, 100_000: 1001} {
		var faults, joined document.Faults
		v := document.JSON("a.json", []byte("["+strings.Repeat("0,\n", n-1)+"0]"), &faults)
		for i, item := range v.Items {
			faults.Invalid(fmt.Sprintf("rules[%d]", i), item, "a mapping")
		}
		joined.Join(faults)
		for name, list := range map[string]document.Faults{"added": faults, "joined": joined} {
			if len(list) != want {
				t.Fatalf("%s: %d faults are told by %d; want %d", name, n, len(list), want)
			}
			last := list.Err().Error()
			last = last[strings.LastIndex(last, "\n")+1:]
			text := fmt.Sprintf("a.json:%d:1: rules[%d] is 0", want, want-1)
			if n > 1000 {
				text = "a.json:1001:1: and more"
			}
			if !strings.HasPrefix(last, text) {
				t.Errorf("%s: the last of %d faults is %q; want %q", name, n, last, text)
			}
		}
	}
}

// That there are more comes last, wherever it was noticed.
func TestMoreFaultsLast(t *testing.T) {
	var faults document.Faults
	for line := 2000; line > 0; line-- {
		faults.Add(document.Position{Source: "a", Line: line, Column: 1}, "wrong")
	}
	text := faults.Err().Error()
	if !strings.HasPrefix(text, "stint: a:1001:1: wrong\n") || !strings.HasSuffix(text, "a:2000:1: wrong\na:1000:1: and more") {
		t.Errorf("%.50s ... %s", text, text[len(text)-50:])
	}
}
