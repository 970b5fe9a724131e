package redisstore

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
)

//go:embed settings.lua
var settingsLua string

// layout is how states are laid out in the servers. All processes that share them have one
// layout, which the servers remember.
type layout struct {
	prefix     string // of keys
	partitions int
	encoding   LogEncoding
	text       string     // as the servers remember it
	tags       []string   // of partitions, in keys
	batchers   []*batcher // one, or on a cluster one for each partition
}

// lay takes a layout, with the batchers of the one before where their number is the same.
func (s *Store) lay(partitions int, encoding LogEncoding) {
	l := &layout{
		prefix: s.options.KeyPrefix, partitions: partitions, encoding: encoding, text: fmt.Sprintf("%d %s", partitions, encoding),
		tags: partitionTags(partitions),
	}
	batchers := 1
	if s.conn.Cluster() {
		batchers = partitions
	}
	old := s.layout.Load()
	if old != nil && len(old.batchers) == batchers {
		l.batchers = old.batchers
	} else {
		for i := range batchers {
			l.batchers = append(l.batchers, s.newBatcher(i))
			l.batchers[i].watchdog.SetTimeout(s.timeout)
		}
	}
	for _, br := range l.batchers {
		br.layout.Store(l)
	}
	s.layout.Store(l)
	if old == nil || len(old.batchers) == batchers {
		return
	}
	for _, br := range old.batchers {
		go br.close() // which waits for whoever has found this out
	}
}

var errLayout = errors.New("the layout of states has changed")

// adopt takes over the layout that the servers remember, unless the options say another one. The
// error says why nothing can be decided by the layout at hand.
func (s *Store) adopt(text string) error {
	number, encoding, _ := strings.Cut(text, " ")
	partitions, err := strconv.Atoi(number)
	_, known := logLetters[LogEncoding(encoding)]
	conflict := func(param string, mine any) error {
		return stint.Invalid(param, mine, fmt.Sprintf(
			"%q, the layout of states that other processes have written to the key %q; to change it, stop all processes and delete the key",
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
	s.lay(partitions, LogEncoding(encoding))
	s.leases.forgetAll()
	if s.denials != nil {
		s.denials.wipe()
	}
	return errLayout
}

// settingsKey is where the servers remember the layout.
func (s *Store) settingsKey() string { return s.options.KeyPrefix + ":settings" }

// settingsKey is where the servers remember the layout and the epochs: on a cluster each
// partition by itself.
func (br *batcher) settingsKey() string {
	if br.store.conn.Cluster() {
		return br.store.options.KeyPrefix + ":{" + br.layout.Load().tags[br.index] + "}:settings"
	}
	return br.store.settingsKey()
}

// learn reads the settings that the script found other than this process knows them, and takes them
// over. The error says why the batcher can't decide any more.
func (br *batcher) adoptSettings(r *reader, own string, policies []string) error {
	field := func() string { return r.bytes(int(r.number(2))) }
	number := func() int64 {
		n, _ := strconv.ParseInt(field(), 10, 64) // "" is 0
		return n
	}
	layout, all := field(), number()
	for _, name := range policies {
		br.raise(name, number())
	}
	br.raiseAll(all)
	if r.short {
		return errShort
	}
	if layout != "" && layout != own {
		return br.store.adopt(layout)
	}
	return nil
}

// raise takes over a policy's epoch, and drops what this process has at hand of before.
func (br *batcher) raise(policy string, epoch int64) {
	if br.epochs.raise(policy, epoch) {
		if br.store.denials != nil {
			br.store.denials.announcePolicy(policy)
		}
		br.refresh()
	}
}

// raiseAll takes over the epoch of all policies.
func (br *batcher) raiseAll(epoch int64) {
	if br.epochs.raiseAll(epoch) {
		if br.store.denials != nil {
			br.store.denials.wipe()
		}
		br.refresh()
	}
}

// refresh drops leases and hashes of before a reset.
func (br *batcher) refresh() {
	br.store.leases.refresh()
	br.retireHashes()
}

// epochs are those of policies as a batcher knows them.
type epochs struct {
	mu  sync.RWMutex
	all int64
	of  map[string]int64
}

// get returns a policy's epoch.
func (e *epochs) get(policy string) int64 {
	e.mu.RLock()
	defer e.mu.RUnlock()
	return max(e.all, e.of[policy])
}

// raise notes a policy's epoch. It reports whether that is news.
func (e *epochs) raise(policy string, epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= max(e.all, e.of[policy]) {
		return false
	}
	if e.of == nil {
		e.of = map[string]int64{}
	}
	e.of[policy] = epoch
	return true
}

// raiseAll notes the epoch of all policies. It reports whether that is news.
func (e *epochs) raiseAll(epoch int64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch <= e.all {
		return false
	}
	e.all, e.of = epoch, nil
	return true
}

// epochField is the field of the settings with the epoch of a policy.
func epochField(policy string) string { return ":" + policy }

// start is how far a store has come with what it needs to know before its first decision.
type start struct {
	done atomic.Bool

	loaded chan struct{} // closed when the scripts are loaded, too

	mu      sync.Mutex
	attempt *attempt // the latest
}

// attempt is one to ask the servers for their layout.
type attempt struct {
	ended chan struct{} // closed when err is set
	err   error
}

// How often the layout is asked for until there is an answer, and looked at afterwards where the
// script of a batch can't: on a cluster, whose partitions say nothing of their number.
const (
	startGap = 50 * time.Millisecond
	checkGap = 2 * time.Second
)

// begin starts what a store does in the background, outside any caller's deadline: it asks
// for the layout, loads the scripts and listens for announcements.
func (s *Store) begin() {
	s.start.attempt, s.start.loaded = &attempt{ended: make(chan struct{})}, make(chan struct{})
	s.work.Go(s.run)
	if s.denials != nil {
		s.work.Go(func() { s.denials.listen(s.life, s.conn, s.channel) })
	}
}

func (s *Store) run() {
	for {
		err := s.agree(s.life)
		s.start.mu.Lock()
		s.start.attempt.err = err
		close(s.start.attempt.ended)
		s.start.mu.Unlock()
		if err == nil {
			break
		}
		if !s.sleep(jitter(startGap)) {
			return
		}
		s.start.mu.Lock()
		s.start.attempt = &attempt{ended: make(chan struct{})}
		s.start.mu.Unlock()
	}
	s.start.done.Store(true)
	s.loadScripts(s.life)
	close(s.start.loaded)
	for s.conn.Cluster() && s.sleep(jitter(checkGap)) {
		_ = s.agree(s.life) // the servers are away, or another layout is said by the next decision
	}
}

// sleep waits, and reports false when the store was closed meanwhile.
func (s *Store) sleep(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.life.Done():
		return false
	}
}

// started waits until the layout is known, or returns why it is not.
func (s *Store) started(ctx context.Context) error {
	if s.start.done.Load() {
		return nil
	}
	s.start.mu.Lock()
	a := s.start.attempt
	s.start.mu.Unlock()
	select {
	case <-a.ended:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return errClosed
	}
}

// Ready waits until the store knows how the states are laid out and has loaded its scripts.
// It does so in the background from when it is made, so that the first decisions need not.
// While the servers can't be asked it tries again and again: Ready returns why the attempt
// under way has failed, with an error that wraps stint.ErrUnavailable, and stint.ErrInvalid
// too where the options say another layout than the servers remember; or the context's.
func (s *Store) Ready(ctx context.Context) error {
	if err := s.started(ctx); err != nil {
		return err
	}
	select {
	case <-s.start.loaded:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.life.Done():
		return errClosed
	}
}

// agree asks the servers for the layout and takes it over. On a cluster it also says which
// one this process has, if there is none: on a single server the first batch does.
func (s *Store) agree(ctx context.Context) error {
	own := s.layout.Load()
	br := own.batchers[0]
	ctx, cancel := context.WithTimeout(ctx, maxSendTime)
	defer cancel()
	var text string
	err := br.roundTrip(ctx, func(ctx context.Context) (err error) {
		if text, err = s.conn.Do(ctx, "HGET", s.settingsKey(), "layout"); err != nil || text != "" || !s.conn.Cluster() {
			return err
		}
		_, err = s.conn.Eval(ctx, s.settings, []string{s.settingsKey()}, []string{"", s.channel, own.text, "0"})
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
