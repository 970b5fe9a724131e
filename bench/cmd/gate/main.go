// Command gate compares the speed of this tree with that of the commits in bench/BASELINE, and
// fails where it is slower. It builds bench/gate, the program that measures, here and at each of the
// commits, and runs the programs in turn.
//
// A row is suspected if its processor time for each operation is more than the margin above that of one
// of the commits, by the median of the rounds or by their minimum; a trial decides whether it fails.
// Rows that a commit does not have are not compared with it, and each commit is measured only in the
// rows that those before it lack. bench/FLOORS has a second bound for some rows: the cost of others'
// work, measured in the same rounds, must be at least a share of the row's.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags, as main describes them.
type options struct {
	root     string
	rounds   int
	duration time.Duration // of each row, in each round
	rows     string        // a regular expression; "" matches all
	margin   float64       // a share: 0.07 allows 7 % more time
}

// main ends with status 1 if a row failed. An interrupt ends the measurement, and removes the trees.
func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.StringVar(&o.root, "root", ".", "the repository's folder")
	flag.IntVar(&o.rounds, "rounds", 7, "how often each program runs")
	flag.DurationVar(&o.duration, "for", 300*time.Millisecond, "for how long a row is measured in each round")
	flag.StringVar(&o.rows, "rows", "", "regular expression of the rows to measure; default: all")
	flag.Float64Var(&o.margin, "margin", 0.07, "how much dearer a row may be, as a share")
	flag.Parse()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		stop()
		os.Exit(1)
	}
}

// run checks out and builds each commit, measures all trees, and prints the table. A history
// without one of the commits, such as a shallow clone's, is not compared: that is no error.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.rounds < 1 || o.duration <= 0 || o.margin < 0 {
		return fmt.Errorf(
			"-rounds is %d, -for %s and -margin %v; allowed: 1 or more, above 0, and 0 or more", o.rounds, o.duration, o.margin,
		)
	}
	commits, err := baseline(filepath.Join(o.root, "bench", "BASELINE"))
	if err != nil {
		return err
	}
	floors, err := readFloors(filepath.Join(o.root, "bench", "FLOORS"))
	if err != nil {
		return err
	}
	for _, commit := range commits {
		if git(ctx, o.root, "cat-file", "-e", commit+"^{commit}") != nil {
			fmt.Fprintf(out, "not compared: the history here does not have commit %s of bench/BASELINE\n", commit)
			return nil
		}
	}
	folder, err := os.MkdirTemp("", "stint-gate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	trees := []*tree{{name: "here", dir: o.root}}
	for _, commit := range commits {
		t := &tree{name: commit[:min(len(commit), 8)], dir: filepath.Join(folder, commit)}
		if err := git(ctx, o.root, "worktree", "add", "--detach", "--force", t.dir, commit); err != nil {
			return err
		}
		defer func() {
			err = errors.Join(err, git(context.WithoutCancel(ctx), o.root, "worktree", "remove", "--force", t.dir))
		}()
		trees = append(trees, t)
	}
	var before []string // rows of the commits so far
	for i, t := range trees {
		err := t.build(ctx, o.root, folder)
		if err == nil && i > 0 {
			t.without = slices.Clone(before)
			var listed []string
			listed, err = t.list(ctx, "")
			before = append(before, listed...)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	if err := measure(ctx, trees, o); err != nil {
		return err
	}
	if len(trees[0].rows) == 0 {
		return fmt.Errorf("-rows is %q; allowed: what matches a row of `go run ./gate -list`", o.rows)
	}
	suspects := suspected(trees, floors, o.margin)
	if err := settle(ctx, trees, suspects, o.duration, out); err != nil {
		return err
	}
	failed := failures(suspects)
	report(out, trees, floors, failed)
	if len(failed) > 0 {
		return fmt.Errorf("slower than the baseline: %s", strings.Join(failed, ", "))
	}
	return nil
}

// anyOf is a regular expression that matches rows. NAME/redis and NAME/both are measured together with NAME.
func anyOf(rows []string) string {
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = "^" + regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(row, ofRedis), ofBoth)) + "$"
	}
	return strings.Join(names, "|")
}

// baseline reads the commits of a file: a line each, with a comment behind "#".
func baseline(name string) (commits []string, err error) {
	lines, err := readLines(name)
	for _, fields := range lines {
		commits = append(commits, fields[0])
	}
	return commits, err
}

// readLines reads the lines of a file that are not empty, as fields, without comments.
func readLines(name string) (lines [][]string, err error) {
	text, err := os.ReadFile(name)
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines, err
}

// measure runs the programs in turn. Every second round has the opposite order, so that a machine
// that grows slower does so for all trees alike.
func measure(ctx context.Context, trees []*tree, o options) error {
	order := slices.Clone(trees)
	for range o.rounds {
		if err := renew(ctx, trees); err != nil {
			return err
		}
		for _, t := range order {
			if err := t.run(ctx, o.rows, o.duration); err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
		slices.Reverse(order)
	}
	return nil
}

// git runs a command of git in a folder.
func git(ctx context.Context, dir string, args ...string) error {
	return command(ctx, dir, nil, "git", args...)
}

// said is the end of the output of a command that failed: the reason is in its last lines.
func said(out *bytes.Buffer) string {
	const most = 2000
	text := strings.TrimSpace(out.String())
	return text[max(0, len(text)-most):]
}
