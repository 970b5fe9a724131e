package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint/internal/redisconn"
	"github.com/stint-go/stint/internal/sleep"
)

// watchGap is how often sentinels are asked who the primary is, at most. A primary that
// is cut off from them but not from the store tells nobody that it was replaced.
const watchGap = 500 * time.Millisecond

var (
	errNoQuorum = errors.New("no primary is named by more than half of the sentinels")
	errReplaced = errors.New("the sentinels name another primary")
)

// sentinelConn is a connection to the primary that sentinels name. Its loop is singleConn's; only
// dialling asks the sentinels, and followPrimary asks them again and again.
type sentinelConn struct {
	singleConn

	name       string
	dialConfig *dialConfig
	sentinels  []*singleConn
}

// newSentinelConn makes a connection to the primary of a name.
func newSentinelConn(d *dialConfig) (*sentinelConn, error) {
	c := &sentinelConn{name: d.primary, dialConfig: d}
	for _, address := range d.hosts {
		sentinel := &singleConn{dial: func(ctx context.Context) (*socket, error) { return d.dial(ctx, address) }}
		if err := sentinel.start(d.clientOptions(d.sentinel)); err != nil {
			c.closeSentinels()
			return nil, err
		}
		c.sentinels = append(c.sentinels, sentinel)
	}
	c.dial, c.follow, c.primary = c.dialPrimary, c.followPrimary, true
	options := d.clientOptions(d.credentials)
	options.SelectDB = d.database
	if err := c.start(options); err != nil {
		c.closeSentinels()
		return nil, err
	}
	return c, nil
}

// dialPrimary connects to the server that the sentinels name now.
func (c *sentinelConn) dialPrimary(ctx context.Context) (*socket, error) {
	address, err := c.primaryAddress(ctx)
	if err != nil {
		return nil, err
	}
	return c.dialConfig.dial(ctx, address)
}

// followPrimary gives up a connection to a primary that was replaced.
func (c *sentinelConn) followPrimary(ctx context.Context, conn *socket) {
	for sleep.Jittered(ctx, watchGap) == nil {
		if address, err := c.primaryAddress(ctx); err == nil && address != conn.address {
			conn.giveUp(errReplaced)
			return
		}
	}
}

// primaryAddress is the address that more than half of the sentinels name. A server that only says
// itself that it is the primary is not believed: it may be an old one that was started again. With
// 2 x votes > sentinels two halves can't name two primaries. Sentinels that do not answer count as
// if they named nobody.
func (c *sentinelConn) primaryAddress(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type answer struct {
		address string
		err     error
	}
	answers := make(chan answer, len(c.sentinels))
	for _, sentinel := range c.sentinels {
		go func() {
			address, err := c.ask(ctx, sentinel)
			answers <- answer{address, err}
		}()
	}
	votes, fault := map[string]int{}, error(nil)
	for range c.sentinels {
		a := <-answers
		if a.err != nil {
			fault = a.err
			continue
		}
		if votes[a.address]++; 2*votes[a.address] > len(c.sentinels) {
			return a.address, nil
		}
	}
	if fault == nil {
		return "", fmt.Errorf("%w: %v", errNoQuorum, votes)
	}
	return "", fmt.Errorf("%w: %w", errNoQuorum, fault)
}

// ask asks one sentinel.
func (c *sentinelConn) ask(ctx context.Context, sentinel *singleConn) (string, error) {
	address, err := sentinel.send(ctx, arbitrary("SENTINEL", "GET-MASTER-ADDR-BY-NAME", c.name)).AsStrSlice()
	if rueidis.IsRedisNil(err) || err == nil && len(address) != 2 {
		return "", fmt.Errorf("the sentinel knows no primary of the name %q", c.name)
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address[0], address[1]), nil
}

// Sentinels implements sender.
func (c *sentinelConn) Sentinels() (name string, servers []redisconn.Server) {
	for i, sentinel := range c.sentinels {
		servers = append(servers, serverBy(c.dialConfig.hosts[i], sentinel.send))
	}
	return c.name, servers
}

// Close implements [redisconn.Conn].
func (c *sentinelConn) Close() {
	c.singleConn.Close()
	c.closeSentinels()
}

// closeSentinels closes the connections to the sentinels side by side.
func (c *sentinelConn) closeSentinels() {
	var group sync.WaitGroup
	for _, sentinel := range c.sentinels {
		group.Go(sentinel.Close)
	}
	group.Wait()
}
