// Package clienttest tests package client against the service. The client is in the library's module, which may
// not require the service.
package clienttest
