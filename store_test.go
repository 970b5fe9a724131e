package stint_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
)

// An operation decides a bounded number of limits, whatever its verb is.
func TestOpLimits(t *testing.T) {
	claim := func(i, limits int) stint.Claim {
		var all []stint.Limit
		for j := range limits {
			all = append(all, stint.FixedWindow(10, time.Hour).Named(fmt.Sprint(j)))
		}
		policy := must.Get(stint.NewPolicy(fmt.Sprint(i), all...))(t)
		return stint.Claim{Key: "k", Policy: policy, Permits: 1}
	}
	for _, verb := range []stint.Verb{stint.VerbTake, stint.VerbTry, stint.VerbPeek, stint.VerbReset, stint.VerbSettle} {
		op := stint.Op{Verb: verb, Claim: claim(0, bounds.MaxLimits)}
		for op.Limits() < bounds.MaxOpLimits {
			op.And = append(op.And, claim(1+len(op.And), min(bounds.MaxLimits, bounds.MaxOpLimits-op.Limits())))
		}
		if err := op.Validate(); err != nil {
			t.Errorf("%v of %d limits: %v", verb, op.Limits(), err)
		}
		op.And = append(op.And, claim(1+len(op.And), 1))
		if err := op.Validate(); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "at most 1000 limits in one operation") {
			t.Errorf("%v of %d limits: %v", verb, op.Limits(), err)
		}
	}
}

// An operation is copied by every store that wraps another. What few have stands behind a pointer.
func TestSizeOfAnOperation(t *testing.T) {
	if size := unsafe.Sizeof(stint.Op{}); size > 112 {
		t.Errorf("%d bytes, want at most 112", size)
	}
}
