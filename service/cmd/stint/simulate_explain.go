package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/stint-go/stint/service/internal/simulate"
)

// errExplained ends the reading of a log once enough of its lines are explained.
var errExplained = errors.New("explained")

// explainFormat prints the first ten lines of a log as they are read. Values are quoted if they are not
// what a terminal shows as it is, as logs have what anybody sends.
func (s *simulation) explainFormat() error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "LINE\tTIME\tCLIENT\tUSER\tMETHOD\tHOST\tPATH\tSTATUS\t")
	lines := 0
	row := func(line int64, fault string, values ...string) error {
		_, _ = fmt.Fprintf(w, "%d\t", line)
		for _, value := range values {
			_, _ = fmt.Fprint(w, shown(value)+"\t")
		}
		_, _ = fmt.Fprintln(w, fault)
		if lines++; lines == 10 {
			return errExplained
		}
		return nil
	}
	s.reader.Unread = func(line int64, text string, fault error) error {
		return row(line, fmt.Sprintf("not read: %v: %.60q", fault, text), "", "", "", "", "", "", "")
	}
	r, err := simulate.NewReader(s.reader)
	if err != nil {
		return misused("%v", err)
	}
	err = readLog(s.ExplainFormat, &progress{}, r, func(ev *simulate.Event) error {
		q, status := &ev.Request, "-"
		if ev.Status > 0 {
			status = strconv.Itoa(ev.Status)
		}
		return row(ev.Line, "", ev.Time.String(), q.Address, q.User, q.Method, q.Host, q.Path, status)
	})
	if err != nil && !errors.Is(err, errExplained) {
		return err
	}
	input, err := r.Done()
	_ = w.Flush() // which can't fail
	return errors.Join(say(s.Out, "format: %s\n%s", input.Described(), b.String()), err)
}

// shown is a value as a terminal shows it, cut to 60 bytes.
func shown(value string) string {
	if value == "" {
		return "-"
	}
	if quoted := strconv.Quote(value); quoted != `"`+value+`"` {
		value = quoted
	}
	return fmt.Sprintf("%.60s", value)
}
