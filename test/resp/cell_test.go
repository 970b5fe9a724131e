package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/testredis"
)

// What is kept of a key, told one command after the other's reply, and all at once.
func TestCells(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		slowly := startService(t, store, "")
		atOnce := startService(t, strings.Replace(store, "key_prefix: ", "key_prefix: again-", 1), "")
		for _, talk := range talksOf(t, "cells.txt") {
			t.Run(talk.name, func(t *testing.T) {
				dial(t, slowly).follow(talk.flights[0])
			})
			t.Run(talk.name+", at once", func(t *testing.T) { speak(t, dial(t, atOnce), talk.flights) })
		}
	})
}

// A denied request that waits as long as it is told is admitted, and a denial never says to come back in 0 seconds.
// Until then the key exists, whatever time has passed.
func TestWaitAsTold(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		w := dial(t, startService(t, store, ""))
		w.expect("CL.THROTTLE slow 0 2 3000000", "[0 1 0 -1 1500000]")
		w.expect("CL.THROTTLE slow 0 2 3000000", "[1 1 0 1500000 1500000]")
		begun := time.Now()
		w.expect("CL.THROTTLE k 0 2 3", "[0 1 0 -1 2]")
		until(t, "it is admitted", func() bool {
			waited := time.Since(begun)
			w.send(testredis.Command("PTTL", "k"), testredis.Command("EXISTS", "k"), testredis.Command("CL.THROTTLE", "k", "0", "2", "3"))
			left, exists, reply := w.reply(), w.reply(), w.reply()
			switch {
			case reply == "[0 1 0 -1 2]":
				if waited := time.Since(begun); waited < 1500*time.Millisecond {
					t.Errorf("it was admitted after %v; a permit comes in 1.5 s", waited)
				}
				return true
			case reply != "[1 1 0 2 2]" && reply != "[1 1 0 1 1]":
				t.Fatalf("after %v: %s", waited, reply)
			case exists != "1" || strings.HasPrefix(left, "-"):
				t.Fatalf("after %v: PTTL %s, EXISTS %s, and it is denied", waited, left, exists)
			}
			return false
		})
	})
}

// A key that has got all its permits back is gone.
func TestKeysGo(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		w := dial(t, startService(t, store, ""))
		w.expect("CL.THROTTLE k 4 1000 20 5", "[0 5 0 -1 1]")
		until(t, "it is gone", func() bool { return w.do("EXISTS k") == "0" })
		w.expect("TTL k", "-2")
		w.expect("PTTL k", "-2")
		w.expect("DEL k", "0")
		w.expect("CL.THROTTLE k 4 1000 20 0", "[0 5 5 -1 0]")
	})
}

// TTL tells of each key what that was asked about with, however many keys there are.
func TestTTLOfManyKeys(t *testing.T) {
	t.Parallel()
	const keys = 4000
	w := dial(t, startInMemory(t))
	wrong, unknown := 0, 0
	var example string
	for i := range keys {
		w.send(testredis.Command("CL.THROTTLE", fmt.Sprint("k", i), "9", "1", fmt.Sprint(1000*(1+i%2))))
		if reply := w.reply(); !matches(fmt.Sprintf("[0 10 9 -1 %d]", 1000*(1+i%2)), reply) {
			t.Fatalf("key %d: %s", i, reply)
		}
	}
	for i := range keys {
		w.send(testredis.Command("TTL", fmt.Sprint("k", i)))
		var left int
		reply := w.reply()
		if strings.HasPrefix(reply, "ERR the key has a state, and this process does not know by which parameters") {
			unknown++
			continue
		}
		if _, err := fmt.Sscan(reply, &left); err != nil || left > 1000*(1+i%2) || left < 1000*(1+i%2)-60 {
			wrong++
			example = fmt.Sprintf("k%d was asked about with a period of %d s, and TTL says %s", i, 1000*(1+i%2), reply)
		}
	}
	if unknown > keys/10 {
		t.Errorf("TTL is not known for %d of %d keys", unknown, keys)
	}
	if wrong > 0 {
		t.Errorf("TTL is wrong for %d of %d keys; such as: %s", wrong, keys, example)
	}
}
