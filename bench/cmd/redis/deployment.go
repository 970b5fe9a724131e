package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/stint-go/stint/bench/internal/proc"
)

// A topology is how Redis is deployed. The zero value is one server beside us.
type topology struct {
	primaries int           // of a cluster; 0 for none
	delayed   bool          // whether it is behind a relay
	delay     time.Duration // which that adds to a round trip
}

// String is the first part of the benchmark's name.
func (t topology) String() string {
	switch {
	case t.primaries > 0:
		return fmt.Sprintf("RedisCluster/primaries=%d", t.primaries)
	case t.delayed:
		return fmt.Sprintf("RedisNetwork/delay=%v", t.delay)
	default:
		return "Redis"
	}
}

func (o *options) topologies() (topologies []topology) {
	for _, n := range o.primaries {
		topologies = append(topologies, topology{primaries: n})
	}
	for _, delay := range o.delays {
		topologies = append(topologies, topology{delayed: true, delay: delay})
	}
	if len(topologies) == 0 {
		topologies = []topology{{}}
	}
	return topologies
}

// A deployment is the running servers of a topology, with connections of our own beside them.
type deployment struct {
	topology  topology
	addrs     []string // where limiters connect to
	processes []*proc.Process
	nodes     []*redis.Client // our own connections, one to each server

	cpus  []int // what is measured on; none if that is not known
	redis []int // the servers' process ids
	all   []int // and those of the relay and of this process
}

// open starts the servers of a topology, on the first processor.
func (b *bench) open(ctx context.Context, p topology) (s *deployment, err error) {
	s = &deployment{topology: p, all: []int{os.Getpid()}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	cpu, pinned := -1, []string{}
	if len(b.cpus) > 1 {
		cpu, s.cpus = b.cpus[0], b.cpus
		pinned = []string{"taskset", "-c", fmt.Sprintf("%d,%d", b.cpus[0], b.cpus[1])} // neither is only the relay's
	}
	var clustered []string
	if p.primaries > 0 {
		clustered = []string{"--cluster-enabled", "yes", "--cluster-port", proc.OtherPort, "--cluster-node-timeout", "5000"}
	}
	for range max(p.primaries, 1) {
		server, err := proc.StartRedis(ctx, cpu, clustered...)
		if err != nil {
			return s, err
		}
		s.processes, s.addrs = append(s.processes, server), append(s.addrs, server.Addr)
		s.redis, s.all = append(s.redis, server.ID()), append(s.all, server.ID())
		s.nodes = append(s.nodes, redis.NewClient(&redis.Options{
			Addr: server.Addr, PoolSize: 1, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		}))
	}
	if p.primaries > 0 {
		return s, s.join(ctx)
	}
	if p.delayed {
		self, err := os.Executable()
		if err != nil {
			return s, err
		}
		args := append(pinned, self, relayMode, "-listen", proc.Addr, "-to", s.addrs[0], "-delay", p.delay.String())
		relay, err := proc.Start(ctx, nil, args[0], args[1:]...)
		if err != nil {
			return s, err
		}
		s.processes, s.all, s.addrs = append(s.processes, relay), append(s.all, relay.ID()), []string{relay.Addr}
	}
	return s, nil
}

func (s *deployment) close() (err error) {
	for _, node := range s.nodes {
		err = errors.Join(err, node.Close())
	}
	for _, p := range s.processes {
		err = errors.Join(err, p.Stop())
	}
	return err
}

// join makes the servers a cluster, of which each has an equal part of the slots, and
// waits until all of them know.
func (s *deployment) join(ctx context.Context) error {
	const slots, timeout = 16_384, 30 * time.Second
	for i, node := range s.nodes {
		n := len(s.nodes)
		if err := node.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err(); err != nil {
			return err
		}
		// Nodes that meet with one epoch would have to agree on others first.
		if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
	}
	config, err := s.nodes[0].ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(s.addrs[0])
	if err != nil {
		return err
	}
	for _, node := range s.nodes[1:] {
		if err := node.Do(ctx, "CLUSTER", "MEET", host, port, config["cluster-port"]).Err(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no cluster came about within %v", timeout))
	defer cancel()
	for _, node := range s.nodes {
		for {
			info, err := node.ClusterInfo(ctx).Result()
			if err == nil && strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d\r", len(s.nodes))) {
				break
			}
			select {
			case <-ctx.Done():
				return errors.Join(context.Cause(ctx), err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func (s *deployment) flush(ctx context.Context) (err error) {
	for _, node := range s.nodes {
		err = errors.Join(err, node.FlushAll(ctx).Err())
	}
	return err
}

// commands is how many commands the servers have carried out, those of scripts among
// them.
func (s *deployment) commands(ctx context.Context) (int64, error) {
	return s.info(ctx, "stats", "total_commands_processed")
}

// memory is how many bytes the servers have allocated, once nobody but us is connected:
// connections have buffers.
func (s *deployment) memory(ctx context.Context) (int64, error) {
	const tries = 10_000
	for range tries {
		clients, err := s.info(ctx, "clients", "connected_clients")
		if err != nil {
			return 0, err
		}
		if clients == int64(len(s.nodes)) {
			return s.info(ctx, "memory", "used_memory")
		}
	}
	return 0, fmt.Errorf("others stay connected to %s", s.addrs)
}

// info adds up a number of INFO over all servers.
func (s *deployment) info(ctx context.Context, section, field string) (sum int64, err error) {
	for _, node := range s.nodes {
		text, err := node.Info(ctx, section).Result()
		if err != nil {
			return 0, err
		}
		_, value, _ := strings.Cut(text, "\n"+field+":")
		value, _, _ = strings.Cut(value, "\r")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO %s: %s: %w", section, field, err)
		}
		sum += n
	}
	return sum, nil
}

// watch runs f and returns how much CPU time Redis took meanwhile, and how much of a
// processor other programs took of those that are measured on, in percent; 0 where that
// can't be seen.
func (s *deployment) watch(f func() error) (cpu time.Duration, others float64, err error) {
	start := time.Now()
	busy, all, redis := proc.Busy(s.cpus), proc.CPUTime(s.all), proc.CPUTime(s.redis)
	if err := f(); err != nil {
		return 0, 0, err
	}
	busy, all, redis = proc.Busy(s.cpus)-busy, proc.CPUTime(s.all)-all, proc.CPUTime(s.redis)-redis
	if len(s.cpus) > 0 {
		others = max(100*(busy-all).Seconds()/time.Since(start).Seconds(), 0)
	}
	return redis, others, nil
}
