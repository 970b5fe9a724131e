package rueidis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// watchGap is how often sentinels are asked who the primary is, at most. A primary that
// is cut off from them but not from the store tells nobody that it was replaced.
const watchGap = 500 * time.Millisecond

var (
	errNoQuorum = errors.New("no primary is named by more than half of the sentinels")
	errReplaced = errors.New("the sentinels name another primary")
)

// watched is a link to the primary that sentinels name.
type watched struct {
	link

	name      string
	reach     *reach
	sentinels []*link
}

// newWatched makes a connection to the primary of a name.
func newWatched(r *reach) (*watched, error) {
	w := &watched{name: r.primary, reach: r}
	for _, address := range r.hosts {
		l := &link{dial: func(ctx context.Context) (*traced, error) { return r.dial(ctx, address) }}
		if err := l.start(r.clientOptions(r.sentinel)); err != nil {
			w.closeSentinels()
			return nil, err
		}
		w.sentinels = append(w.sentinels, l)
	}
	w.dial, w.follow, w.primary = w.dialPrimary, w.followPrimary, true
	options := r.clientOptions(r.credentials)
	options.SelectDB = r.database
	if err := w.start(options); err != nil {
		w.closeSentinels()
		return nil, err
	}
	return w, nil
}

// dialPrimary connects to whom the sentinels name now.
func (w *watched) dialPrimary(ctx context.Context) (*traced, error) {
	address, err := w.named(ctx)
	if err != nil {
		return nil, err
	}
	return w.reach.dial(ctx, address)
}

// followPrimary gives up a connection to a primary that was replaced.
func (w *watched) followPrimary(ctx context.Context, conn *traced) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(watchGap)):
		}
		if address, err := w.named(ctx); err == nil && address != conn.address {
			conn.giveUp(errReplaced)
			return
		}
	}
}

// named is the address that more than half of the sentinels name. Who only says itself
// that it is the primary is not believed: it may be an old one that was started again.
func (w *watched) named(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	type answer struct {
		address string
		err     error
	}
	answers := make(chan answer, len(w.sentinels))
	for _, l := range w.sentinels {
		go func() {
			address, err := w.ask(ctx, l)
			answers <- answer{address, err}
		}()
	}
	votes, fault := map[string]int{}, error(nil)
	for range w.sentinels {
		a := <-answers
		if a.err != nil {
			fault = a.err
			continue
		}
		if votes[a.address]++; 2*votes[a.address] > len(w.sentinels) {
			return a.address, nil
		}
	}
	if fault == nil {
		return "", fmt.Errorf("%w: %v", errNoQuorum, votes)
	}
	return "", fmt.Errorf("%w: %w", errNoQuorum, fault)
}

// ask asks one sentinel.
func (w *watched) ask(ctx context.Context, l *link) (string, error) {
	address, err := l.send(ctx, arbitrary("SENTINEL", "GET-MASTER-ADDR-BY-NAME", w.name)).AsStrSlice()
	if rueidis.IsRedisNil(err) || err == nil && len(address) != 2 {
		return "", fmt.Errorf("the sentinel knows no primary of the name %q", w.name)
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address[0], address[1]), nil
}

// Close implements [redisstore.Conn].
func (w *watched) Close() {
	w.link.Close()
	w.closeSentinels()
}

func (w *watched) closeSentinels() {
	var group sync.WaitGroup
	for _, l := range w.sentinels {
		group.Go(l.Close)
	}
	group.Wait()
}
