package testredis

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// slots is the number of hash slots of any cluster.
const slots = 16_384

// A Cluster is several primaries that share the slots evenly, without replicas.
type Cluster struct {
	// Nodes are the primaries; node i holds the i-th part of the slots.
	Nodes []*Server
}

// StartCluster starts a cluster that ends with the test, and returns when every
// node finds it complete.
func StartCluster(t testing.TB, primaries int, opts ...Option) *Cluster {
	t.Helper()
	if primaries < 1 {
		t.Fatalf("testredis: primaries is %d; allowed: 1 or more", primaries)
	}
	c := &Cluster{}
	for range primaries {
		node := append([]Option{
			func(s *Server) { s.bus = true },
			Config("cluster-enabled", "yes"),
			Config("cluster-node-timeout", "2000"),
		}, opts...)
		c.Nodes = append(c.Nodes, Start(t, node...))
	}
	if err := c.join(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(c.complete); err != nil {
		t.Fatal(err)
	}
	return c
}

// URL is the cluster's redis-cluster:// URL, as the service takes it.
func (c *Cluster) URL() string { return listURL("redis-cluster", c.Nodes, c.Nodes[0].password, "") }

// Addrs lists the nodes' host:port.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// join gives every node its slots and introduces them all to the first.
func (c *Cluster) join() error {
	for i, node := range c.Nodes {
		first, end := i*slots/len(c.Nodes), (i+1)*slots/len(c.Nodes)
		own := []any{"CLUSTER", "ADDSLOTS"}
		for slot := first; slot < end; slot++ {
			own = append(own, slot)
		}
		if _, err := node.Do(own...); err != nil {
			return err
		}
		// Nodes that meet with one epoch would have to quarrel it out first.
		if _, err := node.Do("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
	}
	for _, node := range c.Nodes[1:] {
		if _, err := c.Nodes[0].Do("CLUSTER", "MEET", "127.0.0.1", node.port); err != nil {
			return err
		}
	}
	return nil
}

// complete returns nil when every node knows of all others and their slots.
func (c *Cluster) complete() error {
	want := map[string]string{
		"cluster_state":          "ok",
		"cluster_slots_ok":       strconv.Itoa(slots),
		"cluster_known_nodes":    strconv.Itoa(len(c.Nodes)),
		"cluster_size":           strconv.Itoa(len(c.Nodes)),
		"cluster_slots_assigned": strconv.Itoa(slots),
	}
	for _, node := range c.Nodes {
		info, err := node.fields("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if err := expect(node, info, want); err != nil {
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

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}

// listURL is a URL with the servers' addresses for its host.
func listURL(scheme string, servers []*Server, password, path string) string {
	u := url.URL{Scheme: scheme, Host: strings.Join(addrs(servers), ","), Path: path}
	if password != "" {
		u.User = url.UserPassword("", password)
	}
	return u.String()
}
