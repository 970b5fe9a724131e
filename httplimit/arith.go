package httplimit

import "math/bits"

// mulDivCeil is a x b / c rounded up, for positive numbers whose quotient fits.
func mulDivCeil(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	quotient, rest := bits.Div64(hi, lo, uint64(c))
	if rest > 0 {
		quotient++
	}
	return int64(quotient)
}
