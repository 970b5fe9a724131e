// Package follow keeps the last good value of a source that changes while the program runs: a file, a folder, a store,
// a control plane, a certificate.
//
// A [Follower] is told of each new value, and of each one that can't be read or has faults. It has the value that is in
// force, says why a newer one is not, counts refusals, and logs them so that a source that repeats itself fills no log.
// How a source is watched is the source's own.
package follow

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/logsampler"
)

// A State says how the value in force is known. The zero value is Unknown.
//
//	Unknown -> Cached -> Current <-> Refused, Unreachable
type State int32

// The states.
const (
	Unknown     State = iota // nothing was ever read, and nothing is in force
	Cached                   // what is in force is from a cache, and may be old
	Current                  // what is in force is the source's
	Refused                  // the source has something newer, or a part of it, that was refused
	Unreachable              // the source is unreachable, and may have something newer
)

// String is the state in a word, such as refused.
func (s State) String() string {
	return [...]string{"unknown", "cached", "current", "refused", "unreachable"}[s]
}

// Options say what a [Follower] follows.
type Options[T any] struct {
	// Refusals and Current name the metrics of [Follower.Collectors]. Default: none, for what has no metrics.
	Refusals prometheus.CounterOpts
	Current  prometheus.GaugeOpts
	// First is what is in force from the start, read from the source. Default: nil, nothing is.
	First *T
	// Put puts a value in force, or returns why not. Calls do not overlap. Default: nil, whoever needs the value asks
	// for [Follower.Value].
	Put func(T) error
	// Text says in the log's words, with attributes, what a refusal means while something is in force, or nothing is.
	Text func(reason error, inForce bool) (message string, attributes []any)
	// Again is the line when the reason is over; first says that nothing of the source was in force before. Default:
	// nil, and of "": no line.
	Again func(over error, first bool) string
	// Count is called for each refusal. Default: nil, nobody else counts.
	Count func()
	// Level is that of refusals. Default: 0, which is info.
	Level slog.Level
	// Attributes name the source in all lines. Default: none.
	Attributes []any
	// Logger must not be nil.
	Logger *slog.Logger
	// Now is the time. Default: nil, the process's clock.
	Now func() stint.Instant
}

// A Follower is safe for concurrent use. Make it with [New].
type Follower[T any] struct {
	options Options[T]
	refused prometheus.Counter
	lines   *logsampler.Sampler

	value  atomic.Pointer[T]
	state  atomic.Int32
	reason atomic.Pointer[error]

	mu sync.Mutex // held while something is taken or refused
	// told is the refusal that was logged last, and at what time.
	told string
	at   stint.Instant
}

const (
	// again is the time between two lines of the same refusal.
	again = stint.Instant(time.Minute / time.Microsecond)
	// mostLines is how many lines of different refusals there are at once; then there is one a minute.
	mostLines = 10
)

// New makes a follower that knows its first value, or nothing yet.
func New[T any](options Options[T]) *Follower[T] {
	if options.Now == nil {
		options.Now = func() stint.Instant { return stint.Instant(time.Now().UnixMicro()) }
	}
	f := &Follower[T]{
		options: options, lines: logsampler.New(mostLines, time.Minute, options.Now),
		refused: prometheus.NewCounter(options.Refusals),
	}
	if options.First != nil {
		f.value.Store(options.First)
		f.state.Store(int32(Current))
	}
	return f
}

// Take puts a value of the source in force, or returns why it is refused, which is then to be told by
// [Follower.Refuse]. partly says what of the source's newest is not in it; nil is nothing.
func (f *Follower[T]) Take(value T, partly error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.put(value); err != nil {
		return err
	}
	over, first := f.Reason(), !f.IsRead()
	f.reason.Store(nil)
	f.state.Store(int32(Current))
	if partly != nil {
		f.refuse(partly)
		return nil
	}
	if f.told = ""; over != nil && f.options.Again != nil {
		if line := f.options.Again(over, first); line != "" {
			f.options.Logger.Info(line, f.options.Attributes...)
		}
	}
	return nil
}

// Stand puts a value in force that stands in for the source's until that is known, such as one of a cache. It reports
// whether it did: not once something is in force.
func (f *Follower[T]) Stand(read func() (T, error)) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.State() != Unknown {
		return false, nil
	}
	value, err := read()
	if err == nil {
		err = f.put(value)
	}
	if err != nil {
		return false, err
	}
	f.state.Store(int32(Cached))
	return true, nil
}

func (f *Follower[T]) put(value T) error {
	if f.options.Put != nil {
		if err := f.options.Put(value); err != nil {
			return err
		}
	}
	f.value.Store(&value)
	return nil
}

// Refuse counts and logs that something newer can't be put in force.
func (f *Follower[T]) Refuse(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse(reason)
}

func (f *Follower[T]) refuse(reason error) {
	f.reason.Store(&reason)
	if f.refused.Inc(); f.options.Count != nil {
		f.options.Count()
	}
	if f.IsRead() {
		f.state.Store(int32(Refused))
		if IsUnreachable(reason) {
			f.state.Store(int32(Unreachable))
		}
	}
	text, now := reason.Error(), f.options.Now()
	if f.told == text && now-f.at < again {
		return
	}
	message, attributes := f.options.Text(reason, f.State() != Unknown)
	attributes = append(append(append([]any{}, f.options.Attributes...), "err", Told(reason)), attributes...)
	if f.lines.Log(f.options.Logger, f.options.Level, message, attributes...) {
		f.told, f.at = text, now
	}
}

// Value is what is in force; the zero value while nothing is.
func (f *Follower[T]) Value() (value T) {
	return *cmp.Or(f.value.Load(), &value)
}

// State says how the value is known.
func (f *Follower[T]) State() State { return State(f.state.Load()) }

// IsRead reports whether something of the source itself was put in force.
func (f *Follower[T]) IsRead() bool { return f.State() >= Current }

// Reason is why the source's newest, or a part of it, is not in force; nil if it is.
func (f *Follower[T]) Reason() error {
	if reason := f.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}

// Details are facts for operators: the state, and a reason if there is one.
func (f *Follower[T]) Details() map[string]any {
	details := map[string]any{"state": f.State().String()}
	if reason := f.Reason(); reason != nil {
		details["reason"] = Told(reason)
	}
	return details
}

// Collectors are the refusals, and a gauge that is 1 while what is in force is the newest: an alert on it finds what
// was edited and does not hold.
func (f *Follower[T]) Collectors() []prometheus.Collector {
	return []prometheus.Collector{f.refused, prometheus.NewGaugeFunc(f.options.Current, func() float64 {
		if f.State() == Current {
			return 1
		}
		return 0
	})}
}

// IsUnreachable reports whether an error of a source says nothing of what it has.
func IsUnreachable(err error) bool {
	return errors.Is(err, stint.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// Told is an error as operators are told of it: without passwords.
func Told(err error) string { return document.Redact(prefix.Trim(err.Error())) }
