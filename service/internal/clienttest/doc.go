// Package clienttest tests package client against the service. The client is in the library's module, which may
// not require the service.
//
// The tests start the service as its program does and ask it by client.Open: every verb of a store,
// batches, holds, rules, and what becomes of errors on the way.
package clienttest
