// Package bench measures stint against other limiters of the field and against
// a floor, in one run on one machine, so that what it prints are ratios.
//
// The measurements live in the package's benchmarks: BenchmarkTake (time and
// allocations of a decision) and BenchmarkMemory (bytes of heap per key).
// cmd/http measures the service and the middleware, cmd/redis limiters in Redis, and
// cmd/table prints
// what all of them found. cmd/exact measures nothing: it checks what eight processes
// on one Redis are answered. README.md says how to repeat it.
//
// The module is separate so that users of stint do not download its
// competitors.
package bench
