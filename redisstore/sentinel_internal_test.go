package redisstore

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// A sentinel's word holds again once it has named the server that was seen in place of
// another: after a failover back, what was seen is no longer so.
func TestFailoverBack(t *testing.T) {
	var mu sync.Mutex
	var named, primary *fake
	var replicas string
	asked := 0
	role := func(self func() *fake) func([]string) string {
		return func(command []string) string {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case command[0] == "ROLE" && primary == self():
				return array("master")
			case command[0] == "ROLE":
				return array("slave")
			case primary == self():
				return "+" + self().address + "\r\n"
			default:
				return "-READONLY You can't write against a read only replica.\r\n"
			}
		}
	}
	var first, second *fake
	first = newFake(t, role(func() *fake { return first }))
	second = newFake(t, role(func() *fake { return second }))
	sentinel := newFake(t, func(command []string) string {
		mu.Lock()
		defer mu.Unlock()
		if command[1] == "REPLICAS" {
			return replicas
		}
		asked++
		host, port, _ := net.SplitHostPort(named.address)
		return array(host, port)
	})
	host, port, _ := net.SplitHostPort(second.address)
	say := func(who, is *fake, known string) {
		mu.Lock()
		defer mu.Unlock()
		named, primary, replicas, asked = who, is, known, 0
	}
	// The replica is the primary before the sentinel says so.
	say(first, second, "*1\r\n"+array("ip", host, "port", port))
	d, err := newSentinels(&reach{location: location{network: "tcp", hosts: []string{sentinel.address}}}, "name")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	decides := func(want *fake) func() bool {
		return func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			got, err := d.Do(ctx, "WHO")
			return err == nil && got == want.address
		}
	}
	eventually(t, "the replica that was promoted decides", decides(second))
	// Now it does, and later the first one is the primary again, by its word.
	say(second, second, "*0\r\n")
	eventually(t, "the sentinel's word is heard", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return asked >= 2 // the first one's answer may have been on its way
	})
	say(first, first, "*0\r\n")
	eventually(t, "the first one decides again", decides(first))
}
