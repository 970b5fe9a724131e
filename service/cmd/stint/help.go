package main

import (
	_ "embed" // what the commands say of themselves
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stint-go/stint/service/internal/simulate"
)

// helpText says of each command what it does, and what its flags mean; its head says in which form.
//
//go:embed help.txt
var helpText string

// helpOf is what helpText says under a path, such as "rules list", or another heading.
func helpOf(path string) string {
	_, text, _ := strings.Cut(helpText, "\n== "+path+":")
	text, _, _ = strings.Cut(text, "\n== ")
	return strings.NewReplacer(
		"{forms}", shortForms,
		"{patterns}", strings.Join(simulate.Patterns(), ", "),
		"{formats}", strings.Join(simulate.Formats(), ", "),
	).Replace(text)
}

// flagHelp is what helpText says of a flag of a command, or else of the flag of several commands that has this name.
func flagHelp(path, flag string) string {
	for _, heading := range []string{path, "flags of several commands"} {
		if _, text, found := strings.Cut(helpOf(heading), "\n--"+flag+": "); found {
			text, _, _ = strings.Cut(text, "\n--")
			return strings.ReplaceAll(strings.TrimSpace(text), "\n  ", " ")
		}
	}
	return ""
}

// newCommand makes the command of a path by what helpText says of it, with the flags of structs. It takes no arguments
// unless its Args are set.
func newCommand(path string, flags ...any) *cobra.Command {
	words, _, _ := strings.Cut(helpOf(path), "\n--")
	arguments, words, _ := strings.Cut(words, "\n")
	short, long, _ := strings.Cut(words, "\n\n")
	name := path[strings.LastIndexByte(path, ' ')+1:]
	command := &cobra.Command{
		Use: strings.TrimSpace(name + arguments), Short: strings.TrimSpace(short), Long: strings.TrimSpace(long),
		Args: cobra.NoArgs,
	}
	for _, fields := range flags {
		addFlags(command.Flags(), path, fields)
	}
	return command
}

// addFlags gives a command a flag for each field of a struct, which the flag sets: --api-key for APIKey. What the field
// holds before is the flag's default.
func addFlags(flags *pflag.FlagSet, path string, fields any) {
	v := reflect.ValueOf(fields).Elem()
	for _, of := range reflect.VisibleFields(v.Type()) {
		if of.Anonymous { // its fields follow
			continue
		}
		name := flagName(of.Name)
		text := flagHelp(path, name)
		switch field := v.FieldByIndex(of.Index).Addr().Interface().(type) {
		case *bool:
			flags.BoolVar(field, name, *field, text)
		case *string:
			flags.StringVar(field, name, *field, text)
		case *[]string:
			flags.StringArrayVar(field, name, *field, text)
		case *int:
			flags.IntVar(field, name, *field, text)
		case *int64:
			flags.Int64Var(field, name, *field, text)
		case *uint64:
			flags.Uint64Var(field, name, *field, text)
		case *float64:
			flags.Float64Var(field, name, *field, text)
		case *time.Duration:
			flags.Var((*timeoutFlag)(field), name, text)
		}
	}
}

// flagName is the name of a field's flag: words in small letters with dashes between.
func flagName(field string) string {
	return strings.ToLower(wordEnds.ReplaceAllString(field, "$1$3-$2$4"))
}

// wordEnds are where a word of a name ends: before a capital letter behind a small one, or before the last of several.
var wordEnds = regexp.MustCompile("([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])")
