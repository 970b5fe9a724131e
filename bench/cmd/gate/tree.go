package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A tree is a checkout of a commit, and what was measured of it.
type tree struct {
	name    string
	dir     string
	gate    string               // the program that measures
	links   int                  // how often that was linked
	stint   string               // the program that is measured as a service
	without []string             // rows that are not measured
	rows    []string             // in their order
	times   map[string][]float64 // of each row, one a round: nanoseconds for each operation
}

// shared are the files of bench/gate that know nothing of the library: they measure any commit alike.
// The others call the library as it is at their commit.
var shared = []string{"main.go", "measure.go", "process.go", "keys.go", "takes.go", "floor.go", "service.go"}

// build makes the tree's programs in a folder. A commit from before bench/gate gets the shared files
// of this tree's, and those that bench/gate/testdata has for its library.
func (t *tree) build(ctx context.Context, root, folder string) error {
	t.gate, t.stint = filepath.Join(folder, t.name+".gate"), filepath.Join(folder, t.name+".stint")
	program := "./service/cmd/stint"
	if _, err := os.Stat(filepath.Join(t.dir, "bench", "gate")); errors.Is(err, os.ErrNotExist) {
		if err := t.adapt(root); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(t.dir, program)); errors.Is(err, os.ErrNotExist) {
		program = "./cmd/stint"
	}
	return errors.Join(
		t.link(ctx),
		command(ctx, t.dir, nil, "go", "build", "-tags", "grpcnotrace", "-o", t.stint, program),
	)
}

// link makes a new file of the program that measures, with its functions in an order of its own: where they stand
// alone makes two ways in memory cost 279 to 345 ns, in files of one commit. The nth order is of the same seed in
// each tree.
func (t *tree) link(ctx context.Context) error {
	t.links++
	if err := os.Remove(t.gate); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	layout := fmt.Sprintf("-ldflags=-randlayout=%d", t.links)
	return command(ctx, filepath.Join(t.dir, "bench"), nil, "go", "build", layout, "-o", t.gate, "./gate")
}

// adapt gives a commit from before bench/gate one, from the repository at root.
func (t *tree) adapt(root string) error {
	from, to := filepath.Join(root, "bench", "gate"), filepath.Join(t.dir, "bench", "gate")
	adapter, err := filepath.Glob(filepath.Join(from, "testdata", t.name, "*.go"))
	if err == nil && adapter == nil {
		err = fmt.Errorf("it has no bench/gate, and bench/gate/testdata/%s does not exist", t.name)
	}
	if err == nil {
		err = os.Mkdir(to, 0o755) //nolint:gosec // a folder of source
	}
	if err != nil {
		return err
	}
	for _, name := range shared {
		adapter = append(adapter, filepath.Join(from, name))
	}
	for _, name := range adapter {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(to, filepath.Base(name)), text, 0o644) //nolint:gosec // a file of source
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// list names the rows that match, without those that are not measured.
func (t *tree) list(ctx context.Context, rows string) ([]string, error) {
	var out bytes.Buffer
	err := command(ctx, t.dir, &out, t.gate, "-list", "-rows", rows)
	isOut := func(name string) bool { return slices.Contains(t.without, name) }
	return slices.DeleteFunc(strings.Fields(out.String()), isOut), err
}

// round is what the name of the program that is measured as a service ends in, behind that of what was built.
const round = ".round"

// renew gives trees new files of their programs for a round, all at once: where the system keeps a file in memory may
// cost it a fifth, for as long as it stays there.
func renew(ctx context.Context, trees []*tree) error {
	faults := make([]error, len(trees))
	var group sync.WaitGroup
	for i, t := range trees {
		group.Go(func() { faults[i] = errors.Join(t.link(ctx), copyFile(t.stint, t.stint+round)) })
	}
	group.Wait()
	return errors.Join(faults...)
}

// run measures rows once, and adds what it reads to the times.
func (t *tree) run(ctx context.Context, rows string, duration time.Duration) error {
	if t.without != nil {
		left, err := t.list(ctx, rows)
		if err != nil || len(left) == 0 {
			return err
		}
		rows = anyOf(left)
	}
	var out bytes.Buffer
	args := []string{"-stint", t.stint + round, "-rows", rows, "-for", duration.String()}
	if err := command(ctx, t.dir, &out, t.gate, args...); err != nil {
		return err
	}
	if t.times == nil {
		t.times = map[string][]float64{}
	}
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
		ns, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return fmt.Errorf("%s said %q; want a name, a tab and nanoseconds", t.gate, line)
		}
		t.add(name, ns)
		if of, found := strings.CutSuffix(name, ofRedis); found {
			t.add(of+ofBoth, ns+t.last(of))
		}
	}
	return nil
}

// add adds a round's time of a row.
func (t *tree) add(row string, ns float64) {
	if !slices.Contains(t.rows, row) {
		t.rows = append(t.rows, row)
	}
	t.times[row] = append(t.times[row], ns)
}

// last is the time of a row in the last round.
func (t *tree) last(row string) float64 { return t.least(row, 1) }

// least is the least time of a row in so many rounds, the last ones.
func (t *tree) least(row string, rounds int) float64 {
	times := t.times[row]
	return slices.Min(times[len(times)-rounds:])
}

// copyFile makes a new file of a program's.
func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.Remove(to)
	}
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.WriteFile(to, text, 0o755) //nolint:gosec // it is to be run
	}
	return err
}

// command runs a program in a folder. Its output goes to out, or into the error if it fails.
func command(ctx context.Context, dir string, out io.Writer, name string, args ...string) error {
	var text bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, &text, &text
	if out != nil {
		c.Stdout = out
	}
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(name), err, said(&text))
	}
	return nil
}
