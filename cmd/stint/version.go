package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/server"
)

// Set by the linker for releases: -ldflags "-X main.version=v1.2.3 -X main.commit=abc".
// Otherwise the toolchain's record of the build says it.
var version, commit string

// build says what is running.
func build() server.Build {
	b := server.Build{Version: version, Commit: commit}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.Version = cmp.Or(b.Version, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Commit = cmp.Or(b.Commit, s.Value)
			}
		}
	}
	b.Version, b.Commit = cmp.Or(b.Version, "unknown"), cmp.Or(b.Commit, "unknown")
	return b
}

func versionCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say what this is: version, commit, Go version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return say(p.Out, "%s", versionText())
		},
	}
}

// versionText says what this is, in lines.
func versionText() string {
	b := build()
	return fmt.Sprintf("stint %s\ncommit %s\n%s %s/%s\n", b.Version, b.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// say writes what was asked for; that nobody could be told is a failure.
func say(out io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(out, format, args...); err != nil {
		return failed(err)
	}
	return nil
}
