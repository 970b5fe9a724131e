// Package must ends a test at the first error of a step that the test only stands on.
//
//	store := must.Get(failover.New(inner, config))(t)
//	must.Do(t, store.Reset(ctx, "ann"))
//
// What a test checks says in its own words what is wrong.
package must

// A Test is a test, a benchmark, a fuzz target or an attempt of package rapid.
type Test interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if there is an error.
func Do(t Test, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

// Get returns the value, or ends the test that it is given if there is an error.
func Get[V any](value V, err error) func(Test) V {
	return func(t Test) V {
		t.Helper()
		Do(t, err)
		return value
	}
}

// Two is Get for two values.
func Two[V, W any](first V, second W, err error) func(Test) (V, W) {
	return func(t Test) (V, W) {
		t.Helper()
		Do(t, err)
		return first, second
	}
}
