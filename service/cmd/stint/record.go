package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/stint-go/stint/service/internal/simulate"
)

// replayRecords decides what records of serve --record have once more. It fails if anything
// differs, or can't be claimed to be the same. Files of one record are NAME.n, ..., NAME.1, NAME,
// from the oldest to the newest, and are read as one.
func (s *simulation) replayRecords() error {
	if len(s.logs) == 0 {
		return misused("there are no files; give the FILE of serve --record, one for each process")
	}
	var records []io.Reader
	for _, name := range s.logs {
		var files []io.Reader
		for i, at := 0, name; ; i, at = i+1, fmt.Sprintf("%s.%d", name, i+1) {
			f, err := os.Open(filepath.Clean(at))
			if i > 0 && os.IsNotExist(err) {
				break
			}
			if err != nil {
				return err
			}
			defer func() { _ = f.Close() }() // which was read
			files = append(files, f)
		}
		slices.Reverse(files) // the oldest first
		records = append(records, io.MultiReader(files...))
	}
	c, err := simulate.Replay(records...)
	if err != nil {
		return err
	}
	if s.JSON {
		err = sayJSON(s.Out, c, "  ")
	} else {
		err = say(s.Out, "%d decisions: %d equal, %d different, %d by the denial cache, which are not compared\n",
			c.Decisions, c.Decisions-c.Answered-c.Different, c.Different, c.Answered)
	}
	switch {
	case err != nil:
		return err
	case c.Unfit != "":
		return fmt.Errorf("nobody can claim that the record replays: %s (%d decisions differ)", c.Unfit, c.Different)
	case c.Decisions == 0:
		return errors.New("there are no decisions in the record")
	case c.Different > 0:
		return fmt.Errorf("%d decisions differ. The first: %s", c.Different, c.FirstDifference)
	}
	return nil
}
