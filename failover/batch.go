package failover

import (
	"context"
	"slices"
	"time"

	"github.com/stint-go/stint"
)

// DecideAll implements [stint.Store]. Operations whose shard is unreachable are answered at
// once, the others go to the store in order, in one call with the least of their
// timeouts.
func (s *Store) DecideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	if s.sharded == nil && s.config.Rule == nil && s.shards[0].down.Load() == nil {
		s.send(ctx, s.config.Timeout, ops, results, true)
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
			d, err := s.fallback(ctx, ops[i], down.err)
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
	s.send(ctx, least, up, answers, true)
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

// send carries out operations in one call of the store. What the store failed to decide
// is answered by the modes, if fallback says so.
func (s *Store) send(ctx context.Context, timeout time.Duration, ops []stint.Op, results []stint.Result, fallback bool) {
	if len(ops) == 0 {
		return
	}
	shards := s.shards // that are watched here; of a store that watches itself one stands for all
	switch {
	case shards[0].watchdog == nil:
		shards = shards[:1]
	case s.sharded != nil:
		shards = s.involvedInAll(ops)
	}
	under := begin(shards)
	bounded, own := s.bound(ctx, timeout)
	s.inner.DecideAll(bounded, ops, results)
	if own != nil {
		own.release()
	}
	endings, causes := make([]ending, len(shards)), make([]error, len(shards))
	var verdicts []verdict // of what failed, in order
	for i := range ops {
		result := &results[i]
		var how ending
		if result.Err != nil {
			var v verdict
			v, result.Err = shards[0].judge(ctx, own, under[0], result.Err)
			verdicts = append(verdicts, v)
			how = v.ending(own, result.Err)
			s.noteFailure(&ops[i], v)
		} else if result.Decision.Source == stint.SourceStore {
			how = answered
			s.noteSuccess(&ops[i])
		}
		if under[0] != nil {
			s.noteEndings(shards, endings, causes, &ops[i], how, result.Err)
		}
	}
	for i, sh := range shards {
		sh.end(under[i], endings[i], causes[i])
	}
	for i := range ops {
		if results[i].Err == nil {
			continue
		}
		v := verdicts[0]
		verdicts = verdicts[1:]
		if !fallback {
			continue
		}
		d, err := s.answer(ctx, v, ops[i], results[i].Err)
		results[i] = stint.Result{Decision: d, Err: err}
	}
}

// involvedInAll are the shards of operations, each once.
func (s *Store) involvedInAll(ops []stint.Op) (shards []*shard) {
	for i := range ops {
		for _, sh := range s.involved(&ops[i]) {
			if !slices.Contains(shards, sh) {
				shards = append(shards, sh)
			}
		}
	}
	return shards
}

// noteEndings notes with the shards of an operation how it ended. Of a batch the shard has
// answered if it answered any of it; else the worst counts.
func (s *Store) noteEndings(shards []*shard, endings []ending, causes []error, op *stint.Op, how ending, err error) {
	for i, sh := range shards {
		concerned := s.sharded == nil || s.shard(op.Key) == sh
		for j := range op.And {
			concerned = concerned || s.shard(op.And[j].Key) == sh
		}
		if !concerned || endings[i] == answered || how == neutral {
			continue
		}
		if how == answered || how > endings[i] {
			endings[i], causes[i] = how, err
		}
	}
}

// noteFailure and noteSuccess tell the shards of an operation whether they are to be charged now.
func (s *Store) noteFailure(op *stint.Op, v verdict) {
	if v != failing {
		return
	}
	for _, sh := range s.involved(op) {
		sh.failing.Store(true)
	}
}

func (s *Store) noteSuccess(op *stint.Op) {
	if s.sharded == nil {
		s.shards[0].succeeded()
		return
	}
	for _, sh := range s.involved(op) {
		sh.succeeded()
	}
}
