package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/logqueue"
	"github.com/stint-go/stint/service/internal/simulate"
)

// How much a record may take on the disk.
const (
	recordBytes = 128 << 20
	recordFiles = 8
)

// A recordedStore is a store whose decisions are recorded, until its end is called.
type recordedStore struct {
	stint.Store
	end        func()
	collectors []prometheus.Collector
}

// startRecord has a store's decisions recorded, if the configuration says so. No decision waits for
// the disk: what it does not take in time is dropped and counted. A line is written behind the
// decision, by the queue's goroutine. In place of lines that were dropped stands one that counts
// them, so that a replay knows that something is missing.
func startRecord(c config.Config, store stint.Store) (recordedStore, error) {
	if c.Record == "" {
		return recordedStore{Store: store, end: func() {}}, nil
	}
	files, err := simulate.NewRotator(c.Record, recordBytes, recordFiles)
	if err != nil {
		return recordedStore{}, failed(err)
	}
	queue := logqueue.New(files, simulate.DroppedLine)
	lost := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_record_lines_lost_total",
		Help: "Lines of the record that could not be written.",
	}, func() float64 { return float64(queue.Lost()) })
	return recordedStore{
		Store: simulate.NewRecorder(
			store, queue, simulate.RecorderOptions{Memory: c.Store.Memory(), PlainKeys: c.RecordPlainKeys},
		),
		collectors: []prometheus.Collector{lost},
		end: func() {
			ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
			defer cancel()
			if queue.Close(ctx) == nil {
				_ = files.Close() // nobody is left to tell
			}
		},
	}, nil
}

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
				return failed(err)
			}
			defer func() { _ = f.Close() }() // which was read
			files = append(files, f)
		}
		slices.Reverse(files) // the oldest first
		records = append(records, io.MultiReader(files...))
	}
	c, err := simulate.Replay(records...)
	if err != nil {
		return failed(err)
	}
	if s.json {
		err = sayJSON(s.Out, c, "  ")
	} else {
		err = say(s.Out, "%d decisions: %d equal, %d different, %d by the denial cache, which are not compared\n",
			c.Decisions, c.Decisions-c.Answered-c.Different, c.Different, c.Answered)
	}
	switch {
	case err != nil:
		return failed(err)
	case c.Unfit != "":
		return failed(fmt.Errorf("nobody can claim that the record replays: %s (%d decisions differ)", c.Unfit, c.Different))
	case c.Decisions == 0:
		return failed(errors.New("there are no decisions in the record"))
	case c.Different > 0:
		return failed(fmt.Errorf("%d decisions differ. The first: %s", c.Different, c.FirstDifference))
	}
	return nil
}
