package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// lookGap is how often the nodes are asked who serves which slots, while all is
	// well, at most. A failure asks at once.
	lookGap = 5 * time.Second
	// While failures go on they are asked again after firstLook, and ever more rarely down
	// to lastLook, so that a primary that takes over is found within that.
	firstLook = 50 * time.Millisecond
	lastLook  = 400 * time.Millisecond
	// turnStep is how far apart the slots are that commands without a key go to in turn.
	turnStep = 4099
	// maxHops bounds how often one command is sent on to another node.
	maxHops = 8
	// firstWait and lastWait bound the pauses of a command that a node asks to send again,
	// while a slot moves.
	firstWait = 2 * time.Millisecond
	lastWait  = 50 * time.Millisecond
)

var (
	errNoSlots = errors.New("no node of the cluster says who serves the slots")
	errLeft    = errors.New("the node has left the cluster")
	errHops    = errors.New("the nodes of the cluster send a command around in circles")
)

// A clusterConn is a Conn to a Redis Cluster. It keeps a link to every node, and who
// serves which slot. rueidis' own cluster client learns of a new primary up to a second
// and more after the failure that made it ask, from whichever node answers first.
type clusterConn struct {
	reach *reach
	seeds []string
	turn  atomic.Uint32               // of commands without a key
	view  atomic.Pointer[clusterView] // nil until a node has told
	doubt chan struct{}               // capacity 1: somebody has reason to ask again
	life  context.Context
	end   context.CancelFunc
	watch sync.WaitGroup

	mu    sync.Mutex
	nodes map[string]*link // by address
	ears  map[*ear]struct{}
	told  chan struct{} // closed and made anew after each look
	fault error         // why the latest look was in vain
}

// An ear is a subscription, at a node.
type ear struct {
	at  string
	end context.CancelCauseFunc
}

// newCluster makes a connection to the cluster of some nodes.
func newCluster(r *reach) (*clusterConn, error) {
	c := &clusterConn{
		reach: r, seeds: r.hosts, doubt: make(chan struct{}, 1),
		nodes: map[string]*link{}, ears: map[*ear]struct{}{}, told: make(chan struct{}),
	}
	c.life, c.end = context.WithCancel(context.Background())
	for _, address := range c.seeds {
		if _, err := c.node(address); err != nil {
			c.Close()
			return nil, err
		}
	}
	c.watch.Go(c.follow)
	return c, nil
}

// node is the link to an address.
func (c *clusterConn) node(address string) (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, known := c.nodes[address]; known {
		return l, nil
	}
	if c.life.Err() != nil {
		return nil, errLetGo
	}
	l, err := newLink(target{dial: c.reach.to(address), address: address}, c.reach.options())
	if err != nil {
		return nil, err
	}
	c.nodes[address] = l
	return l, nil
}

// follow looks who serves which slot, until the connection is closed.
func (c *clusterConn) follow() {
	rest := firstLook
	timer := time.NewTimer(lookGap)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-c.doubt:
			rest = min(2*rest, lastLook)
		case <-timer.C:
			rest = firstLook
		}
		c.look()
		// What came while it looked may be answered by what it saw.
		select {
		case <-c.life.Done():
			return
		case <-time.After(jitter(rest)):
		}
		timer.Reset(jitter(lookGap))
	}
}

// suspect asks for a look soon.
func (c *clusterConn) suspect() {
	select {
	case c.doubt <- struct{}{}:
	default:
	}
}

// look asks all nodes who serves which slots, and believes what most of them say.
func (c *clusterConn) look() {
	view, err := c.ask(c.life)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = err
	if err == nil {
		c.view.Store(view)
		for address, l := range c.nodes {
			if !slices.Contains(view.nodes, address) && !slices.Contains(c.seeds, address) {
				delete(c.nodes, address)
				c.watch.Go(l.close)
			}
		}
		// A seed that has left still answers, but hears nothing of what is published.
		for e := range c.ears {
			if !slices.Contains(view.nodes, e.at) {
				e.end(errLeft)
			}
		}
	}
	close(c.told)
	c.told = make(chan struct{})
}

// ask returns as soon as more than half of the nodes agree, and after connectTimeout
// with what most say.
func (c *clusterConn) ask(ctx context.Context) (*clusterView, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c.mu.Lock()
	nodes := maps.Clone(c.nodes)
	c.mu.Unlock()
	var asks []func() (*clusterView, error)
	for address, l := range nodes {
		asks = append(asks, func() (*clusterView, error) {
			return readView(l.do(ctx, command{args: []string{"CLUSTER", "SLOTS"}}), address)
		})
	}
	best, err := most(asks, func(v *clusterView) string { return v.text },
		func(v *clusterView, votes int) bool { return 2*votes > max(len(nodes), len(v.nodes)) })
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoSlots, err)
	}
	for _, address := range best.nodes {
		if _, err := c.node(address); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// holder is the link to who serves a slot. Without a view it waits for one, and fails
// when the latest look was in vain.
func (c *clusterConn) holder(ctx context.Context, slot int) (*link, error) {
	view := c.view.Load()
	if view == nil {
		if err := c.wait(ctx); err != nil {
			return nil, err
		}
		view = c.view.Load()
	}
	address := view.holder(slot)
	if address == "" {
		c.suspect()
		return nil, fmt.Errorf("nobody serves slot %d of the cluster", slot)
	}
	return c.node(address)
}

// wait waits until a look has told who serves which slots.
func (c *clusterConn) wait(ctx context.Context) error {
	c.mu.Lock()
	told := c.told
	c.mu.Unlock()
	c.suspect()
	select {
	case <-told:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.life.Done():
		return errLetGo
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view.Load() == nil {
		return c.fault
	}
	return nil
}

// send sends a command to who serves a slot, and on to where it is sent. A node that
// sends it on, or asks to send it again, has not executed it.
func (c *clusterConn) send(ctx context.Context, slot int, cmd command) rueidis.RedisResult {
	l, err := c.holder(ctx, slot)
	if err != nil {
		return rueidis.NewErrorResult(err)
	}
	asking, wait, hops := false, firstWait, 0
	for {
		var result rueidis.RedisResult
		if asking {
			result = l.doAsking(ctx, cmd)
		} else {
			result = l.do(ctx, cmd)
		}
		err := result.Error()
		reply, replied := rueidis.IsRedisErr(err)
		if !replied {
			if err != nil {
				c.suspect()
			}
			return result
		}
		address, moved, ask := redirection(reply, l.target.address)
		asking = ask
		switch {
		case moved || asking:
			if moved {
				c.suspect()
			}
			if hops++; hops > maxHops {
				return rueidis.NewErrorResult(errHops)
			}
			if l, err = c.node(address); err != nil {
				return rueidis.NewErrorResult(err)
			}
		case reply.IsTryAgain():
			// Some of the keys have moved, and the rest will have soon. Until then the one
			// node sends the command on and the other asks for patience: no circle.
			hops = 0
			select {
			case <-ctx.Done():
				return result
			case <-time.After(jitter(wait)):
				wait = min(2*wait, lastWait)
			}
			if l, err = c.holder(ctx, slot); err != nil {
				return rueidis.NewErrorResult(err)
			}
		default:
			if reply.IsClusterDown() || reply.IsLoading() || readOnly(err) {
				c.suspect()
			}
			return result
		}
	}
}

// Eval implements [Conn].
func (c *clusterConn) Eval(ctx context.Context, script *Script, keys, args []string) (string, error) {
	at := slot(hashTag(keys[0]))
	return eval(script, keys, args, func(cmd command) rueidis.RedisResult { return c.send(ctx, at, cmd) })
}

// Do implements [Conn]. A command without a key goes to one of the primaries.
func (c *clusterConn) Do(ctx context.Context, args ...string) (string, error) {
	if len(args) > 1 {
		return textOf(c.send(ctx, slot(hashTag(args[1])), command{args: args}))
	}
	return textOf(c.send(ctx, int(c.turn.Add(1)*turnStep%clusterSlots), command{args: args}))
}

// Subscribe implements [Conn]. What is published anywhere is heard by all nodes.
func (c *clusterConn) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	l, err := c.holder(ctx, slot(hashTag(channel)))
	if err != nil {
		return err
	}
	err = c.listen(ctx, l, channel, ready, message)
	if ctx.Err() == nil {
		c.suspect()
	}
	return err
}

// listen subscribes at a node for as long as that is one of the cluster's.
func (c *clusterConn) listen(ctx context.Context, l *link, channel string, ready func(), message func(string)) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	e := &ear{at: l.target.address, end: end}
	c.mu.Lock()
	c.ears[e] = struct{}{}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.ears, e)
		c.mu.Unlock()
	}()
	err := l.subscribe(ctx, channel, ready, message)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Cluster implements [Conn].
func (c *clusterConn) Cluster() bool { return true }

// Close implements [Conn].
func (c *clusterConn) Close() {
	c.end()
	c.mu.Lock()
	links := slices.Collect(maps.Values(c.nodes))
	c.mu.Unlock()
	closeAll(links)
	c.watch.Wait()
}
