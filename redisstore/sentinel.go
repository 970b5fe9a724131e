package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

const (
	// watchGap is how often sentinels are asked who the primary is, at most. A primary that
	// is cut off from them but not from the store tells nobody that it was replaced.
	watchGap = 500 * time.Millisecond
	// searchGap is how often at most the replicas are asked whether one has been made the
	// primary, while there is no connection to one. The sentinel that has promoted it
	// notices that up to a second later, and then tells the others.
	searchGap = 200 * time.Millisecond
)

var (
	// errReplica says that the server which the sentinels name is not a primary yet, or
	// any more.
	errReplica = errors.New("the server is a replica")
	// errDeposed says that the sentinels name another primary.
	errDeposed = errors.New("the sentinels name another primary")
)

// sentinels know who the primary of a name is. Its connections lead to whoever they
// name when they are made, and are given up when they name another one.
type sentinels struct {
	name     string
	reach    *reach
	links    []*link
	replicas map[string]*link // that were asked whether they are the primary, by address
	end      context.CancelFunc
	watch    sync.WaitGroup
	promoted atomic.Pointer[promotion] // that the sentinels do not know of yet; nil for none
}

// promotion is a replica that has become the primary in place of another server.
type promotion struct{ from, to string }

// newSentinels makes a connection to the primary of a name.
func newSentinels(r *reach, name string) (*direct, error) {
	s := &sentinels{name: name, reach: r, replicas: map[string]*link{}}
	for _, address := range r.hosts {
		l, err := newLink(target{dial: r.to(address)}, r.sentinelOptions())
		if err != nil {
			closeAll(s.links)
			return nil, err
		}
		s.links = append(s.links, l)
	}
	d, err := newDirect(target{dial: s.dial, greet: isPrimary}, r.options())
	if err != nil {
		closeAll(s.links)
		return nil, err
	}
	d.sentinels = s
	ctx, end := context.WithCancel(context.Background())
	s.end = end
	s.watch.Go(func() { s.follow(ctx, d.links) })
	return d, nil
}

// named is a connection with the address that was asked for.
type named struct {
	net.Conn
	address string
}

func (s *sentinels) dial(ctx context.Context) (net.Conn, error) {
	address, err := s.primary(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := s.reach.to(address)(ctx)
	if err != nil {
		return nil, err
	}
	return named{conn, address}, nil
}

// isPrimary greets a server that sentinels named: it may not have heard yet that it
// is, or that it was, the primary.
func isPrimary(ctx context.Context, client rueidis.Client) error {
	return primaryRole(client.Do(ctx, client.B().Role().Build()))
}

// primaryRole reads the reply to ROLE, and returns nil for a primary's.
func primaryRole(result rueidis.RedisResult) error {
	role, err := result.ToArray()
	if err != nil {
		return err
	}
	if len(role) == 0 {
		return errReplica
	}
	if name, err := role[0].ToString(); err != nil || name != "master" {
		return errReplica
	}
	return nil
}

// primary is the address of the primary: the one that sentinels name, or the replica
// that was seen in its place. Once they name another one they know, and what was seen
// is forgotten: the server that was replaced may be named again, after a failover back.
func (s *sentinels) primary(ctx context.Context) (string, error) {
	address, err := s.mostNamed(ctx)
	if err != nil {
		return "", err
	}
	p := s.promoted.Load()
	switch {
	case p == nil:
		return address, nil
	case p.from == address:
		return p.to, nil
	}
	s.promoted.CompareAndSwap(p, nil)
	return address, nil
}

// mostNamed is the address that most sentinels name. It returns as soon as more than
// half of them agree, and after connectTimeout with what it has.
func (s *sentinels) mostNamed(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var asks []func() (string, error)
	for _, l := range s.links {
		asks = append(asks, func() (string, error) { return s.ask(ctx, l) })
	}
	address, err := most(asks, func(address string) string { return address },
		func(_ string, votes int) bool { return 2*votes > len(s.links) })
	if err != nil {
		return "", fmt.Errorf("no sentinel names a primary: %w", err)
	}
	return address, nil
}

// ask asks one sentinel.
func (s *sentinels) ask(ctx context.Context, l *link) (string, error) {
	result := l.do(ctx, command{args: []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.name}})
	address, err := result.AsStrSlice()
	if rueidis.IsRedisNil(err) || err == nil && len(address) != 2 {
		return "", fmt.Errorf("the sentinel knows no primary of the name %q", s.name)
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address[0], address[1]), nil
}

// follow gives up connections to a primary that was replaced, until the context ends.
func (s *sentinels) follow(ctx context.Context, links []*link) {
	for gap := watchGap; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(jitter(gap)):
		}
		up, wanted := false, false
		for _, l := range links {
			up, wanted = up || l.up.Load(), wanted || l.wanted()
		}
		gap = watchGap
		if !up && !wanted {
			continue // who connects asks
		}
		if !up {
			gap = searchGap
			s.search(ctx)
		}
		address, err := s.primary(ctx)
		if err != nil {
			continue
		}
		for _, l := range links {
			if to := l.leads(); to != "" && to != address {
				l.drop(errDeposed)
			}
		}
	}
}

// search asks the replicas that a sentinel knows whether one has become the primary. A
// server is made one by the sentinels alone, when most of them have agreed.
func (s *sentinels) search(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, searchGap)
	defer cancel()
	if p := s.promoted.Load(); p != nil && !s.isPrimary(ctx, p.to) {
		s.promoted.CompareAndSwap(p, nil) // it is of no use, whomever the sentinels name
	}
	from, err := s.mostNamed(ctx)
	if err != nil {
		return
	}
	known := make(chan []string, len(s.links))
	for _, l := range s.links {
		go func() {
			entries, err := l.do(ctx, command{args: []string{"SENTINEL", "REPLICAS", s.name}}).ToArray()
			if err != nil {
				known <- nil
				return
			}
			addresses := []string{}
			for i := range entries {
				if entry, err := entries[i].AsStrMap(); err == nil {
					addresses = append(addresses, net.JoinHostPort(entry["ip"], entry["port"]))
				}
			}
			known <- addresses
		}()
	}
	for range s.links {
		if addresses := <-known; addresses != nil {
			s.examine(ctx, from, addresses)
			return
		}
	}
}

// examine asks replicas whether one is the primary in place of another server.
func (s *sentinels) examine(ctx context.Context, from string, addresses []string) {
	var group sync.WaitGroup
	for _, address := range addresses {
		l := s.replica(address)
		group.Go(func() {
			if saysPrimary(ctx, l) {
				s.promoted.Store(&promotion{from: from, to: address})
			}
		})
	}
	group.Wait()
}

// isPrimary reports whether a server says that it is a primary.
func (s *sentinels) isPrimary(ctx context.Context, address string) bool {
	return saysPrimary(ctx, s.replica(address))
}

// saysPrimary reports whether the server at the end of a link says so; nil has none.
func saysPrimary(ctx context.Context, l *link) bool {
	return l != nil && primaryRole(l.do(ctx, command{args: []string{"ROLE"}})) == nil
}

// replica is the link by which a replica is asked, nil if there can't be one. It is
// for the goroutine that follows the primary.
func (s *sentinels) replica(address string) *link {
	if l := s.replicas[address]; l != nil {
		return l
	}
	l, err := newLink(target{dial: s.reach.to(address)}, s.reach.options())
	if err != nil {
		return nil
	}
	s.replicas[address] = l
	return l
}

func (s *sentinels) close() {
	s.end()
	s.watch.Wait()
	closeAll(append(slices.Collect(maps.Values(s.replicas)), s.links...))
}
