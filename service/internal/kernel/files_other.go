//go:build !unix

package kernel

// MaxOpenFiles is not known here.
func MaxOpenFiles() (files int64, known bool) { return 0, false }
