// Package storetest is what every store of rules must pass. It is for tests only.
package storetest
