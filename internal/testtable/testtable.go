// Package testtable reads the cases of a test from a table in testdata, so that a case is a line and needs no code.
//
//	# a comment
//	/users/{id}   /users/7   true    a row: its cells stand two blanks or more apart
//	""            "a  b\n"   false   a cell that is empty, or has what would be misread, is in quotes as in Go
package testtable

import (
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// Rows are the rows of a file. Row is a struct of exported fields, one for each cell in order: texts, integers (int),
// durations and bools. A table without rows, and a row that does not fit, end the test.
func Rows[Row any](t must.Test, file string) (rows []Row) {
	t.Helper()
	for number, line := range strings.Split(string(must.Get(os.ReadFile(file))(t)), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		var row Row
		if err := fill(reflect.ValueOf(&row).Elem(), cellsOf(line)); err != nil {
			t.Fatal(fmt.Errorf("%s:%d: %w", file, number+1, err))
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatal(file + " has no rows")
	}
	return rows
}

// cellsOf takes a line apart.
func cellsOf(line string) (cells []string) {
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		quoted, err := strconv.QuotedPrefix(line)
		if more := line[len(quoted):]; err == nil && (more == "" || strings.HasPrefix(more, "  ")) {
			text, _ := strconv.Unquote(quoted) // which QuotedPrefix has checked
			cells, line = append(cells, text), line[len(quoted):]
			continue
		}
		cell, more, _ := strings.Cut(line, "  ")
		cells, line = append(cells, strings.TrimRight(cell, " ")), more
	}
	return cells
}

// fill sets the fields of a row.
func fill(row reflect.Value, cells []string) error {
	if len(cells) != row.NumField() {
		return fmt.Errorf("the row has %d cells; want %d", len(cells), row.NumField())
	}
	for i, cell := range cells {
		var err error
		switch field := row.Field(i); field.Kind() {
		case reflect.String:
			field.SetString(cell)
		case reflect.Bool:
			var b bool
			b, err = strconv.ParseBool(cell)
			field.SetBool(b)
		case reflect.Int:
			var n int
			n, err = strconv.Atoi(cell)
			field.SetInt(int64(n))
		case reflect.Int64: // a duration
			var d time.Duration
			d, err = time.ParseDuration(cell)
			field.SetInt(int64(d))
		default:
			err = fmt.Errorf("field %s is neither a text nor an integer, a duration or a bool", row.Type().Field(i).Name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
