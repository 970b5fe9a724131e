package testredis

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// slots is the number of hash slots of any cluster.
const slots = 16_384

// A Cluster is several primaries that share the slots evenly, with replicas or without. Methods may
// be called while clients use it; they change one thing at a time.
type Cluster struct {
	// Nodes are the primaries at the start; node i holds the i-th part of the slots.
	Nodes []*Server
	// Replicas are the replicas at the start: those of node 0, of node 1 and so on.
	Replicas []*Server
}

// Replicas is how many replicas each primary of a cluster has. Default: 0.
func Replicas(n int) Option { return func(s *Server) { s.replicas = n } }

// StartCluster starts a cluster that ends with the test, and returns when every
// node finds it complete.
func StartCluster(t testing.TB, primaries int, opts ...Option) *Cluster {
	t.Helper()
	if primaries < 1 {
		t.Fatalf("testredis: primaries is %d; allowed: 1 or more", primaries)
	}
	opts = slices.Clip(opts)
	start := func() *Server {
		return Start(t, append([]Option{
			func(s *Server) { s.bus = true },
			Config("cluster-enabled", "yes"),
			Config("cluster-node-timeout", strconv.FormatInt(stands.Milliseconds(), 10)),
			Config("cluster-replica-validity-factor", "0"),
		}, append(opts, func(s *Server) {
			if s.tls != nil {
				Config("tls-cluster", "yes")(s)
			}
		})...)...)
	}
	c := &Cluster{}
	for range primaries {
		c.Nodes = append(c.Nodes, start())
	}
	for range primaries * c.Nodes[0].replicas {
		c.Replicas = append(c.Replicas, start())
	}
	if err := c.join(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(c.complete); err != nil {
		t.Fatal(err)
	}
	if after := c.Nodes[0].goneAfter; after > 0 {
		for _, node := range c.Servers() {
			if _, err := node.Do("CONFIG", "SET", "cluster-node-timeout", after.Milliseconds()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// URL is the cluster's redis-cluster:// URL, or rediss-cluster:// with TLS, as the
// service takes it. It names the primaries at the start.
func (c *Cluster) URL() string {
	return listURL(c.Nodes[0], "redis-cluster", c.Nodes, "")
}

// Addrs lists the host:port of the primaries at the start.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// Servers lists all nodes.
func (c *Cluster) Servers() []*Server { return append(slices.Clone(c.Nodes), c.Replicas...) }

// join gives every primary its slots, introduces all nodes to each other, and gives every replica its primary.
func (c *Cluster) join() error {
	for i, node := range c.Nodes {
		first, end := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)
		if _, err := node.Do("CLUSTER", "ADDSLOTSRANGE", first, end-1); err != nil {
			return err
		}
		// Nodes that meet with one epoch would have to quarrel it out first.
		if _, err := node.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
	}
	for i, node := range c.Servers() {
		for _, other := range c.Servers()[:i] {
			if _, err := node.Do("CLUSTER", "MEET", "127.0.0.1", other.port); err != nil {
				return err
			}
		}
	}
	for i, replica := range c.Replicas {
		primary, err := c.Nodes[i/c.Nodes[0].replicas].Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		// Until it has heard of its primary it refuses.
		err = eventually(func() error {
			_, err := replica.Do("CLUSTER", "REPLICATE", primary)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// complete returns nil when every node knows of all others and their slots, and the
// replicas follow.
func (c *Cluster) complete() error {
	want := map[string]string{
		"cluster_state":          "ok",
		"cluster_slots_ok":       strconv.Itoa(slots),
		"cluster_known_nodes":    strconv.Itoa(len(c.Nodes) + len(c.Replicas)),
		"cluster_size":           strconv.Itoa(len(c.Nodes)),
		"cluster_slots_assigned": strconv.Itoa(slots),
	}
	for _, node := range c.Servers() {
		info, err := node.fields(glance, "CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if err := expect(node, info, want); err != nil {
			return err
		}
	}
	for _, replica := range c.Replicas {
		if err := follows(replica); err != nil {
			return err
		}
		// All nodes know which are replicas.
		for _, node := range c.Servers() {
			nodes, err := node.Do("CLUSTER", "NODES")
			if err != nil {
				return err
			}
			if text, _ := nodes.(string); strings.Count(text, "slave ") != len(c.Replicas) {
				return fmt.Errorf("%s: %s", node.Addr(), text)
			}
		}
	}
	return nil
}

// follows returns nil when a replica is in step with its primary.
func follows(replica *Server) error {
	info, err := replica.Info("replication")
	if err != nil {
		return err
	}
	return expect(replica, info, map[string]string{"role": "slave", "master_link_status": "up"})
}

// Holder is the node that serves a slot and accepts writes to it now; an error if none
// does.
func (c *Cluster) Holder(slot int) (*Server, error) {
	var faults []error
	for _, node := range c.Servers() {
		if node.stopped() {
			continue
		}
		nodes, err := node.within(glance, "CLUSTER", "NODES")
		if err != nil {
			faults = append(faults, err)
			continue
		}
		text, _ := nodes.(string)
		for line := range strings.Lines(text) {
			fields := strings.Fields(line)
			if len(fields) > 8 && strings.HasPrefix(fields[2], "myself,master") && holds(fields[8:], slot) {
				return node, nil
			}
		}
	}
	return nil, errors.Join(append(faults, fmt.Errorf("testredis: nobody serves slot %d", slot))...)
}

// holds reports whether ranges as CLUSTER NODES writes them hold a slot.
func holds(ranges []string, slot int) bool {
	for _, r := range ranges {
		first, last, span := strings.Cut(r, "-")
		if !span {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 == nil && err2 == nil && from <= slot && slot <= to {
			return true
		}
	}
	return false
}

// MoveSlot moves a slot with all its keys to another primary, as resharding does,
// while clients go on.
func (c *Cluster) MoveSlot(t testing.TB, slot int, to *Server) {
	t.Helper()
	if err := c.moveSlot(slot, to); err != nil {
		t.Fatal(err)
	}
}

// BeginMove begins to move a slot to another primary, and moves no key.
func (c *Cluster) BeginMove(t testing.TB, slot int, from, to *Server) {
	t.Helper()
	if _, err := c.beginMove(slot, from, to); err != nil {
		t.Fatal(err)
	}
}

// beginMove returns the ID of the primary that the slot moves to.
func (c *Cluster) beginMove(slot int, from, to *Server) (target any, err error) {
	source, err := from.Do("CLUSTER", "MYID")
	if err != nil {
		return nil, err
	}
	if target, err = to.Do("CLUSTER", "MYID"); err != nil {
		return nil, err
	}
	if _, err := to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", source); err != nil {
		return nil, err
	}
	_, err = from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", target)
	return target, err
}

// moveSlot moves a slot as redis-cli does: mark both ends, migrate key by key, then tell all nodes.
func (c *Cluster) moveSlot(slot int, to *Server) error {
	from, err := c.Holder(slot)
	if err != nil || from == to {
		return err
	}
	target, err := c.beginMove(slot, from, to)
	if err != nil {
		return err
	}
	for {
		reply, err := from.Do("CLUSTER", "GETKEYSINSLOT", slot, 100)
		if err != nil {
			return err
		}
		keys, _ := reply.([]any)
		if len(keys) == 0 {
			break
		}
		migrate := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, allowed.Milliseconds()}
		if to.password != "" {
			migrate = append(migrate, "AUTH", to.password)
		}
		if _, err := from.Do(append(append(migrate, "KEYS"), keys...)...); err != nil {
			return err
		}
	}
	// The new holder first, so that no time passes in which nobody has the slot.
	if _, err := to.Do("CLUSTER", "SETSLOT", slot, "NODE", target); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if node == to || node.stopped() {
			continue
		}
		if _, err := node.Do("CLUSTER", "SETSLOT", slot, "NODE", target); err != nil {
			return err
		}
	}
	return nil
}

// expect returns an error that names the fields that are not as wanted.
func expect(s *Server, got, want map[string]string) error {
	var faults []error
	for name, value := range want {
		if got[name] != value {
			faults = append(faults, fmt.Errorf("%s: %s is %q, not %q", s.Addr(), name, got[name], value))
		}
	}
	return errors.Join(faults...)
}

// addrs are the addresses of servers.
func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

// listURL is a URL with the servers' addresses for its host, and the password of one.
func listURL(one *Server, scheme string, servers []*Server, path string) string {
	if one.tls != nil {
		scheme = strings.Replace(scheme, "redis", "rediss", 1)
	}
	u := url.URL{Scheme: scheme, Host: strings.Join(addrs(servers), ","), Path: path}
	if one.password != "" {
		u.User = url.UserPassword("", one.password)
	}
	return u.String()
}
