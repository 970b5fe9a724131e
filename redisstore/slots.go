package redisstore

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// clusterView is who serves which slots of a cluster, as one node sees it.
type clusterView struct {
	text   string      // the same for all nodes that see the same
	ranges []slotRange // by slot
	nodes  []string    // the addresses of all primaries and replicas
}

// slotRange is a range of slots, both ends included, and the address of the primary
// that serves it.
type slotRange struct {
	first, last int
	primary     string
}

// readView reads the reply to CLUSTER SLOTS of the node at an address. A node that does
// not know its own address leaves it out; it is then where it was reached.
func readView(result rueidis.RedisResult, address string) (*clusterView, error) {
	entries, err := result.ToArray()
	if err != nil {
		return nil, err
	}
	own, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	view := &clusterView{}
	for i := range entries {
		entry, err := entries[i].ToArray()
		if err != nil || len(entry) < 3 {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS can't be read: %w", err)
		}
		first, err1 := entry[0].ToInt64()
		last, err2 := entry[1].ToInt64()
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("the reply to CLUSTER SLOTS can't be read: %w, %w", err1, err2)
		}
		for j := range entry[2:] {
			node, err := nodeAddress(&entry[2+j], own)
			if err != nil {
				return nil, err
			}
			if node != "" && !slices.Contains(view.nodes, node) {
				view.nodes = append(view.nodes, node)
			}
			if j == 0 && node != "" {
				view.ranges = append(view.ranges, slotRange{int(first), int(last), node})
			}
		}
	}
	if len(view.ranges) == 0 {
		return nil, errNoSlots
	}
	slices.SortFunc(view.ranges, func(a, b slotRange) int { return a.first - b.first })
	slices.Sort(view.nodes)
	var text strings.Builder
	for _, r := range view.ranges {
		fmt.Fprintf(&text, "%d-%d %s\n", r.first, r.last, r.primary)
	}
	view.text = text.String()
	return view, nil
}

// nodeAddress reads where a node is: its host, or nothing, and its port. A host "?" is
// one that is not known, for which nodeAddress returns "".
func nodeAddress(message *rueidis.RedisMessage, own string) (string, error) {
	parts, err := message.ToArray()
	if err != nil || len(parts) < 2 {
		return "", fmt.Errorf("the reply to CLUSTER SLOTS can't be read: %w", err)
	}
	host := own
	if !parts[0].IsNil() {
		if host, err = parts[0].ToString(); err != nil {
			return "", fmt.Errorf("the reply to CLUSTER SLOTS can't be read: %w", err)
		}
	}
	port, err := parts[1].ToInt64()
	if err != nil {
		return "", fmt.Errorf("the reply to CLUSTER SLOTS can't be read: %w", err)
	}
	switch host {
	case "?":
		return "", nil
	case "":
		host = own
	}
	return net.JoinHostPort(host, strconv.FormatInt(port, 10)), nil
}

// redirection reads a reply that sends a command on for good, MOVED, or this once, ASK:
// that word, the slot, and the address. A node that does not know the host of another
// leaves it out; it is then the one that it has itself, at from.
func redirection(reply error, from string) (address string, moved, ask bool) {
	parts := strings.Fields(reply.Error())
	if len(parts) != 3 || parts[0] != "MOVED" && parts[0] != "ASK" {
		return "", false, false
	}
	colon := strings.LastIndexByte(parts[2], ':')
	if colon < 0 {
		return "", false, false
	}
	host, port := strings.Trim(parts[2][:colon], "[]"), parts[2][colon+1:]
	if host == "" || host == "?" {
		own, _, err := net.SplitHostPort(from)
		if err != nil {
			return "", false, false
		}
		host = own
	}
	return net.JoinHostPort(host, port), parts[0] == "MOVED", parts[0] == "ASK"
}

// holder is the address of who serves a slot, "" for nobody.
func (v *clusterView) holder(slot int) string {
	i, found := slices.BinarySearchFunc(v.ranges, slot, func(r slotRange, slot int) int { return r.first - slot })
	if !found {
		i-- // the range before may reach to it
	}
	if i >= 0 && v.ranges[i].last >= slot {
		return v.ranges[i].primary
	}
	return ""
}

// primaries are the addresses of those who serve slots, each once.
func (v *clusterView) primaries() []string {
	var addresses []string
	for _, r := range v.ranges {
		if !slices.Contains(addresses, r.primary) {
			addresses = append(addresses, r.primary)
		}
	}
	return addresses
}
