// Command stint limits rates: it runs the service, and asks one from the command line. Its
// documentation is `stint help`.
//
// Parts are chosen and wired here: which rules, which listeners; package states has which store.
// Nothing is decided here. To find a command, look for its constructor in [rootCommand]; the files
// are
//
//   - serve.go, the service as a list of parts: states.go, rule_follower.go (rules), limit_follower.go (policies),
//     activity.go and observe.go (what is told of decisions); demo.go, its demonstration
//   - ratelimit.go, the service in the place of Envoy's reference one
//   - help.go and help.txt, what the commands say of themselves, and their flags
//   - check.go and guard.go, which ask for one key; client.go, how a service is called
//   - administer.go, apply.go, rules.go, holds.go, denials.go and top.go, which ask the admin API
//   - simulate.go, record.go, bench.go, doctor.go and explain.go, which decide by themselves
//
// A command takes the world as a [process], so that tests run it whole; it returns an error that
// may carry its exit code (an [exit]), without which it is a failure, and prints nothing on its own account.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/spell"
	"github.com/stint-go/stint/service/internal/rest"
)

func main() {
	args := os.Args[1:]
	if filepath.Base(os.Args[0]) == dropInName { // a link with the name of the reference service's program
		args = append([]string{dropInName}, args...)
	}
	os.Exit(run(signalContext(), args, process{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Env: os.LookupEnv, Environ: os.Environ,
	}))
}

// signalContext returns a context that ends with the first SIGTERM or SIGINT. The
// second one ends the process at once, as if nobody listened for it.
func signalContext() context.Context {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx
}

// The exit codes. Scripts tell by them a denial, which is an answer, from a failure, which is none.
const (
	exitOK          = 0
	exitFailed      = 1 // it did not work
	exitUsage       = 2 // it was asked or configured wrongly
	exitDenied      = 3 // the check was denied
	exitUnreachable = 4 // the service or its store did not answer
)

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

// tell writes lines to Err, each behind the program's name.
func (p process) tell(text string) {
	// nobody is left to tell
	_, _ = fmt.Fprintln(p.Err, "stint: "+strings.ReplaceAll(harmless(prefix.Trim(text)), "\n", "\nstint: "))
}

// An exit is an error that knows the exit code. Its text is written by [process.tell]; nothing is
// if it is "".
type exit struct {
	code int
	text string
}

func (e exit) Error() string { return e.text }

// unreachable is the failure to reach the service or a store.
func unreachable(err error) error { return exit{exitUnreachable, err.Error()} }

// misused is a fault of the command line.
func misused(format string, args ...any) error {
	return exit{exitUsage, fmt.Sprintf(format, args...)}
}

// rootCommand is the program, with all its commands below it.
//
// A command's flags and arguments are read by cobra; their faults, such as an unknown flag, end as [exitUsage] in
// [run], which begun tells them from failures of the command itself.
func rootCommand(p process, begun *bool) *cobra.Command {
	root := newCommand("stint")
	root.SilenceErrors, root.SilenceUsage, root.Version = true, true, versionText()
	root.Args = knownCommand // else cobra itself suggests commands, in other words
	root.RunE = func(*cobra.Command, []string) error { return root.Help() }
	root.PersistentPreRun = func(*cobra.Command, []string) { *begun = true }
	root.SetOut(p.Out)
	root.SetErr(p.Err)
	root.SetFlagErrorFunc(flagFault)
	root.AddCommand(
		serveCommand(p), checkCommand(p), peekCommand(p), resetCommand(p), resetAllCommand(p),
		holdsCommand(p), rulesCommand(p),
		simulateCommand(p), benchCommand(p), topCommand(p), denialsCommand(p), doctorCommand(p), rateLimitCommand(p),
		versionCommand(p), manCommand(p),
	)
	return root
}

// knownCommand is the fault of a command that a group of them does not have.
func knownCommand(group *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, command := range group.Commands() {
		names = append(names, command.Name())
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], group.CommandPath(), spell.DidYouMean(args[0], names))
}

// run carries out one command line until it ends or ctx is done, and returns the
// exit code. Answers go to Out, everything else to Err.
func run(ctx context.Context, args []string, p process) int {
	begun := false
	root := rootCommand(p, &begun)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if passed, ok := errors.AsType[status](err); ok {
		return int(passed)
	}
	known := exit{exitFailed, err.Error()}
	if !begun {
		known = exit{exitUsage, fmt.Sprintf("%v\nsee '%s --help'", err, command.CommandPath())}
	}
	_ = errors.As(err, &known) // of another error it stays
	if known.text != "" {
		p.tell(known.text)
	}
	// In front of a command the exit codes are others, so that they can't be taken for the command's.
	if command.Name() == "check" && slices.Contains(args, "--") {
		return guardCode(known.code)
	}
	return known.code
}

// Set by the linker for releases: -ldflags "-X main.version=v1.2.3 -X main.commit=abc".
// Otherwise the toolchain's record of the build says it.
var version, commit string

// build says what is running.
func build() rest.Build {
	b := rest.Build{Version: version, Commit: commit}
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

// versionCommand says what is running, for bug reports.
func versionCommand(p process) *cobra.Command {
	var f struct{ JSON bool }
	command := newCommand("version", &f)
	command.RunE = func(*cobra.Command, []string) error {
		if f.JSON {
			b := build()
			return sayJSON(p.Out, rest.Info{Version: b.Version, Commit: b.Commit, GoVersion: runtime.Version()}, "")
		}
		return say(p.Out, "stint version %s\n", versionText())
	}
	return command
}

// versionText says what this is, in lines, behind "stint version". A template of our own for
// --version would have the linker keep every method of every type, which are 14 MB of commands of
// Redis.
func versionText() string {
	b := build()
	return fmt.Sprintf("%s\ncommit %s\n%s %s/%s", b.Version, b.Commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// sayJSON writes what was asked for as JSON, in one line if indent is "".
func sayJSON(out io.Writer, v any, indent string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", indent)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	return say(out, "%s", text.Bytes())
}

// say writes what was asked for; that nobody could be told is a failure.
func say(out io.Writer, format string, args ...any) error {
	_, err := io.WriteString(out, harmless(fmt.Sprintf(format, args...)))
	return err
}

// harmless writes the control characters of a text as JSON does, ends of lines and tabs excepted. A
// server, or who stands between, may have sent them, and a terminal obeys them. Text in colours does
// not come here.
func harmless(text string) string {
	obeyed := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if text = strings.ToValidUTF8(text, "\uFFFD"); !strings.ContainsFunc(text, obeyed) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if obeyed(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
