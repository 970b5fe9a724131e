package redisstore

import (
	"context"
	_ "embed" // the script
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/stint-go/stint"
)

//go:embed reset.lua
var resetLua string

var _ stint.Resetter = (*Store)(nil)

// ResetPolicy implements [stint.Resetter]: all clients of all policies with the name are as new, in one step of the server's, on
// a cluster in one step of each partition. What was before is not read again, in no process,
// and frees its memory when its time to live is over; the hashes that a process has seen it
// removes at once.
//
// An error wraps stint.ErrUnavailable or is the context's. Then nothing was reset, or on a
// cluster not all; doing it again completes it.
func (s *Store) ResetPolicy(ctx context.Context, policyName string) error {
	announcement := string(binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(policyName)))) + policyName
	return s.reset(ctx, epochField(policyName), announcement, func(br *batcher, epoch int64) { br.raise(policyName, epoch) })
}

// ResetAll implements [stint.Resetter]: it is ResetPolicy for all policies of the store's key prefix.
func (s *Store) ResetAll(ctx context.Context) error {
	return s.reset(ctx, "all", "\x00\x00", (*batcher).raiseAll)
}

// reset raises the epoch in a field of the settings, everywhere.
func (s *Store) reset(ctx context.Context, field, announcement string, raised func(*batcher, int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.started(ctx); err != nil {
		return err
	}
	batchers := s.layout.Load().batchers
	faults := make([]error, len(batchers))
	var group sync.WaitGroup
	for i, br := range batchers {
		group.Go(func() {
			faults[i] = br.roundTrip(ctx, func(ctx context.Context) error {
				reply, err := s.conn.Eval(ctx, newScript(resetLua), []string{br.settingsKey()}, []string{s.now(), s.channel, announcement, field})
				if err != nil {
					return err
				}
				epoch, err := strconv.ParseInt(reply, 10, 64)
				if err != nil {
					return fmt.Errorf("%w: the epoch is %q", errReply, reply)
				}
				raised(br, epoch)
				return nil
			})
		})
	}
	group.Wait()
	if err := errors.Join(faults...); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return unavailable(err)
	}
	return nil
}

// now is the time for scripts: "", which is the server's, unless Options say another.
func (s *Store) now() string {
	if s.options.Now == nil {
		return ""
	}
	return strconv.FormatInt(int64(s.options.Now()), 10)
}
