package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/redisstore/internal/queue"
	"github.com/stint-go/stint/redisstore/internal/wire"
)

// How processes are counted. One that dies counts until it was silent for
// instanceLife, so that one heartbeat, or two, may be late.
const (
	heartbeatGap  = 3 * time.Second // at most
	instanceLife  = 10 * time.Second
	heartbeatTime = time.Second // longest that one may take
)

// instances counts the processes that share a store, if Options.CountInstances says
// so.
type instances struct {
	store  *Store
	script *redisconn.Script
	name   string // this process's, by chance
	count  atomic.Int64
	beats  sync.WaitGroup
}

// newInstances starts to count.
func newInstances(s *Store) *instances {
	i := &instances{store: s, name: rand.Text(), script: redisconn.NewScript(wire.InstancesScript())}
	if s.options.Now == nil {
		i.beats.Go(i.run)
	}
	return i
}

// Instances is how many processes share the key prefix, this one included, as counted last; 1 unless
// Options.CountInstances is set. A process that dies counts for 10 seconds more.
func (s *Store) Instances() int {
	if s.instances == nil {
		return 1
	}
	return max(1, int(s.instances.count.Load()))
}

// run sends heartbeats for as long as the store lives.
func (i *instances) run() {
	for again := true; again; again = sleep.Jittered(i.store.life, heartbeatGap) == nil {
		_ = i.beat(i.store.life, true) // while the server is unreachable, the last count holds
	}
}

// beat sends one heartbeat, or leaves, and counts.
func (i *instances) beat(ctx context.Context, stays bool) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTime)
	defer cancel()
	here := "0"
	if stays {
		here = "1"
	}
	key := i.store.options.KeyPrefix + ":instances"
	life := strconv.FormatInt(instanceLife.Microseconds(), 10)
	reply, err := i.store.conn.Eval(ctx, i.script, []string{key}, []string{i.store.wire.NowText(), i.name, life, here})
	if err != nil {
		return queue.Unavailable(err)
	}
	count, err := strconv.ParseInt(reply, 10, 64)
	if err != nil {
		return queue.Unavailable(fmt.Errorf("the count of instances is %q", reply))
	}
	i.count.Store(count)
	return nil
}

// close leaves, so that the others count one less at once.
func (i *instances) close() {
	i.beats.Wait()
	_ = i.beat(context.Background(), false) // or when its time is over
}
