package algorithm_test

import (
	_ "embed"
	"testing"

	lua "github.com/yuin/gopher-lua"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
)

//go:embed testdata/driver.lua
var driverLua string

// vm is an embedded Lua 5.1 machine with the twins and their driver. It is for one
// goroutine.
type vm struct {
	state                *lua.LState
	drive, muldiv, guard lua.LValue
	grows                int // the growth is asked for at every so many steps
}

func newVM(t testing.TB) *vm {
	t.Helper()
	state := loadTwins(t, driverLua, 3)
	defer state.Pop(3)
	return &vm{state: state, drive: state.Get(-3), muldiv: state.Get(-2), guard: state.Get(-1), grows: 1}
}

// loadTwins makes a machine with the twins and a driver, whose so many results it leaves
// on the stack.
func loadTwins(t testing.TB, driver string, results int) *lua.LState {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	t.Cleanup(state.Close)
	for _, open := range []lua.LGFunction{lua.OpenBase, lua.OpenString, lua.OpenMath} {
		state.Push(state.NewFunction(open))
		state.Call(0, 0)
	}
	chunk, err := state.LoadString(algorithm.Lua() + driver)
	if err != nil {
		t.Fatalf("the twins don't load: %v", err)
	}
	state.Push(chunk)
	state.Call(0, results)
	return state
}

// notAsked stands for a growth that was not asked for.
const notAsked = -2

// run drives the Lua twin of the limits through steps and returns its answers and,
// of a log, what it holds in the end.
func (vm *vm) run(limits []stint.Limit, steps []step) ([]result, []algorithm.Entry, error) {
	tables := vm.state.NewTable()
	for i, limit := range limits {
		tables.RawSetInt(i+1, vm.limit(limit))
	}
	const stepWidth = 7
	flat := vm.state.CreateTable(stepWidth*len(steps), 0)
	for i, s := range steps {
		numbers := [stepWidth]int64{int64(s.limit + 1), int64(s.action), int64(s.now), s.amount(), s.k, s.room, s.keep}
		for j, n := range numbers {
			flat.RawSetInt(stepWidth*i+j+1, lua.LNumber(n))
		}
	}
	const width = 10
	answers := vm.state.CreateTable(width*len(steps), 0)
	windows := make([]algorithm.Machine, len(limits))
	edges := vm.state.NewFunction(func(state *lua.LState) int {
		i := state.CheckInt(1)
		at := stint.Instant(state.CheckInt64(2))
		if windows[i-1].Capacity() == 0 {
			windows[i-1] = algorithm.NewMachine(limits[i-1])
		}
		tables.RawGetInt(i).(*lua.LTable).RawSetString("edges", vm.edges(&windows[i-1], at))
		return 0
	})
	call := lua.P{Fn: vm.drive, NRet: 1, Protect: true}
	err := vm.state.CallByParam(call, lua.LString(limits[0].Algorithm.String()), tables, flat, lua.LNumber(vm.grows), answers, edges)
	if err != nil {
		return nil, nil, err
	}
	defer vm.state.Pop(1)
	held := vm.state.Get(-1).(*lua.LTable)
	results := make([]result, len(steps))
	var state [3]int64
	for i := range results {
		n := func(j int) int64 { return number(answers, width*i+j) }
		r := result{allowed: n(1)&1 != 0, changed: n(1)&2 != 0, remaining: n(2), retry: n(3), reset: n(4), delay: n(5), applied: n(6)}
		if r.grows = notAsked; i%vm.grows == 0 {
			r.grows = n(7)
		}
		if r.changed {
			state = [3]int64{n(8), n(9), n(10)}
		}
		r.state = state
		results[i] = r
	}
	var entries []algorithm.Entry
	for i := 1; i < held.Len(); i += 2 {
		entries = append(entries, algorithm.Entry{At: stint.Instant(number(held, i)), Permits: number(held, i+1)})
	}
	return results, entries, nil
}

// broken stands for a Lua value that is no integer; no twin answers it.
const broken = -1 << 62

func number(table *lua.LTable, i int) int64 {
	n, ok := table.RawGetInt(i).(lua.LNumber)
	if !ok || lua.LNumber(int64(n)) != n {
		return broken
	}
	return int64(n)
}

// limit is the table that the twins read.
func (vm *vm) limit(limit stint.Limit) *lua.LTable {
	table := vm.state.NewTable()
	set := func(name string, n int64) { table.RawSetString(name, lua.LNumber(n)) }
	set("capacity", limit.Capacity)
	set("debt", bounds.Debt(limit.MaxDebt, limit.Capacity))
	switch limit.Algorithm {
	case stint.AlgorithmTokenBucket, stint.AlgorithmLeakyBucket:
		m := algorithm.NewMachine(limit)
		permits, period := m.Rate()
		set("permits", permits)
		set("period", period)
		table.RawSetString("queue", lua.LBool(limit.Algorithm == stint.AlgorithmLeakyBucket))
	case stint.AlgorithmFixedWindow:
		set("length", limit.Window.Microseconds())
		window := algorithm.NewMachine(limit)
		set("step", window.Step())
		table.RawSetString("count_denied", lua.LBool(limit.Denials))
		if limit.Calendar != 0 {
			table.RawSetString("edges", vm.table(0, 0, 0, 0)) // until better ones are asked for
		}
	case stint.AlgorithmSlidingWindowCounter:
		set("window", limit.Window.Microseconds())
	case stint.AlgorithmSlidingWindowLog:
		set("window", limit.Window.Microseconds())
		set("interval", limit.MinInterval.Microseconds())
		table.RawSetString("count_denied", lua.LBool(limit.CountDenied))
	default:
		panic("no table for Lua is made of " + limit.Algorithm.String())
	}
	return table
}

// edges are the bounds of the calendar's windows around t.
func (vm *vm) edges(window *algorithm.Machine, t stint.Instant) *lua.LTable {
	start, end := window.Window(t)
	before, _ := window.Window(start - 1)
	_, after := window.Window(end)
	return vm.table(before, start, end, after)
}

func (vm *vm) table(list ...stint.Instant) *lua.LTable {
	table := vm.state.NewTable()
	for i, at := range list {
		table.RawSetInt(i+1, lua.LNumber(at))
	}
	return table
}
