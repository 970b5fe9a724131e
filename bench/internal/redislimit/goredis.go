package redislimit

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// newGoRedis is the client under all peers: a connection for every caller, so that
// nobody waits for one, and no second try, which would charge twice.
func newGoRedis(o Options) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            o.Addr,
		PoolSize:        max(o.Callers, 1),
		MaxRetries:      -1,
		DisableIdentity: true,
		// A server of this age does not know the command that asks for them.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// pipelined sends one command per key, many in a round trip.
func pipelined(ctx context.Context, client *redis.Client, keys []string, add func(pipe redis.Pipeliner, key string)) error {
	for batch := range slices.Chunk(keys, fillBatch) {
		pipe := client.Pipeline()
		for _, key := range batch {
			add(pipe, key)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

// A recorder stands in for the client of a library that can only decide one at a
// time: it puts the library's script calls into a pipeline and answers each as
// admitted. So the library's own scripts with its own arguments fill Redis, in few
// round trips. The scripts must be loaded already.
type recorder struct {
	*redis.Client
	pipe  redis.Pipeliner
	reply []any // what the library takes for an admission
}

// EvalSha overrides the client's.
func (r *recorder) EvalSha(ctx context.Context, digest string, keys []string, args ...any) *redis.Cmd {
	r.pipe.EvalSha(ctx, digest, keys, args...)
	answered := redis.NewCmd(ctx)
	answered.SetVal(r.reply)
	return answered
}

// fill lets take put its calls into pipelines and sends them.
func (r *recorder) fill(ctx context.Context, keys []string, take func(key string) error) error {
	for batch := range slices.Chunk(keys, fillBatch) {
		r.pipe = r.Pipeline()
		for _, key := range batch {
			if err := take(key); err != nil {
				return err
			}
		}
		if _, err := r.pipe.Exec(ctx); err != nil {
			return err
		}
	}
	return nil
}

func errFull(key string) error {
	return fmt.Errorf("%s was denied its first permit; Redis is not empty", key)
}
