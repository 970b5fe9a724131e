// Command reference is Envoy's reference rate limit service, github.com/envoyproxy/ratelimit, for tests:
// the server that `stint ratelimit` is compared with.
//
// It takes what that one takes, environment variables alone, and ends when its input does, so that
// it does not outlive the process that started it. It is a module of its own so that users of stint
// do not download it.
package main

import (
	"io"
	"os"

	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
)

// main ends with its input: the process that started it holds the other end.
func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	server := runner.NewRunner(settings.NewSettings())
	server.Run()
}
