package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
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
	command := &cobra.Command{
		Use:   "version",
		Short: "Say what this is: version, commit, Go version",
		Args:  cobra.NoArgs,
	}
	asJSON := jsonFlag(command)
	command.RunE = func(*cobra.Command, []string) error {
		if *asJSON {
			b := build()
			return sayJSON(p.Out, api.Info{
				Version: b.Version, Commit: b.Commit, GoVersion: runtime.Version(), TimeZones: api.TimeZones(stint.TimeZones()),
			})
		}
		return say(p.Out, "%s", versionText())
	}
	return command
}

// versionText says what this is, in lines.
func versionText() string {
	b := build()
	return fmt.Sprintf("stint %s\ncommit %s\n%s %s/%s\n", b.Version, b.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// jsonFlag gives a command the flag --json.
func jsonFlag(command *cobra.Command) *bool {
	return command.Flags().Bool("json", false, "print the answer as JSON")
}

// sayJSON writes what was asked for as JSON.
func sayJSON(out io.Writer, v any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return failed(err)
	}
	return say(out, "%s", text.Bytes())
}

// say writes what was asked for; that nobody could be told is a failure.
func say(out io.Writer, format string, args ...any) error {
	if _, err := fmt.Fprintf(out, format, args...); err != nil {
		return failed(err)
	}
	return nil
}
