package algorithm_test

import (
	"flag"
	"math/big"
	"math/rand/v2"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
)

var seed = flag.Uint64("seed", 20260101, "the seed of the random tests")

// newGenerator draws from the seed, a sequence of its own for each algorithm.
func newGenerator(a stint.Algorithm) generator {
	return generator{Rand: rand.New(rand.NewPCG(*seed, uint64(a))), algorithm: a}
}

const runSteps = 48

// randomSteps is how many steps are drawn for each algorithm: all of them, or few under the race detector.
func randomSteps() int {
	if testing.Short() {
		return 2500
	}
	return 100_000
}

// eachAlgorithm runs a test for each.
func eachAlgorithm(t *testing.T, test func(*testing.T, stint.Algorithm)) {
	for _, a := range notation.Algorithms() {
		t.Run(a.String(), func(t *testing.T) {
			t.Parallel()
			test(t, a)
		})
	}
}

// compareTwins compares the twins over so many drawn steps.
func compareTwins(t *testing.T, vm *vm, g generator, enough int) {
	t.Helper()
	for done := 0; done < enough; {
		limits, steps, results, entries := g.run(runSteps)
		if difference := compare(vm, limits, steps, results, entries); difference != "" {
			t.Fatalf("seed %d, after %d steps: %s", *seed, done, difference)
		}
		done += len(steps)
	}
}

// Go and Lua give the same decision for the same trace, and leave the same state
// (docs/internals/semantics.md, its first paragraph).
func TestTwins(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a stint.Algorithm) {
		vm := newVM(t)
		vm.grows = 5
		compareTwins(t, vm, newGenerator(a), randomSteps())
	})
}

// Every intermediate value stays within 2^53, muldiv within its stated ranges
// (ARCHITECTURE.md, "What holds everywhere"), and muldiv is right wherever a twin uses it.
func TestTwinsStayExact(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a stint.Algorithm) {
		vm := newVM(t)
		vm.check(t)
		compareTwins(t, vm, newGenerator(a), randomSteps()/25)
	})
}

// What scripts decide takes by, without outcomes, is a number of takes of the Go
// transition, one after another: as many are admitted, and the same state is left. The
// largest cost that fits is the largest that is admitted. The log's twin answers operations one by one.
func TestTwinsAdmit(t *testing.T) {
	eachOfFixedSize(t, func(t *testing.T, a stint.Algorithm) {
		for name, part := range map[string]int{"plain": 5, "guarded": 25} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				vm := newVM(t)
				g := newGenerator(a)
				if g.admits = true; name == "guarded" {
					vm.check(t)
				}
				vm.grows = runSteps
				compareTwins(t, vm, g, randomSteps()/part*4/3) // of four steps three are to admit
			})
		}
	})
}

// check makes the twins check their arithmetic, and holds a sample of their muldivs
// to big integers.
func (vm *vm) check(t *testing.T) {
	t.Helper()
	check := vm.state.NewFunction(func(state *lua.LState) int {
		a, b, c := state.CheckInt64(1), state.CheckInt64(2), state.CheckInt64(3)
		if quotient, remainder := state.CheckInt64(4), state.CheckInt64(5); !divides(a, b, c, quotient, remainder) {
			state.RaiseError("muldiv(%d, %d, %d) = %d, %d", a, b, c, quotient, remainder)
		}
		return 0
	})
	must.Do(t, vm.state.CallByParam(lua.P{Fn: vm.guard, Protect: true}, check))
}

// divides reports whether a*b = quotient*c + remainder with 0 <= remainder < c.
func divides(a, b, c, quotient, remainder int64) bool {
	product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	sum := new(big.Int).Mul(big.NewInt(quotient), big.NewInt(c))
	sum.Add(sum, big.NewInt(remainder))
	return remainder >= 0 && remainder < c && sum.Cmp(product) == 0
}

// RetryAfter, GrowsAfter and ResetAfter are the shortest waits that do what they
// say (docs/internals/semantics.md, All algorithms).
func TestWaits(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a stint.Algorithm) {
		g := newGenerator(a)
		for done := 0; done < randomSteps()/4; {
			limits, steps, results, _ := g.run(runSteps)
			twin := newTwin(limits)
			writer := -1
			for i, s := range steps {
				if twin.step(s); results[i].changed {
					writer = s.limit
				}
				if writer != s.limit {
					continue // a state that another limit wrote is taken over anew each time
				}
				checkWaits(t, twin, limits[s.limit], s, results[i])
				if t.Failed() {
					t.Fatalf("seed %d, after %d steps: %s", *seed, done, describe(limits, steps[:i+1], results[:i+1]))
				}
			}
			done += len(steps)
		}
	})
}

// checkWaits looks at the times to which an answer points, by peeks.
func checkWaits(t *testing.T, twin *twin, limit stint.Limit, s step, r result) {
	t.Helper()
	room := max(0, limit.Capacity-s.keep)
	peek := func(wait, n int64) result {
		return twin.step(step{limit: s.limit, action: algorithm.Peek, now: s.now + stint.Instant(wait), n: n, keep: s.keep})
	}
	if !r.allowed && r.retry != never {
		if !peek(r.retry, s.n).allowed {
			t.Errorf("%d is denied at the end of its wait", s.n)
		}
		if r.retry > 0 && peek(r.retry-1, s.n).allowed {
			t.Errorf("%d is allowed a microsecond before the end of its wait", s.n)
		}
	}
	if never := r.retry == never; never != (s.action != algorithm.Settle && s.n > limit.Capacity-s.keep) {
		t.Errorf("a cost of %d to wait for ever: %t", s.n, never)
	}
	if (r.grows == 0) != (r.remaining == room) && r.state[0] != 0 && room > 0 {
		t.Errorf("remaining %d of %d grows after %d", r.remaining, room, r.grows)
	}
	if r.grows > 0 {
		if now := peek(r.grows, 1).remaining; now <= r.remaining {
			t.Errorf("remaining has not grown by then: %d", now)
		}
		if before := peek(r.grows-1, 1).remaining; before > r.remaining {
			t.Errorf("remaining has grown a microsecond before: %d", before)
		}
	}
	if after := peek(r.reset, 1); after.reset != 0 || after.remaining != room {
		t.Errorf("the state is not untouched after ResetAfter: %+v", after)
	}
	if r.reset > 0 && peek(r.reset-1, 1).reset == 0 {
		t.Errorf("the state is untouched a microsecond before ResetAfter")
	}
}
