package redislimit

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The two counters are one INCR per request: what a round trip costs when nothing is
// decided. They admit everybody.

// incrGoRedis has a connection per caller.
type incrGoRedis struct {
	client *redis.Client
	quotas []Quota
}

func newIncrGoRedis(_ context.Context, o Options, quotas []Quota) (Subject, error) {
	return &incrGoRedis{client: newGoRedis(o), quotas: quotas}, nil
}

func (s *incrGoRedis) Take(ctx context.Context, keys []string) (Answer, error) {
	return takeInTurn(ctx, s, keys)
}

func (s *incrGoRedis) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	n, err := s.client.Incr(ctx, key).Result()
	return Answer{Allowed: err == nil, Remaining: s.quotas[quota].Permits - n}, err
}

func (s *incrGoRedis) Fill(ctx context.Context, _ int, keys []string) error {
	return pipelined(ctx, s.client, keys, func(pipe redis.Pipeliner, key string) { pipe.Incr(ctx, key) })
}

func (s *incrGoRedis) Close() error { return s.client.Close() }

// incrRueidis lets callers share connections, on which their commands travel together.
type incrRueidis struct {
	client rueidis.Client
	quotas []Quota
}

func newIncrRueidis(_ context.Context, o Options, quotas []Quota) (Subject, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{o.Addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
	})
	if err != nil {
		return nil, err
	}
	return &incrRueidis{client: client, quotas: quotas}, nil
}

func (s *incrRueidis) Take(ctx context.Context, keys []string) (Answer, error) {
	return takeInTurn(ctx, s, keys)
}

func (s *incrRueidis) TakeOne(ctx context.Context, quota int, key string) (Answer, error) {
	n, err := s.client.Do(ctx, s.client.B().Incr().Key(key).Build()).AsInt64()
	return Answer{Allowed: err == nil, Remaining: s.quotas[quota].Permits - n}, err
}

func (s *incrRueidis) Fill(ctx context.Context, _ int, keys []string) error {
	for batch := range slices.Chunk(keys, fillBatch) {
		commands := make(rueidis.Commands, 0, len(batch))
		for _, key := range batch {
			commands = append(commands, s.client.B().Incr().Key(key).Build())
		}
		var faults []error
		for _, reply := range s.client.DoMulti(ctx, commands...) {
			faults = append(faults, reply.Error())
		}
		if err := errors.Join(faults...); err != nil {
			return err
		}
	}
	return nil
}

func (s *incrRueidis) Close() error {
	s.client.Close()
	return nil
}
