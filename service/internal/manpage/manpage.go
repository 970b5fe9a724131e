// Package manpage writes the man pages of a program from its commands.
package manpage

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stint-go/stint"
)

// Write writes a page for each command of a program that is not hidden into a folder, which is made if it is missing.
// epoch is the text of SOURCE_DATE_EPOCH, whose month the pages bear; with "" they bear none, so that the same program
// writes the same pages.
func Write(root *cobra.Command, folder, epoch string) error {
	var date string
	if epoch != "" {
		seconds, err := strconv.ParseInt(epoch, 10, 64)
		if err != nil {
			return stint.Invalid("SOURCE_DATE_EPOCH", epoch, "seconds since 1970")
		}
		date = time.Unix(seconds, 0).UTC().Format("Jan 2006")
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // everybody reads man pages
		return err
	}
	return write(root, folder, date)
}

// write writes the page of a command, and those of the commands below it that are not hidden.
func write(command *cobra.Command, folder, date string) error {
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			if err := write(sub, folder, date); err != nil {
				return err
			}
		}
	}
	path := filepath.Join(folder, nameOf(command)+".1")
	return os.WriteFile(path, []byte(page(command, date)), 0o644) //nolint:gosec // everybody reads man pages
}

// nameOf is what the page of a command is called: stint-rules-explain.
func nameOf(command *cobra.Command) string {
	return strings.ReplaceAll(command.CommandPath(), " ", "-")
}

// page is the page of a command, in the language of man(7).
func page(command *cobra.Command, date string) string {
	command.InitDefaultHelpFlag()
	name := nameOf(command)
	page := []string{
		fmt.Sprintf(`.TH %s 1 "%s" stint "User Commands"`, strings.ToUpper(name), date),
		".SH NAME", roff(name) + ` \- ` + roff(command.Short),
		".SH SYNOPSIS", `\fB` + roff(command.UseLine()) + `\fR`,
		".SH DESCRIPTION",
	}
	page = append(page, description(cmp.Or(command.Long, command.Short))...)
	page = append(page, ".SH OPTIONS")
	command.Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			page = append(page, option(flag)...)
		}
	})
	var others []string
	if command.HasParent() {
		others = append(others, nameOf(command.Parent()))
	}
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, nameOf(sub))
		}
	}
	page = append(page, ".SH SEE ALSO", `\fB`+roff(strings.Join(others, "(1), "))+`(1)\fR`)
	return strings.Join(page, "\n") + "\n"
}

// description is a text as lines of a page. Those that are indented are examples, and keep their form.
func description(text string) (lines []string) {
	example := false
	for _, line := range append(strings.Split(strings.TrimSpace(text), "\n"), "") {
		switch is := strings.HasPrefix(line, "  "); {
		case is && !example:
			lines = append(lines, ".EX")
		case !is && example:
			lines = append(lines, ".EE")
		}
		example = strings.HasPrefix(line, "  ")
		if line = roff(line); line == "" {
			line = ".PP"
		}
		lines = append(lines, line)
	}
	return lines[:len(lines)-1]
}

// option is a flag as lines of a page: its names, the word for its value, what it does, and its default.
func option(flag *pflag.Flag) []string {
	value, usage := pflag.UnquoteUsage(flag)
	head := `\fB` + roff("--"+flag.Name) + `\fR`
	if flag.Shorthand != "" {
		head = `\fB` + roff("-"+flag.Shorthand) + `\fR, ` + head
	}
	if value != "" {
		head += ` \fI` + roff(value) + `\fR`
	}
	if def := flag.DefValue; !slices.Contains([]string{"", "false", "[]", "0", "0s"}, def) {
		usage += " (default " + def + ")"
	}
	return []string{".TP", head, roff(usage)}
}

var (
	// quoted finds what is between backquotes, which pages have in bold.
	quoted = regexp.MustCompile("`([^`]*)`")
	// request finds what would make a line a request of man(7) instead of a text.
	request = regexp.MustCompile(`(?m)^[.']`)
)

// roff spells a text so that it means itself.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	return request.ReplaceAllString(quoted.ReplaceAllString(text, `\fB$1\fR`), `\&$0`)
}
