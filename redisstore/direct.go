package redisstore

import (
	"context"
	"math/bits"
	"runtime"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// direct is a Conn to one server at a time: a single one, or the primary that the
// sentinels name. It has several links, since one is less than a busy server can serve.
type direct struct {
	links     []*link
	turn      atomic.Uint32
	sentinels *sentinels // nil without
}

// maxLinks bounds the links to one server.
const maxLinks = 4

// newDirect makes a connection to a target.
func newDirect(t target, options rueidis.ClientOption) (*direct, error) {
	d := &direct{}
	// A power of two: taking turns goes on evenly when the counter overflows.
	n := min(maxLinks, 1<<(bits.Len(uint(runtime.GOMAXPROCS(0)))-1))
	for range n {
		l, err := newLink(t, options)
		if err != nil {
			d.Close()
			return nil, err
		}
		d.links = append(d.links, l)
	}
	return d, nil
}

// link is whose turn it is.
func (d *direct) link() *link { return d.links[int(d.turn.Add(1))&(len(d.links)-1)] }

// Eval implements [Conn].
func (d *direct) Eval(ctx context.Context, script *Script, keys, args []string) (string, error) {
	l := d.link()
	reply, err := eval(script, keys, args, func(c command) rueidis.RedisResult { return l.do(ctx, c) })
	d.heed(l, err)
	return reply, err
}

// Do implements [Conn].
func (d *direct) Do(ctx context.Context, args ...string) (string, error) {
	l := d.link()
	reply, err := textOf(l.do(ctx, command{args: args}))
	d.heed(l, err)
	return reply, err
}

// heed gives a link up over which a server said that it is a replica: the name of the
// server, or the sentinels, may lead to the primary meanwhile.
func (d *direct) heed(l *link, err error) {
	if err != nil && readOnly(err) {
		l.drop(err)
	}
}

// Subscribe implements [Conn].
func (d *direct) Subscribe(ctx context.Context, channel string, ready func(), message func(string)) error {
	return d.links[0].subscribe(ctx, channel, ready, message)
}

// Cluster implements [Conn].
func (d *direct) Cluster() bool { return false }

// Close implements [Conn].
func (d *direct) Close() {
	if d.sentinels != nil {
		d.sentinels.close()
	}
	closeAll(d.links)
}
