//go:build measure

package main

import "github.com/stint-go/stint/internal/measure"

// The program is built so by `make measure` alone.
var _ = measure.Listen()
