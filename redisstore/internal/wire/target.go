package wire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/redisstore/internal/layout"
)

// A Config is what all targets of a store have in common. It must not change once a batch was made.
type Config struct {
	Cluster  bool
	Channel  string // for announcements
	MaxHolds int    // that a client may have under one limit
	// Now is the time of every decision. Default: nil, the server's clock.
	Now func() time.Time
	// Eval runs the script for a mix, never twice, and returns its reply. It keeps neither keys nor args.
	Eval func(ctx context.Context, m Mix, keys, args []string) (string, error)
	// Unlink frees hashes that nobody reads any more.
	Unlink func(dead *layout.GenerationKeys)
	// Raised is called when the epoch in a field of the settings is later than was known.
	Raised func(field string)
}

// NowText is the time as scripts get it: "" is the server's own.
func (c *Config) NowText() string {
	if c.Now == nil {
		return ""
	}
	return strconv.FormatInt(c.Now().UnixMicro(), 10)
}

// guess is about what time it is for the server.
func (c *Config) guess() stint.Instant {
	if c.Now == nil {
		return stint.Instant(time.Now().UnixMicro())
	}
	return stint.Instant(c.Now().UnixMicro())
}

// A Target is where the batches of one queue go: the server, or a partition of a cluster. It is safe for concurrent
// use.
type Target struct {
	Config *Config
	Index  int // of the partition; 0 of a server
	Epochs layout.Epochs
	Layout atomic.Pointer[layout.Layout]
}

// SettingsKey is where the target remembers the layout and the epochs. On a cluster each partition has its own, so that
// its script can check them in its own slot.
func (t *Target) SettingsKey() string {
	y := t.Layout.Load()
	if !t.Config.Cluster {
		return y.SettingsKey()
	}
	return y.Prefix + ":{" + y.Tags[t.Index] + "}:settings"
}

// Raise takes over the epoch in a field of the settings. An epoch only grows.
func (t *Target) Raise(field string, epoch int64) {
	if t.Epochs.Raise(field, epoch) {
		t.Config.Raised(field)
	}
}

// idKeys are where a target's ids are remembered, by generation.
func (t *Target) idKeys() (cur, prev string) {
	ids := strings.TrimSuffix(t.SettingsKey(), "settings") + "holds:"
	return ids + layout.GenerationNow, ids + layout.GenerationBefore
}

// ErrLayout says that the servers remember another layout than that of a batch, of which nothing was carried out.
var ErrLayout = errors.New("the layout of states has changed")

// adopt reads the settings that the script found to differ from what this process knows,
// and takes over the epoch of all policies and those of the fields. The reply has, each behind its
// length, the layout and the epochs in the order in which the fields were sent.
func (t *Target) adopt(r *reader, own string, fields []string) error {
	next := func() string { return r.bytes(int(r.number(2))) }
	text := next()
	for _, field := range append([]string{layout.AllPolicies}, fields...) {
		epoch, _ := strconv.ParseInt(next(), 10, 64) // "" is 0
		t.Raise(field, epoch)
	}
	if r.short {
		return errShort
	}
	if text != "" && text != own {
		return fmt.Errorf("%w: %s has %q", ErrLayout, t.SettingsKey(), text)
	}
	return nil
}

// unavailable says that there is no decision.
func unavailable(err error) error { return prefix.Errorf("%w: %w", stint.ErrUnavailable, err) }
