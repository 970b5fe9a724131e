// Package registrytest is the conformance suite for backends of rules.
//
// [Run] puts a backend through all that registry.Backend promises: what is written is read
// as it was, of two edits of one version one is made, nobody sees half of one, versions are kept
// and let go, news come. A backend's test package needs one line:
//
//	func TestConformance(t *testing.T) {
//		registrytest.Run(t, func(t testing.TB) func() registry.Backend { ... })
//	}
//
// [Rules] makes rules by chance, with everything in them.
package registrytest
