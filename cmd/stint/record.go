package main

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint/cmd/stint/internal/config"
	"github.com/stint-go/stint/cmd/stint/internal/logqueue"
	"github.com/stint-go/stint/simulate"
)

// How much a record may take on the disk.
const (
	recordBytes = 128 << 20
	recordFiles = 8
)

// record has the store's decisions recorded, if the configuration says so, until the returned function is called. No decision waits for
// the disk: what it does not take in time is dropped and counted.
func (o *openedStore) record(c config.Config) (end func(), err error) {
	if c.Record == "" {
		return func() {}, nil
	}
	files, err := simulate.NewRotator(c.Record, recordBytes, recordFiles)
	if err != nil {
		return nil, failed(err)
	}
	queue := logqueue.New(files, simulate.DroppedLine)
	o.Store = simulate.NewRecorder(o.Store, queue, simulate.RecorderOptions{Memory: c.Store.Memory(), PlainKeys: c.RecordPlainKeys})
	o.Collectors = append(o.Collectors, prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "rate_limiter_record_lines_lost_total",
		Help: "Lines of the record that could not be written.",
	}, func() float64 { return float64(queue.Lost()) }))
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
		defer cancel()
		if queue.Close(ctx) == nil {
			_ = files.Close() // nobody is left to tell
		}
	}, nil
}
