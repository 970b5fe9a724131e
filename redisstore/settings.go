package redisstore

import (
	"context"
	_ "embed" // the scripts
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
)

var (
	//go:embed settings.lua
	settingsLua string
	//go:embed reset.lua
	resetLua string
)

// setLayout takes a layout, with the batchers of the one before where their number is the same.
// Batchers survive a change of the encoding; one of the number of partitions makes new ones, and
// those of before finish what they have.
func (s *Store) setLayout(partitions int, encoding LogEncoding) {
	y := &layout{
		prefix:     s.options.KeyPrefix,
		partitions: partitions,
		encoding:   encoding,
		text:       fmt.Sprintf("%d %s", partitions, encoding),
		tags:       partitionTags(partitions),
	}
	count := 1
	if s.conn.Cluster() {
		count = partitions
	}
	var unused []*batcher
	if old := s.layout.Load(); old != nil && len(old.batchers) == count {
		y.batchers = old.batchers
	} else {
		if old != nil {
			unused = old.batchers
		}
		for i := range count {
			y.batchers = append(y.batchers, s.newBatcher(i))
			y.batchers[i].watchdog.SetTimeout(s.timeout)
		}
	}
	for _, br := range y.batchers {
		br.layout.Store(y)
	}
	s.layout.Store(y)
	for _, br := range unused {
		go br.close() // which waits for the call that has found out about the layout
	}
}

var errLayout = errors.New("the layout of states has changed")

// adopt takes over the layout that the servers remember, unless the options name another one. It
// returns errLayout, or why nothing can be decided by the layout at hand. What other processes have
// written stands: their states could not be found under another layout.
func (s *Store) adopt(text string) error {
	number, encoding, _ := strings.Cut(text, " ")
	partitions, err := strconv.Atoi(number)
	_, known := logLetters[LogEncoding(encoding)]
	conflict := func(param string, mine any) error {
		return stint.Invalid(param, mine, fmt.Sprintf(
			"%q, the layout of states that other processes have written to the key %q; to change it, "+
				"stop all processes and delete the key",
			text, s.settingsKey()))
	}
	switch {
	case err != nil || !validPartitions(partitions) || !known:
		return conflict("layout", s.layout.Load().text)
	case s.options.Partitions != 0 && s.options.Partitions != partitions:
		return conflict("partitions", s.options.Partitions)
	case s.options.LogEncoding != "" && s.options.LogEncoding != LogEncoding(encoding):
		return conflict("log_encoding", string(s.options.LogEncoding))
	}
	s.adopting.Lock()
	defer s.adopting.Unlock()
	if s.layout.Load().text == text {
		return errLayout
	}
	s.setLayout(partitions, LogEncoding(encoding))
	s.leases.forgetAll()
	if s.denials != nil {
		s.denials.wipe()
	}
	return errLayout
}

// settingsKey is where the servers remember the layout.
func (s *Store) settingsKey() string { return s.options.KeyPrefix + ":settings" }

// settingsKey is where the servers remember the layout and the epochs; on a cluster each partition
// has its own. Each partition's script can then check the settings in its own slot.
func (br *batcher) settingsKey() string {
	if br.store.conn.Cluster() {
		return br.store.options.KeyPrefix + ":{" + br.layout.Load().tags[br.index] + "}:settings"
	}
	return br.store.settingsKey()
}

// adoptSettings reads the settings that the script found to differ from what this process knows,
// and takes them over: the layout, the epoch of all policies, and those of the fields. The error
// says why the batcher can't decide any more. The reply has, each behind its length, the layout and
// the epochs in the order in which the fields were sent.
func (br *batcher) adoptSettings(r *reader, own string, fields []string) error {
	next := func() string { return r.bytes(int(r.number(2))) }
	layout := next()
	for _, field := range append([]string{allPolicies}, fields...) {
		epoch, _ := strconv.ParseInt(next(), 10, 64) // "" is 0
		br.raise(field, epoch)
	}
	if r.short {
		return errShort
	}
	if layout != "" && layout != own {
		return br.store.adopt(layout)
	}
	return nil
}

// allPolicies is the field of the settings with the epoch of all policies.
const allPolicies = "all"

// epochField is the field of the settings with the epoch of a policy.
func epochField(policy string) string { return ":" + policy }

// raise takes over the epoch in a field, and drops what this process has of earlier epochs. An
// epoch only grows. What was decided in an earlier one (denials that are remembered, leased
// permits) is worth nothing any more.
func (br *batcher) raise(field string, epoch int64) {
	if !br.epochs.raise(field, epoch) {
		return
	}
	if d := br.store.denials; d != nil {
		if field == allPolicies {
			d.wipe()
		} else {
			d.announcePolicy(field[1:])
		}
	}
	br.store.leases.discardOutdated()
}

// epochs are those of policies as a batcher knows them, by the fields of the settings. Each is the
// larger of the epoch of all policies and the policy's own.
type epochs struct {
	mu  sync.RWMutex
	all int64
	of  map[string]int64
}

// get returns a policy's epoch.
func (e *epochs) get(field string) int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return max(e.all, e.of[field])
}

// raise notes an epoch. It reports whether that is news.
func (e *epochs) raise(field string, epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case epoch <= max(e.all, e.of[field]):
		return false
	case field == allPolicies:
		e.all, e.of = epoch, nil
	case e.of == nil:
		e.of = map[string]int64{field: epoch}
	default:
		e.of[field] = epoch
	}
	return true
}

// ResetAll implements [stint.Store], for all processes at once; on a cluster, partition by partition. After
// an error repeating the reset completes it.
func (s *Store) ResetAll(ctx context.Context, scope stint.Scope) error {
	if scope.All {
		return s.reset(ctx, allPolicies, "\x00\x00")
	}
	announcement := string(binary.BigEndian.AppendUint16([]byte{0, 0}, uint16(len(scope.Policy)))) + scope.Policy
	return s.reset(ctx, epochField(scope.Policy), announcement)
}

// reset raises the epoch in a field of the settings, everywhere. The epoch is part of the keys'
// names, so that raising it leaves all states of before behind, in one step, however many there
// are. They expire by themselves.
func (s *Store) reset(ctx context.Context, field, announcement string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.started(ctx); err != nil {
		return err
	}
	script := newScript(resetLua)
	batchers := s.layout.Load().batchers
	faults := make([]error, len(batchers))
	var group sync.WaitGroup
	for i, br := range batchers {
		group.Go(func() {
			faults[i] = br.roundTrip(ctx, func(ctx context.Context) error {
				reply, err := s.conn.Eval(
					ctx, script, []string{br.settingsKey()}, []string{s.now(), s.channel, announcement, field},
				)
				if err != nil {
					return err
				}
				epoch, err := strconv.ParseInt(reply, 10, 64)
				if err != nil {
					return fmt.Errorf("%w: the epoch is %q", errReply, reply)
				}
				br.raise(field, epoch)
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
	return strconv.FormatInt(s.options.Now().UnixMicro(), 10)
}

// agreement is one attempt to agree with the servers on the layout. Those who wait for one share
// its result; after an error the next attempt is another agreement.
type agreement struct {
	ended chan struct{} // closed when err is set
	err   error
}

// How often the layout is asked for until there is an answer, and checked later where the
// script of a batch can't: on a cluster, whose partitions do not know their number.
const (
	// Both are jittered, so that processes that start together do not ask together.
	startGap = 50 * time.Millisecond
	checkGap = 2 * time.Second
)

// start starts what a store does in the background, outside any caller's deadline. It returns at
// once; who decides before the layout is known waits in started.
func (s *Store) start() {
	s.loaded = make(chan struct{})
	s.agreement.Store(&agreement{ended: make(chan struct{})})
	s.work.Go(s.run)
	if s.denials != nil {
		s.work.Go(func() { s.denials.listen(s.life, s.conn, s.channel) })
	}
}

// run agrees with the servers, again and again until they answer, loads the scripts, and then, on a
// cluster, checks the layout from time to time until the store is closed.
func (s *Store) run() {
	for attempt := s.agreement.Load(); ; s.agreement.Store(attempt) {
		attempt.err = s.agree(s.life)
		close(attempt.ended)
		if attempt.err == nil {
			break
		}
		if sleep.Jittered(s.life, startGap) != nil {
			return
		}
		attempt = &agreement{ended: make(chan struct{})}
	}
	s.agreement.Store(nil)
	s.loadScripts(s.life)
	close(s.loaded)
	for s.conn.Cluster() && sleep.Jittered(s.life, checkGap) == nil {
		_ = s.agree(s.life) // an error shows again with the next decision
	}
}

// started waits until the layout is known, or returns why it is not.
func (s *Store) started(ctx context.Context) error {
	attempt := s.agreement.Load()
	if attempt == nil {
		return nil
	}
	select {
	case <-attempt.ended:
		return attempt.err
	case <-ctx.Done():
		return endOf(ctx)
	case <-s.life.Done():
		return errClosed
	}
}

// Ready waits until layout and scripts are known, or returns why not: the context's error, one that
// wraps stint.ErrUnavailable when an attempt to reach the server has failed, or one that wraps
// stint.ErrInvalid if the options name another layout. The store goes on trying after the first
// two.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.started(ctx); err != nil {
		return err
	}
	select {
	case <-s.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return errClosed
	}
}

// agree asks the servers for the layout and takes it over. On a cluster it also writes the layout
// of this process, if there is none: on a single server the first batch does. It also finds out
// whether the server answers at all, which Ready tells.
func (s *Store) agree(ctx context.Context) error {
	own := s.layout.Load()
	ctx, cancel := context.WithTimeout(ctx, maxSendTime)
	defer cancel()
	var text string
	err := own.batchers[0].roundTrip(ctx, func(ctx context.Context) (err error) {
		if text, err = s.conn.Do(ctx, "HGET", s.settingsKey(), "layout"); err != nil || text != "" || !s.conn.Cluster() {
			return err
		}
		script := newScript(luaProtocol() + "local max = math.max\n" + settingsLua + "return '\\0'\n")
		_, err = s.conn.Eval(ctx, script, []string{s.settingsKey()}, []string{"", s.channel, own.text, "0"})
		return err
	})
	if err != nil {
		return unavailable(err)
	}
	if text == "" || text == own.text {
		return nil
	}
	if err := s.adopt(text); !errors.Is(err, errLayout) {
		return unavailable(err)
	}
	return nil
}
