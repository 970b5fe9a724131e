package algorithm_test

import (
	_ "embed"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/must"
)

//go:embed testdata/refund_taken.lua
var refundTakenLua string

// newRefundVM is a machine with the twins and the driver of refund_taken.
func newRefundVM(t testing.TB) (*vm, lua.LValue) {
	t.Helper()
	state := loadTwins(t, refundTakenLua, 1)
	defer state.Pop(1)
	return &vm{state: state}, state.Get(-1)
}

func TestRefundTaken(t *testing.T) {
	eachOfFixedSize(t, func(t *testing.T, a stint.Algorithm) {
		t.Run("twins", func(t *testing.T) { testRefundTwins(t, a) })
		t.Run("undoes its take", func(t *testing.T) { testRefundUndoes(t, a) })
	})
}

// Go and Lua give back alike, and leave the same state.
func testRefundTwins(t *testing.T, a stint.Algorithm) {
	t.Parallel()
	vm, refund := newRefundVM(t)
	g := newGenerator(a)
	for done := 0; done < randomSteps()/10; {
		limit := g.limit()
		m, table := algorithm.NewMachine(limit), vm.limit(limit)
		var state algorithm.State
		now := year2000 + stint.Instant(g.Int64N(int64(year2100-year2000)))
		for range runSteps {
			before := now
			now = g.next(limit, now, result{})
			m.Admit(&state, now, 1+g.Int64N(limit.Capacity), 0, g.times())
			taken := []stint.Instant{now, before, now - stint.Instant(g.Int64N(3*length(limit)))}[g.IntN(3)]
			now = max(now, g.next(limit, now, result{}))
			n := 1 + g.Int64N(limit.Capacity)
			if a == stint.AlgorithmFixedWindow && g.IntN(2) == 0 { // of others, what another limit wrote is adopted first
				limit = g.variant(limit)
				m, table = algorithm.NewMachine(limit), vm.limit(limit)
			}

			numbers, untouched := show(&m, &state), state.Numbers == algorithm.Numbers{}
			args := []lua.LValue{lua.LString(a.String()), table, lua.LNumber(now), lua.LNumber(n), lua.LNumber(taken)}
			for i, number := range numbers {
				if i == 0 && untouched {
					args = append(args, lua.LNil)
				} else {
					args = append(args, lua.LNumber(number))
				}
			}
			if limit.Calendar != 0 {
				at := now
				if !untouched {
					at = max(now, stint.Instant(numbers[0]))
				}
				table.RawSetString("edges", vm.edges(&m, at))
			}
			must.Do(t, vm.state.CallByParam(lua.P{Fn: refund, NRet: 4, Protect: true}, args...))
			left := state
			changed := m.Refund(&left, now, n, taken)
			want := show(&m, &left)
			var got [3]int64
			for i := range got {
				got[i] = int64(lua.LVAsNumber(vm.state.Get(i - 3)))
			}
			if twin := vm.state.Get(-4) == lua.LTrue; twin != changed || changed && got != want || !changed && left.Numbers != state.Numbers {
				t.Fatalf("seed %d, %+v at %d: refund of %d taken at %d from %v: Lua changed: %t, to %v; Go changed: %t, to %v",
					*seed, limit, now, n, taken, numbers, twin, got, changed, want)
			}
			vm.state.Pop(4)
			state = left
			done++
		}
	}
}

// A take that is given back leaves everything as if it had not been, also when others
// took since: of a bucket at the same instant, of windows at any time.
func testRefundUndoes(t *testing.T, a stint.Algorithm) {
	t.Parallel()
	g := newGenerator(a)
	for done := 0; done < randomSteps()/10; {
		limit := g.limit()
		m := algorithm.NewMachine(limit)
		var state algorithm.State
		now := year2000 + stint.Instant(g.Int64N(int64(year2100-year2000)))
		for range runSteps {
			now = max(now, g.next(limit, now, result{}))
			m.Admit(&state, now, 1+g.Int64N(limit.Capacity), 0, g.times())

			with, without, taken, n := state, state, now, 1+g.Int64N(limit.Capacity)
			if m.Admit(&with, taken, n, 0, 1) == 0 {
				now += stint.Instant(g.Int64N(length(limit)))
				continue
			}
			if !limit.IsBucket() {
				now = max(now, g.next(limit, now, result{}))
			}
			others := 1 + g.Int64N(limit.Capacity)
			if m.Admit(&with, now, others, 0, 1) == 1 {
				m.Admit(&without, now, others, 0, 1)
			}
			now = max(now, g.next(limit, now, result{}))
			m.Refund(&with, now, n, taken)
			var got, want stint.Outcome
			m.Apply(algorithm.Peek, &with, now, 1, 0, &got)
			m.Apply(algorithm.Peek, &without, now, 1, 0, &want)
			if got != want {
				t.Fatalf("seed %d, %+v: %d taken at %d and given back at %d, and %d by others: %+v, want %+v",
					*seed, limit, n, taken, now, others, got, want)
			}
			state = without
			done++
		}
	}
}
