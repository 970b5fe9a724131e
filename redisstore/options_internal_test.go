package redisstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/redisstore/internal/queue"
)

// Options outside what is allowed are all reported, by name.
func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		params  []string
	}{
		{Options{KeyPrefix: "a b"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "a{b"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "a}"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "naïve"}, []string{"key_prefix"}},
		{Options{KeyPrefix: strings.Repeat("k", 65)}, []string{"key_prefix"}},
		{Options{LogEncoding: "PACKED"}, []string{"log_encoding"}},
		{Options{KeyPrefix: "\n", LogEncoding: "list"}, []string{"key_prefix", "log_encoding"}},
		{Options{Partitions: -1}, []string{"partitions"}},
		{Options{Partitions: maxPartitions + 1}, []string{"partitions"}},
		{Options{MaxBatch: -1, InFlight: -1, MaxQueue: -1}, []string{"max_batch", "in_flight", "max_queue"}},
		{Options{MaxBatch: maxMaxBatch + 1, InFlight: queue.MaxInFlight + 1}, []string{"max_batch", "in_flight"}},
	} {
		err := c.options.Validate()
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: got %v, want %v", c.options, err, stint.ErrInvalid)
			continue
		}
		for _, param := range c.params {
			if !strings.Contains(err.Error(), param+" is ") {
				t.Errorf("%+v: %v does not name %s", c.options, err, param)
			}
		}
		if _, err := New(&held{}, c.options); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("New with %+v: got %v, want %v", c.options, err, stint.ErrInvalid)
		}
	}
}
