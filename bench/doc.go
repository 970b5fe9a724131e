// Package bench measures stint against other limiters of the field and against
// a floor, in one run on one machine, so that what it prints are ratios.
//
// The measurements are benchmarks: in this folder BenchmarkTake (time and allocations of
// a decision) and BenchmarkMemory (bytes of heap per key), in redis limiters in Redis, and
// in served the program over sockets, which `stint bench` loads. cmd/table prints
// what all of them found, and writes it into the pages. exact measures nothing: it checks
// what eight processes on one Redis are answered. README.md says how to repeat it.
//
// The module is separate so that users of stint do not download its
// competitors.
package bench
