package states

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/logqueue"
	"github.com/stint-go/stint/service/internal/record"
)

// How much a record may take on the disk.
const (
	recordBytes = 128 << 20
	recordFiles = 8
	flushTime   = 2 * time.Second // that is waited for the last lines
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
	files, err := record.NewRotator(c.Record, recordBytes, recordFiles)
	if err != nil {
		return recordedStore{}, err
	}
	queue := logqueue.New(files, record.DroppedLine)
	lost := prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_record_lines_lost_total",
		Help: "Lines of the record that could not be written.",
	}, func() float64 { return float64(queue.Lost()) })
	return recordedStore{
		Store: record.New(
			store, queue, record.Options{Memory: c.Store.Memory(), PlainKeys: c.RecordPlainKeys},
		),
		collectors: []prometheus.Collector{lost},
		end: func() {
			ctx, cancel := context.WithTimeout(context.Background(), flushTime)
			defer cancel()
			if queue.Close(ctx) == nil {
				_ = files.Close() // nobody is left to tell
			}
		},
	}, nil
}
