package algorithm_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	lua "github.com/yuin/gopher-lua"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
)

// muldiv's operands: 0 <= a < 2^53, 0 <= b < 2^35, 0 < c < 2^45, and a quotient
// below 2^53 (arithmetic.lua).
const (
	mostA = 1<<53 - 1
	mostB = 1<<35 - 1
	mostC = 1<<45 - 1
	exact = 1 << 53
)

func TestMuldivOfExtremes(t *testing.T) {
	vm := newVM(t)
	as := []int64{0, 1, 2, 3, 127, 128, 1<<26 - 1, 1 << 26, mostC - 1, mostC, mostC + 1, mostA - 1, mostA}
	bs := []int64{0, 1, 2, 127, 128, 129, 1<<14 - 1, 1<<28 - 1, 1 << 28, 1<<28 + 1, 1_000_000_000, mostB - 1, mostB}
	cs := []int64{1, 2, 3, 7, 1<<26 + 1, 1_000_000_000, 999_999_937, 31_622_400_000_000, mostC - 1, mostC}
	for _, a := range as {
		for _, b := range bs {
			for _, c := range cs {
				checkMuldiv(t, vm, a, b, c)
			}
		}
	}
}

func TestMuldivAtRandom(t *testing.T) {
	vm := newVM(t)
	random := rand.New(rand.NewPCG(*seed, 0))
	upTo := func(most int64) int64 { return random.Int64N(most>>random.IntN(45) + 1) }
	for range 30_000 {
		c := 1 + upTo(mostC-1)
		a, b := upTo(mostA), upTo(mostB)
		if random.IntN(3) == 0 {
			a = a - a%c // a quotient without a remainder
		}
		if random.IntN(3) == 0 { // the largest a whose quotient is below 2^53
			most := new(big.Int).Mul(big.NewInt(exact), big.NewInt(c))
			most.Div(most, big.NewInt(b+1))
			if most.IsInt64() {
				a = min(most.Int64(), mostA)
			}
		}
		checkMuldiv(t, vm, a, b, c)
		if t.Failed() {
			t.Fatalf("seed %d", *seed)
		}
	}
}

// checkMuldiv compares with big integers, within the ranges.
func checkMuldiv(t *testing.T, vm *vm, a, b, c int64) {
	t.Helper()
	product := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
	quotient, remainder := new(big.Int).QuoRem(product, big.NewInt(c), new(big.Int))
	if quotient.Cmp(big.NewInt(exact)) >= 0 {
		return
	}
	call := lua.P{Fn: vm.muldiv, NRet: 2, Protect: true}
	must.Do(t, vm.state.CallByParam(call, lua.LNumber(a), lua.LNumber(b), lua.LNumber(c)))
	got, gotRemainder := vm.state.Get(-2), vm.state.Get(-1)
	vm.state.Pop(2)
	if got != lua.LNumber(quotient.Int64()) || gotRemainder != lua.LNumber(remainder.Int64()) {
		t.Errorf("muldiv(%d, %d, %d) = %v, %v, want %v, %v", a, b, c, got, gotRemainder, quotient, remainder)
	}
}

// TestPeriods compares the division by a reciprocal with a plain one, most of all next
// to multiples of the period and at the ends of the range.
func TestPeriods(t *testing.T) {
	const longest = uint64(366 * 24 * time.Hour / time.Microsecond)
	random := rand.New(rand.NewPCG(*seed, 1))
	periods := []uint64{1, 2, 3, 5, 7, 1000, 1 << 20, 1<<20 + 1, 86_400, 999_999_937, 1<<44 - 1, 1 << 44, longest - 1, longest}
	for range 2000 {
		periods = append(periods, 1+random.Uint64N(longest)>>random.IntN(44))
	}
	for _, period := range periods {
		last := math.MaxUint64 / period * period // the greatest multiple
		near := []uint64{0, period, 2 * period, last, last - period, 1 << 32, 1 << 63, random.Uint64() / period * period}
		xs := []uint64{0, 1, math.MaxUint64 - 1, math.MaxUint64, random.Uint64(), random.Uint64() >> random.IntN(64)}
		for _, x := range near {
			xs = append(xs, x-1, x, x+1)
		}
		for _, x := range xs {
			want := x / period
			if x%period > 0 {
				want++
			}
			if got := algorithm.Periods(x, period); uint64(got) != want {
				t.Fatalf("%d is within %d periods of %d, want %d", x, got, period, want)
			}
		}
	}
}

// A state that another limit took over reaches ten years at most. Where it reaches
// just less, the twins must not round it differently: the reader lets out 172915
// permits in 29659.443389 s, and 1838553532 of them take 52/172915 of a microsecond
// less than ten years.
func TestTwinsAtTheHorizon(t *testing.T) {
	const queued = 1_838_553_532
	rate := stint.Per(172_915, 29_659_443_389*time.Microsecond)
	for _, limits := range [][]stint.Limit{
		{
			stint.LeakyBucket(bounds.MaxPermits, stint.PerSecond(1_000_000)),
			stint.LeakyBucket(1, rate).WithMaxDebt(stint.NoDebt),
		},
		{
			stint.TokenBucket(bounds.MaxPermits, stint.PerSecond(1_000_000)),
			stint.TokenBucket(900_000_000, rate).WithMaxDebt(stint.NoDebt),
		},
	} {
		vm := newVM(t)
		shift := limits[1].Capacity - limits[0].Capacity
		if limits[0].Algorithm == stint.AlgorithmLeakyBucket {
			shift = 0
		}
		for permits := int64(queued - 1); permits <= queued+1; permits++ {
			steps := []step{
				{limit: 0, action: algorithm.Settle, now: year2000, n: permits - shift},
				{limit: 1, action: algorithm.Peek, now: year2000, n: 1},
				{limit: 1, action: algorithm.Settle, now: year2000, n: -3},
				{limit: 1, action: algorithm.Settle, now: year2000 + 1, n: -2 * bounds.MaxPermits},
			}
			twin := newTwin(limits)
			results := make([]result, len(steps))
			for i, s := range steps {
				results[i] = twin.step(s)
			}
			if got := results[1].reset; got > algorithm.Horizon {
				t.Errorf("%d permits are outstanding for %d us, beyond the horizon", permits, got)
			}
			if difference := compare(vm, limits, steps, results, nil); difference != "" {
				t.Errorf("%d permits: %s", permits, difference)
			}
		}
	}
}
