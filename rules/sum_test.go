package rules_test

import (
	"math/big"
	"net/http"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
)

// A sum is that of its parts, in exact arithmetic, rounded up once; at least 1, and none above the largest cost.
func TestSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64Range(0, bounds.MaxPermits))
		weight := rapid.OneOf(rapid.Int64Range(0, 3000), rapid.Int64Range(0, bounds.MaxPermits))
		r := rule("a")
		request := rules.Request{Address: "192.0.2.1", Header: http.Header{}, Attributes: map[string]string{}}
		sum := new(big.Rat)
		for i := range rapid.IntRange(1, 8).Draw(t, "parts") {
			p := rules.CostPart{Weight: rules.Thousandths(weight.Draw(t, "weight")), Default: value.Draw(t, "default")}
			n, name := p.Default, "x-part-"+strconv.Itoa(i)
			there := rapid.Bool().Draw(t, "there")
			if there {
				n = value.Draw(t, "value")
			}
			if rapid.Bool().Draw(t, "header") {
				if p.Header = name; there {
					request.Header.Set(name, strconv.FormatInt(n, 10))
				}
			} else if p.Attribute = name; there {
				request.Attributes[name] = strconv.FormatInt(n, 10)
			}
			r.Cost.Sum = append(r.Cost.Sum, p)
			thousandths := int64(p.Weight)
			if thousandths == 0 {
				thousandths = 1000
			}
			sum.Add(sum, new(big.Rat).Mul(big.NewRat(n, 1), big.NewRat(thousandths, 1000)))
		}
		up := new(big.Int).Add(sum.Num(), new(big.Int).Sub(sum.Denom(), big.NewInt(1)))
		want := up.Div(up, sum.Denom()).Int64()
		set := must.Get(rules.Compile([]rules.Rule{r}, rules.Options{}))(t)
		var m rules.Matches
		must.Do(t, set.Match(&request, &m))
		h, err := m.AtTake(0)
		if want > bounds.MaxPermits {
			if err == nil {
				t.Fatalf("%+v of %+v costs %d, want an error", r.Cost, request, h.Claim.Permits)
			}
			return
		}
		if want = max(want, 1); err != nil || h.Claim.Permits != want || h.Named != 1 {
			t.Fatalf("%+v of %+v costs %d, %v; want %d", r.Cost, request, h.Claim.Permits, err, want)
		}
	})
}

// Limits have sums of their own, rules within others have one, and a sum that is none of a request is its fault.
func TestSumsOfLimits(t *testing.T) {
	tokens := rules.Cost{Sum: []rules.CostPart{{Attribute: "in"}, {Attribute: "out", Weight: 4000}, {Header: "x-cached", Weight: 100}}}
	r := rule("a")
	r.Limits = []stint.Limit{stint.FixedWindow(1000, time.Minute), stint.FixedWindow(100_000, time.Minute).Named("tokens")}
	r.Costs = []rules.Cost{{}, tokens}
	org, team := rule("org"), rule("team")
	org.Limits = []stint.Limit{stint.TokenBucket(1000, stint.PerSecond(1))}
	team.Limits, team.Within, team.Cost, team.MaxCost, team.Borrow = nil, "org", tokens, 60, rules.Borrow{Any: true}
	set := compile(t, r, org, team)
	of := func(in, out, cached string) rules.Request {
		return rules.Request{Address: "192.0.2.1", Header: http.Header{"X-Cached": {cached}}, Attributes: map[string]string{"in": in, "out": out}}
	}
	for i, test := range []struct {
		request rules.Request
		cost    int64 // 0: an error
	}{
		{of("10", "5", "1"), 31},
		{of("10", "5", "11"), 32},
		{of("0", "", ""), 1},
		{of("10", "-5", ""), 0},
		{of("ten", "", ""), 0},
		{of("", "", "1.5"), 0},
		{of("1000000000", "1", ""), 0},
	} {
		var m rules.Matches
		must.Do(t, set.Match(&test.request, &m))
		limits, err := m.AtTake(0)
		if test.cost == 0 {
			if err == nil {
				t.Errorf("request %d costs %+v", i, limits)
			}
			continue
		}
		if err != nil || limits.Claim.Permits != test.cost || len(limits.And) != 1 || limits.And[0].Permits != 1 || limits.Named != 1 {
			t.Errorf("request %d costs %+v, %v; want %d", i, limits, err, test.cost)
		}
		within, err := m.AtTake(2)
		if err != nil || within.Claim.Permits != test.cost {
			t.Errorf("request %d costs %d within another rule, %v; want %d", i, within.Claim.Permits, err, test.cost)
		}
	}
	var m rules.Matches
	much := of("61", "", "")
	must.Do(t, set.Match(&much, &m))
	if _, err := m.AtTake(2); allowedOf(err) != "a cost of 1 to 60, the rule's max_cost" {
		t.Errorf("above max_cost: %v", err)
	}
	if c := r.Clone(); !c.Equal(&r) {
		t.Error("a clone differs")
	} else if c.Costs[1].Sum[1].Weight = 4001; c.Equal(&r) || r.Costs[1].Sum[1].Weight != 4000 {
		t.Error("a clone shares its sum, or another weight is equal")
	}
}

func TestThousandths(t *testing.T) {
	for n, want := range map[rules.Thousandths]string{1: "0.001", 100: "0.1", 1000: "1", 1250: "1.25", 10_000: "10", 1_000_000_000: "1000000"} {
		if n.String() != want {
			t.Errorf("%d thousandths are %s, want %s", int64(n), n, want)
		}
	}
}
