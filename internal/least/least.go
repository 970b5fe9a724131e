// Package least finds what several limits have applied: the least that one of them has.
package least

// Applied is the least of charges (positive) and refunds (negative), by their size. The zero value has none.
type Applied struct {
	// N is the least, the first of equals; 0 if there is none.
	N int64
	// Some says that there is one.
	Some bool
}

// Add adds what a limit has applied.
func (a *Applied) Add(n int64) {
	if !a.Some || max(n, -n) < max(a.N, -a.N) {
		a.N, a.Some = n, true
	}
}
