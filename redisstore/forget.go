package redisstore

import (
	"context"
	_ "embed" // the scripts
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

const (
	// scanCount is how many keys one SCAN looks at, about.
	scanCount = 250
	// forgetBatch is how many keys one script call removes at most.
	forgetBatch = 128
	// serverParts is into how many parts the walk through a server's keys is divided, to
	// tell how far it is.
	serverParts = 100
)

var (
	//go:embed forget.lua
	forgetLua string
	//go:embed forgotten.lua
	forgottenLua string
)

var _ stint.Forgetter = (*Store)(nil)

// ForgetPolicy implements [stint.Forgetter]. It walks through the keys of all servers
// with SCAN and removes those of the policy with UNLINK, a few at a time, so no server
// does anything else for long; how long the whole takes depends on how many keys there
// are, the policy's or not. At the end it is announced, so that all processes drop the
// denials and the leases that they have at hand. It needs a connection that is a
// [Scanner].
//
// While slots move from one node of a cluster to another, a log that is on its way may be
// missed, unless the move ends before the walk does.
func (s *Store) ForgetPolicy(ctx context.Context, policyName string, progress func(stint.ForgetProgress)) error {
	scanner, ok := s.conn.(Scanner)
	if !ok {
		return stint.Invalid("store", fmt.Sprintf("%T", s.conn), "one whose connection is a redisstore.Scanner")
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	f := &forgetting{
		store: s, scanner: scanner, name: policyName, policy: nameEscaper.Replace(policyName), progress: progress,
		script: newScript(forgetLua),
	}
	f.match = globEscaper.Replace(s.options.KeyPrefix) + ":{*}:*:" + globEscaper.Replace(f.policy) + ":*"
	err := f.everywhere(ctx)
	if err == nil {
		err = s.announceForgotten(ctx, policyName)
	}
	// What this process has at hand may be of states that are gone, even if others are not.
	s.leases.forgetPolicy(policyName)
	s.lifetimes.forgetPolicy(policyName)
	if s.denials != nil {
		s.denials.announcePolicy(policyName)
	}
	switch {
	case err == nil:
		f.at.Done = f.at.Total
		f.tell()
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return unavailable(err)
	}
}

// globEscaper escapes what MATCH would take for a pattern.
var globEscaper = strings.NewReplacer(`*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `\`, `\\`)

// announceForgotten tells all processes that a policy was forgotten. Of a cluster every
// node passes it on.
func (s *Store) announceForgotten(ctx context.Context, policyName string) error {
	_, err := s.conn.Eval(ctx, newScript(forgottenLua), []string{s.options.KeyPrefix + ":partitions"},
		[]string{s.channel, forgottenText(policyName)})
	return err
}

// forgottenText is the announcement that a policy was forgotten.
func forgottenText(policyName string) string {
	return string(binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(policyName)))) + policyName
}

// forgetting walks through the keys of all servers and removes those of a policy.
//
// A key that is there from the first step of a walk to the last is met. States move from
// cur to prev when a generation turns, to a key that the walk may have passed; but then
// there is a new cur in the place of the old one, and it is met. So whichever generation
// is met, both are removed, in one step. What is in them afterwards is new, and they are
// not removed again.
type forgetting struct {
	store    *Store
	scanner  Scanner
	name     string // the policy's
	policy   string // as it stands in keys
	match    string
	script   *Script
	progress func(stint.ForgetProgress)
	at       stint.ForgetProgress
	done     map[string]struct{} // the hashes that were removed, without their generations
}

// everywhere walks through all servers, and once more when keys may have moved meanwhile.
func (f *forgetting) everywhere(ctx context.Context) error {
	for {
		view, servers, err := f.scanner.Servers(ctx)
		if err != nil {
			return err
		}
		if f.at.Total == 0 {
			f.at.Total = int64(len(servers))*serverParts + 1 // the end is announced
		}
		f.tell()
		f.done = map[string]struct{}{}
		for i, server := range servers {
			if err := f.walk(ctx, server, int64(i)*serverParts); err != nil {
				return err
			}
		}
		after, _, err := f.scanner.Servers(ctx)
		if err != nil {
			return err
		}
		f.tell()
		if after == view {
			return nil
		}
	}
}

// walk walks through a server; so many parts come before it. It begins anew when another
// server answers, to which the cursor means nothing.
func (f *forgetting) walk(ctx context.Context, server Server, before int64) error {
	run, cursor, steps := "", uint64(0), int64(0)
	for {
		// A connection may be slower to notice than the context.
		if err := ctx.Err(); err != nil {
			return err
		}
		scanned, err := server.Scan(ctx, cursor, f.match, scanCount)
		if err != nil {
			return err
		}
		if steps > 0 && scanned.run() != run {
			cursor, steps = 0, 0
			f.done = map[string]struct{}{}
			continue
		}
		run = scanned.run()
		if err := f.remove(ctx, scanned.Keys); err != nil {
			return err
		}
		steps++
		cursor = scanned.Cursor
		part := min(serverParts-1, steps*serverParts/(scanned.Size/scanCount+1))
		if cursor == 0 {
			part = serverParts
		}
		f.at.Done = min(f.at.Total-1, max(f.at.Done, before+part))
		f.tell()
		if cursor == 0 {
			return nil
		}
	}
}

func (f *forgetting) tell() {
	if f.progress != nil {
		f.progress(f.at)
	}
}

// removal is what one script call may remove: keys of one partition, if it is a
// cluster's.
type removal struct{ hashes, logs []string }

// remove removes those of the keys that are the policy's. What MATCH lets through may be
// another's, whose names look like it.
func (f *forgetting) remove(ctx context.Context, keys []string) error {
	removals := map[string]*removal{}
	for _, key := range keys {
		k, ok := f.store.parseKey(key)
		if !ok || k.policy != f.policy {
			continue
		}
		at := ""
		if f.store.conn.Cluster() {
			at = k.tag
		}
		r := removals[at]
		if r == nil {
			r = &removal{}
			removals[at] = r
		}
		if k.log {
			r.logs = append(r.logs, key)
			continue
		}
		hash := strings.TrimSuffix(key, k.last)
		if _, known := f.done[hash]; !known {
			f.done[hash] = struct{}{}
			r.hashes = append(r.hashes, hash+generationNow, hash+generationBefore)
		}
	}
	for _, r := range removals {
		if err := f.unlink(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// unlink removes keys, some in each call.
func (f *forgetting) unlink(ctx context.Context, r *removal) error {
	for len(r.hashes)+len(r.logs) > 0 {
		hashes := r.hashes[:min(len(r.hashes), forgetBatch)]
		logs := r.logs[:min(len(r.logs), forgetBatch-len(hashes))]
		r.hashes, r.logs = r.hashes[len(hashes):], r.logs[len(logs):]
		keys := append(append(make([]string, 0, forgetBatch), hashes...), logs...)
		reply, err := f.store.conn.Eval(ctx, f.script, keys, []string{strconv.Itoa(len(hashes)), f.store.channel, forgottenText(f.name)})
		if err != nil {
			return err
		}
		if len(hashes) > 0 {
			f.store.lifetimes.forgetPolicy(f.name)
		}
		states, err := strconv.ParseInt(reply, 10, 64)
		if err != nil {
			return fmt.Errorf("the count of states is %q", reply)
		}
		f.at.States += states
		f.tell()
	}
	return nil
}
