package chaos_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// The table of docs/reference/failures.md and the faults are the same.
func TestTableIsComplete(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/reference/failures.md"))(t)
	var promised, made []string
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) == 8 {
			promised = append(promised, strings.TrimSpace(cells[1]))
		}
	}
	for _, f := range faults() {
		made = append(made, f.name)
	}
	if len(promised) < 2 || !slices.Equal(promised[2:], made) {
		t.Errorf("the table has\n%q\nand made are\n%q", promised, made)
	}
}
