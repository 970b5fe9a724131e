package failover

import (
	"context"
	"time"

	"github.com/stint-go/stint"
)

// DecideAll implements [stint.Store]. Operations whose shard is away are answered at
// once, the others go to the store in order, in one call with the least of their
// timeouts.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if s.sharded == nil && s.config.Rule == nil && s.shards[0].down.Load() == nil {
		s.send(ctx, s.config.Timeout, ops, results, s.instead)
		return
	}
	var up []stint.Op
	var places []int
	least := time.Duration(-1)
	for i := range ops {
		timeout, err := s.timeout(&ops[i])
		if err != nil {
			results[i] = stint.Result{Err: err}
			continue
		}
		if down := s.downFor(&ops[i]); down != nil {
			d, err := s.instead(ctx, ops[i], down.err)
			results[i] = stint.Result{Decision: d, Err: err}
			continue
		}
		if least < 0 || timeout < least {
			least = timeout
		}
		up, places = append(up, ops[i]), append(places, i)
	}
	if len(up) == 0 {
		return
	}
	answers := make([]stint.Result, len(up))
	s.send(ctx, least, up, answers, s.instead)
	for i, place := range places {
		results[place] = answers[i]
	}
}

// downFor is the outage of a shard that the operation needs, or nil.
func (s *Store) downFor(op *stint.Op) *outage {
	if s.sharded == nil {
		return s.shards[0].down.Load()
	}
	for _, sh := range s.involved(op) {
		if down := sh.down.Load(); down != nil {
			return down
		}
	}
	return nil
}

// send carries out operations in one call of the store, and notes for each shard
// whether it answered. What the store failed to decide is answered by otherwise,
// if that is not nil.
func (s *Store) send(ctx context.Context, timeout time.Duration, ops []stint.Op, results []stint.Result,
	otherwise func(context.Context, stint.Op, error) (stint.Decision, error),
) {
	if len(ops) == 0 {
		return
	}
	marks := make([]uint64, len(s.shards))
	for i, sh := range s.shards {
		marks[i] = sh.heard.Load()
	}
	bounded, own := s.bound(ctx, timeout)
	s.inner.DecideAll(bounded, ops, results)
	if own != nil {
		own.release()
	}
	failed := s.noteAnswers(ops, results)
	if !failed {
		return
	}
	causes := make([]error, len(s.shards))
	hurried := false
	for i := range ops {
		err := results[i].Err
		if err == nil {
			continue
		}
		v := judge(ctx, own, err)
		if v != failing {
			hurried = hurried || v == hasty
			if v != invalid {
				clear(ops[i].Each)
			}
			continue
		}
		s.counts.failure(err)
		s.blameFor(&ops[i], marks, causes, err)
		if otherwise == nil {
			continue
		}
		d, err := otherwise(ctx, ops[i], err)
		results[i] = stint.Result{Decision: d, Err: err}
	}
	for i, cause := range causes {
		if cause != nil {
			s.shards[i].fails(marks[i], cause)
		} else if hurried {
			s.shards[i].suspect(marks[i])
		}
	}
}

// noteAnswers notes the shards that answered. It reports whether some operation
// failed.
func (s *Store) noteAnswers(ops []stint.Op, results []stint.Result) (failed bool) {
	answered := make([]bool, len(s.shards))
	for i := range ops {
		switch {
		case results[i].Err != nil:
			failed = true
		case results[i].Decision.Source != stint.SourceStore:
		case s.sharded == nil:
			answered[0] = true
		default:
			for _, sh := range s.involved(&ops[i]) {
				answered[sh.index] = true
			}
		}
	}
	for i, sh := range s.shards {
		if answered[i] {
			sh.succeeded()
		}
	}
	return failed
}

// blameFor notes the cause of an operation's failure with the shards that are to
// blame, as [blame] does; a batch is one failure of each at most.
func (s *Store) blameFor(op *stint.Op, marks []uint64, causes []error, cause error) {
	shards := s.involved(op)
	quiet := false
	for _, sh := range shards {
		quiet = quiet || sh.heard.Load() == marks[sh.index]
	}
	for _, sh := range shards {
		if causes[sh.index] == nil && (!quiet || sh.heard.Load() == marks[sh.index]) {
			causes[sh.index] = cause
		}
	}
}
