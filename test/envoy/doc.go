// Package envoy compares `stint ratelimit` with the service that it replaces, Envoy's reference
// rate limit service.
//
// Both run as programs, each on a Redis of its own, with the same environment and the same files.
// Random requests go to both, and every field of the answers is compared. What the program answers
// otherwise on purpose is a table, in differences_test.go. `make envoy-diff` runs it at length.
// There is nothing in it but tests.
//
// ENVOY_DIFF_REQUESTS (20000) is how many requests are compared, and ENVOY_DIFF_SEED (1) draws
// them. ENVOY_DIFF_DOMAIN leaves out all domains but the one of this number, to look at a
// difference again. ENVOY_DIFF_COLLISIONS=true also sends different descriptors that share one
// counter in the reference, because their keys and values are the same text when joined by
// underscores. STINT_ENVOY_SUBJECT=reference puts the reference on both sides, to test the test;
// the path of another program puts that one in the subject's place.
package envoy
