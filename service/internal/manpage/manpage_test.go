package manpage_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/manpage"
)

// program is a program with a command that is shown, and one that is hidden.
func program() *cobra.Command {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "tool", Short: "Do things"}
	sub := &cobra.Command{
		Use: "cut FILE", Short: "Cut a file", Run: run,
		Long: "Cut a file, as `cut` does.\n.dots and \\n stay.\n\n  tool cut -n 3 a\n\n  tool cut b\n\nIt is quick.",
	}
	sub.Flags().IntP("number", "n", 5, "how many `LINES` to keep")
	sub.Flags().Bool("quiet", false, "say nothing:\n'hush'")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	return root
}

// A page has the command's words, spelled so that man(1) shows them as they are, and examples as they stand.
func TestPages(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "man")
	must.Do(t, manpage.Write(program(), folder, "1764201600"))
	pages, _ := filepath.Glob(filepath.Join(folder, "*"))
	if len(pages) != 2 {
		t.Errorf("there are %q; want tool.1 and tool-cut.1", pages)
	}
	text := must.Get(os.ReadFile(filepath.Join(folder, "tool-cut.1")))(t)
	const want = `.TH TOOL-CUT 1 "Nov 2025" stint "User Commands"
.SH NAME
tool\-cut \- Cut a file
.SH SYNOPSIS
\fBtool cut FILE [flags]\fR
.SH DESCRIPTION
Cut a file, as \fBcut\fR does.
\&.dots and \en stay.
.PP
.EX
  tool cut \-n 3 a
.EE
.PP
.EX
  tool cut b
.EE
.PP
It is quick.
.SH OPTIONS
.TP
\fB\-h\fR, \fB\-\-help\fR
help for cut
.TP
\fB\-n\fR, \fB\-\-number\fR \fILINES\fR
how many LINES to keep (default 5)
.TP
\fB\-\-quiet\fR
say nothing:
\&'hush'
.SH SEE ALSO
\fBtool(1)\fR
`
	if string(text) != want {
		t.Errorf("the page is\n%s\nwant\n%s", text, want)
	}
}

// What is no time is refused.
func TestPagesRefuse(t *testing.T) {
	err := manpage.Write(program(), t.TempDir(), "yesterday")
	if err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
		t.Errorf("yesterday: %v; want an error that names SOURCE_DATE_EPOCH", err)
	}
}
