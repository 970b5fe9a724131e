package decide

import (
	"testing"
	"time"

	"github.com/stint-go/stint"
)

// The rules of Combine, from "Of a policy" in the algorithms' contract.
func TestCombine(t *testing.T) {
	admit := func(remaining int64) stint.Outcome { return stint.Outcome{Allowed: true, Remaining: remaining} }
	deny := func(wait time.Duration) stint.Outcome { return stint.Outcome{RetryAfter: wait} }
	tests := []struct {
		name     string
		outcomes []stint.Outcome
		allowed  bool
		index    int16
		wait     time.Duration
	}{
		{"the least remaining decides", []stint.Outcome{admit(5), admit(3), admit(3)}, true, 1, 0},
		{"what is left of denials does not", []stint.Outcome{{Allowed: true, Denials: true, Remaining: 1}, admit(3)}, true, 1, 0},
		{"but where nothing else is", []stint.Outcome{{Allowed: true, Denials: true, Remaining: 4}, {Allowed: true, Denials: true, Remaining: 3}}, true, 1, 0},
		{"denials that deny do", []stint.Outcome{deny(5), {Denials: true, RetryAfter: 7}}, false, 1, 7},
		{"the longest wait decides", []stint.Outcome{deny(1), admit(0), deny(7), deny(7)}, false, 2, 7},
		{"never is longest", []stint.Outcome{deny(7), deny(stint.Never), deny(9)}, false, 1, stint.Never},
	}
	for _, test := range tests {
		d := Combine(test.outcomes, nil, 5)
		if d.Allowed != test.allowed || d.Index != test.index || d.RetryAfter != test.wait || d.At != 5 {
			t.Errorf("%s: %+v", test.name, d)
		}
	}
	d := Combine([]stint.Outcome{{Allowed: true, Delay: 2, Applied: -5}, {Allowed: true, Delay: 9, Applied: -3}}, nil, 0)
	if d.Delay != 9 || d.Applied != -3 {
		t.Errorf("delay %d, applied %d; want the longest delay and the least applied", d.Delay, d.Applied)
	}
}
