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
		{Options{KeyPrefix: "a b"}, []string{"KeyPrefix"}},
		{Options{KeyPrefix: "a{b"}, []string{"KeyPrefix"}},
		{Options{KeyPrefix: "a}"}, []string{"KeyPrefix"}},
		{Options{KeyPrefix: "naïve"}, []string{"KeyPrefix"}},
		{Options{KeyPrefix: strings.Repeat("k", 65)}, []string{"KeyPrefix"}},
		{Options{LogEncoding: "PACKED"}, []string{"LogEncoding"}},
		{Options{KeyPrefix: "\n", LogEncoding: "list"}, []string{"KeyPrefix", "LogEncoding"}},
		{Options{Partitions: -1}, []string{"Partitions"}},
		{Options{Partitions: maxPartitions + 1}, []string{"Partitions"}},
		{Options{MaxBatch: -1, InFlight: -1, MaxQueue: -1}, []string{"MaxBatch", "InFlight", "MaxQueue"}},
		{Options{MaxBatch: maxMaxBatch + 1, InFlight: queue.MaxInFlight + 1}, []string{"MaxBatch", "InFlight"}},
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
