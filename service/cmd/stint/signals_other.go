//go:build !unix

package main

import "os"

// forwarded are the signals that a command gets which stint runs.
var forwarded = []os.Signal{os.Interrupt}
