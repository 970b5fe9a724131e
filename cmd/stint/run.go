package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // it did not work
	exitUsage       = 2 // it was asked or configured wrongly
	exitDenied      = 3 // the check was denied
	exitUnreachable = 4 // the service or its store did not answer
)

const exitCodes = "Exit codes: 0 done (check, explain: admitted), 1 failed (diff: rules differ), 2 wrong usage or configuration,\n" +
	"3 denied, 4 the service or its store is unreachable. " + "`stint check KEY -- COMMAND` passes on the command's."

// A process is what the program knows of the world around it.
type process struct {
	In       io.Reader
	Out, Err io.Writer
	// Env looks up an environment variable.
	Env func(name string) (text string, found bool)
	// Environ lists all environment variables as NAME=TEXT; nil is none.
	Environ func() []string
}

// variables are the names of all environment variables.
func (p process) variables() (names []string) {
	if p.Environ == nil {
		return nil
	}
	for _, variable := range p.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	return names
}

// env is a variable's text, "" when there is none.
func (p process) env(name string) string {
	text, _ := p.Env(name)
	return text
}

// An exit is an error that knows the exit code. Its text may be empty when all was
// said.
type exit struct {
	code int
	text string
}

func (e exit) Error() string { return e.text }

func failed(err error) error {
	return exit{exitFailed, "stint: " + strings.TrimPrefix(err.Error(), "stint: ")}
}

// unreachable is the failure to reach the service or a store.
func unreachable(err error) error { return exit{exitUnreachable, "stint: " + err.Error()} }

// misused is a fault of the command line.
func misused(format string, args ...any) error {
	return exit{exitUsage, "stint: " + fmt.Sprintf(format, args...)}
}

// run carries out one command line until it ends or ctx is done, and returns the
// exit code. What was asked for goes to Out, everything else to Err.
func run(ctx context.Context, args []string, p process) int {
	root := &cobra.Command{
		Use:   "stint",
		Short: "A distributed rate limiter",
		Long: "stint limits rates: `stint serve` runs the service; check, peek and reset ask one;\n`stint rules` checks and explains rules.\n\n" +
			exitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetArgs(args)
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}")
	root.AddCommand(serveCommand(p), checkCommand(p), peekCommand(p), resetCommand(p), resetAllCommand(p), rulesCommand(p), simulateCommand(p), topCommand(p), versionCommand(p))
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if passed, ok := errors.AsType[status](err); ok {
		return int(passed)
	}
	var known exit
	if !errors.As(err, &known) { // from reading the command line
		known = exit{exitUsage, fmt.Sprintf("stint: %v\nstint: see '%s --help'", err, command.CommandPath())}
	}
	if known.text != "" {
		_, _ = fmt.Fprintln(p.Err, known.text) // nobody is left to tell
	}
	if command.Name() == "check" && slices.Contains(args, "--") {
		return guardCode(known.code)
	}
	return known.code
}
