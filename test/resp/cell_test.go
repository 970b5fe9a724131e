package resp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/testredis"
)

// tell tells each conversation to a service, one command after the other's reply, and to another one all at once.
func tell(t *testing.T, store, configuration string, conversations map[string][]said) {
	t.Helper()
	slowly := startService(t, store, configuration)
	atOnce := startService(t, strings.Replace(store, "key_prefix: ", "key_prefix: again-", 1), configuration)
	for name, steps := range conversations {
		t.Run(name, func(t *testing.T) {
			w := dial(t, slowly)
			for _, step := range steps {
				w.expect(step.command, step.reply)
			}
		})
		t.Run(name+", at once", func(t *testing.T) { speak(t, dial(t, atOnce), [][]said{steps}) })
	}
}

// What redis-cell documents: the README of 0.5, "Usage" and "Multiple Rate Limits", and its tests, tests/e2e.rs and
// it_rate_limits of src/cell/mod.rs. There a permit comes each second; here each hour, so that none does meanwhile.
func TestRedisCell(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		tell(t, store, "", map[string][]said{
			"README, usage": {
				{"CL.THROTTLE user123 15 30 60", "[0 16 15 -1 2]"},
				{"CL.THROTTLE user123 15 30 60 1", "[0 16 14 -1 4]"},
			},
			"README, multiple rate limits": {
				{"CL.THROTTLE user123-read-rate 15 30 60", "[0 16 15 -1 2]"},
				{"CL.THROTTLE user123-write-rate 5 10 60", "[0 6 5 -1 6]"},
				{"CL.THROTTLE user123-read-rate 15 30 60", "[0 16 14 -1 4]"},
			},
			"e2e.rs": {
				{"CL.THROTTLE e2e 0 1 2 1", "[0 1 0 -1 2]"},
				{"CL.THROTTLE e2e 0 1 2 1", "[1 1 0 2 2]"},
			},
			"mod.rs": {
				{"CL.THROTTLE foo 4 1 3600 6", "[1 5 5 -1 0]"}, // a quantity that never can be admitted
				{"CL.THROTTLE foo 4 1 3600 1", "[0 5 4 -1 3600]"},
				{"CL.THROTTLE foo 4 1 3600 1", "[0 5 3 -1 7200]"},
				{"CL.THROTTLE foo 4 1 3600 1", "[0 5 2 -1 10800]"},
				{"CL.THROTTLE foo 4 1 3600 1", "[0 5 1 -1 14400]"},
				{"CL.THROTTLE foo 4 1 3600 1", "[0 5 0 -1 18000]"},
				{"CL.THROTTLE foo 4 1 3600 1", "[1 5 0 3600 18000]"},
				{"CL.THROTTLE foo 4 1 3600 0", "[0 5 0 -1 18000]"}, // a look
			},
			"mod.rs, many at once": {
				{"CL.THROTTLE many 4 1 3600 1", "[0 5 4 -1 3600]"},
				{"CL.THROTTLE many 4 1 3600 0", "[0 5 4 -1 3600]"},
				{"CL.THROTTLE many 4 1 3600 2", "[0 5 2 -1 10800]"},
				{"CL.THROTTLE many 4 1 3600 5", "[1 5 2 10800 10800]"},
			},
			"the command's name in any case": {
				{"cl.throttle case 15 30 60", "[0 16 15 -1 2]"},
				{"Cl.Throttle CASE 15 30 60", "[0 16 15 -1 2]"}, // another key
			},
		})
	})
}

// Where the answers differ from redis-cell's, on purpose.
func TestDifferencesToRedisCell(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		tell(t, store, "", map[string][]said{
			// redis-cell keeps when the key will have all permits, and computes from that what is left: 16 - 1 with these parameters.
			// Here all are there in an hour, when the smaller bucket could have been filled.
			"a larger burst does not bring permits": {
				{"CL.THROTTLE larger 0 1 3600", "[0 1 0 -1 3600]"},
				{"CL.THROTTLE larger 15 1 3600 0", "[0 16 0 -1 3600]"},
				{"CL.THROTTLE larger 15 1 3600", "[1 16 0 3600 3600]"},
			},
			// By redis-cell the key would be denied for an hour.
			"a higher rate holds at once": {
				{"CL.THROTTLE faster 0 1 3600", "[0 1 0 -1 3600]"},
				{"CL.THROTTLE faster 0 1 10 0", "[0 1 0 -1 10]"},
			},
			// redis-cell takes negative quantities for gifts.
			"a quantity is not below 0": {
				{"CL.THROTTLE gift 4 1 3600 3", "[0 5 2 -1 10800]"},
				{"CL.THROTTLE gift 4 1 3600 -2", `ERR quantity is "-2"; allowed: an integer from 0 to 1000000000`},
				{"CL.THROTTLE gift 4 1 3600 0", "[0 5 2 -1 10800]"},
			},
			// redis-cell takes any that fit into 64 bits.
			"parameters have bounds": {
				{"CL.THROTTLE slow 9999 1 86400", "ERR .*less than 10 years.*"},
				{"CL.THROTTLE slow 9 1 31622401", `ERR period is "31622401"; allowed: .*`},
				{"CL.THROTTLE slow 1000000000 1 1", `ERR max_burst is "1000000000"; allowed: .*`},
			},
			"errors name the argument": {
				{"CL.THROTTLE wrong -1 30 60", `ERR max_burst is "-1"; allowed: .*`},
				{"CL.THROTTLE wrong 15 0 60", `ERR count is "0"; allowed: .*`},
				{"CL.THROTTLE wrong 15 30 0", `ERR period is "0"; allowed: .*`},
				{"CL.THROTTLE wrong 15 30 60 much", `ERR quantity is "much"; allowed: .*`},
				{"CL.THROTTLE wrong 15 30 60.5", `ERR period is "60.5"; allowed: .*`},
				{"CL.THROTTLE wrong 99999999999999999999 30 60", `ERR max_burst is "99999999999999999999"; allowed: .*`},
				{"CL.THROTTLE wrong x y 60", `ERR max_burst is "x"; allowed: .* count is "y"; allowed: .*`},
				{"CL.THROTTLE wrong 15 30", "ERR wrong number of arguments for 'cl.throttle' command"},
				{"CL.THROTTLE wrong 15 30 60 1 1", "ERR wrong number of arguments for 'cl.throttle' command"},
				{"CL.THROTTLE wrong 15 30 60 0", "[0 16 16 -1 0]"},
			},
		})
	})
}

// What is wrong with the parameters together is said in the words of CL.THROTTLE.
func TestParametersTogether(t *testing.T) {
	w := dial(t, startInMemory(t))
	w.expect("CL.THROTTLE k 9999 1 86400", "ERR .*max_burst.*count.*period.*allowed: .*")
}

// A denied request that waits as long as it is told is admitted, and a denial never says to come back in 0 seconds.
// Until then the key exists, whatever time has passed.
func TestWaitAsTold(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		w := dial(t, startService(t, store, ""))
		w.expect("CL.THROTTLE k 0 2 3", "[0 1 0 -1 2]")
		denied := time.Now()
		w.expect("CL.THROTTLE k 0 2 3", "[1 1 0 2 2]")
		until(t, "it is admitted", func() bool {
			waited := time.Since(denied)
			w.send(testredis.Command("PTTL", "k"), testredis.Command("EXISTS", "k"), testredis.Command("CL.THROTTLE", "k", "0", "2", "3"))
			left, exists, reply := w.reply(), w.reply(), w.reply()
			switch {
			case reply == "[0 1 0 -1 2]":
				if waited := time.Since(denied); waited < 1400*time.Millisecond {
					t.Errorf("it was admitted after %v; a permit comes in 1.5 s", waited)
				}
				return true
			case reply != "[1 1 0 2 2]" && reply != "[1 1 0 1 1]" || waited > 2*time.Second:
				t.Fatalf("after %v: %s", waited, reply)
			case exists != "1" || strings.HasPrefix(left, "-"):
				t.Fatalf("after %v: PTTL %s, EXISTS %s, and it is denied", waited, left, exists)
			}
			return false
		})
	})
}

// A key has one state. Who asks with other parameters goes on with it: by the whole permits that are left, at most the
// new burst and 1, or by what has come by the new parameters since it was last taken of, if that is more.
func TestStateIsByKeyAlone(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		tell(t, store, "", map[string][]said{"changes": {
			{"CL.THROTTLE k 9 1 3600 4", "[0 10 6 -1 14400]"},
			{"CL.THROTTLE k 4 1 3600 0", "[0 5 5 -1 0]"},       // at most the new burst and 1
			{"CL.THROTTLE k 19 1 3600 0", "[0 20 6 -1 36000]"}, // when the bucket of 10 could have been filled
			{"CL.THROTTLE k 4 1 3600 1", "[0 5 4 -1 3600]"},
			{"CL.THROTTLE k 9 1 3600 0", "[0 10 4 -1 18000]"},
			{"CL.THROTTLE k 9 1 60 4", "[0 10 0 -1 600]"},
			{"CL.THROTTLE k 9 1 3600", "[1 10 0 60 600]"}, // by the rate of who has taken last
			{"DEL k", "1"},
			{"CL.THROTTLE k 9 1 3600", "[0 10 9 -1 3600]"},
			{"CL.THROTTLE other 9 1 3600 10", "[0 10 0 -1 36000]"},
			{"CL.THROTTLE k 9 1 3600", "[0 10 8 -1 7200]"},
		}})
	})
}

// DEL and UNLINK reset keys, EXISTS, TTL and PTTL tell about them, as of keys of Redis.
func TestKeys(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		tell(t, store, "", map[string][]said{"keys": {
			{"TTL a", "-2"},
			{"PTTL a", "-2"},
			{"EXISTS a", "0"},
			{"DEL a", "0"},
			{"CL.THROTTLE a 9 1 3600", "[0 10 9 -1 3600]"},
			{"CL.THROTTLE b 9 1 3600 2", "[0 10 8 -1 7200]"},
			{"TTL a", "~3600"},
			{"PTTL b", "7.*"},
			{"EXISTS a b c", "2"},
			{"EXISTS a a", "2"},
			{"DEL a c", "1"},
			{"TTL a", "-2"},
			{"EXISTS a b", "1"},
			{"UNLINK a b c", "1"},
			{"EXISTS a b", "0"},
			{"CL.THROTTLE b 9 1 3600", "[0 10 9 -1 3600]"},
			{"DEL", "ERR wrong number of arguments for 'del' command"},
			{"TTL a b", "ERR wrong number of arguments for 'ttl' command"},
			// A key with all its permits has no state, however it came by it.
			{"CL.THROTTLE full 9 1 3600 0", "[0 10 10 -1 0]"},
			{"EXISTS full", "0"},
			{"CL.THROTTLE full 9 1 3600 11", "[1 10 10 -1 0]"},
			{"EXISTS full", "0"},
			{"DEL full", "0"},
			// The largest bucket.
			{"CL.THROTTLE large 999999999 100 10 1000", "[0 1000000000 999999000 -1 100]"},
			{"EXISTS large", "1"},
			{"TTL large", "~100"},
			{"DEL large", "1"},
		}})
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

// A look changes nothing: not what TTL says, either.
func TestLookChangesNothing(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		tell(t, store, "", map[string][]said{"looks": {
			{"CL.THROTTLE k 9 1 3600 10", "[0 10 0 -1 36000]"},
			{"CL.THROTTLE k 9 1 600 0", "[0 10 0 -1 6000]"},
			{"CL.THROTTLE k 4 1 60 0", "[0 5 0 -1 300]"},
			{"TTL k", "~36000"},
			{"CL.THROTTLE k 9 1 3600 0", "[0 10 0 -1 36000]"},
			{"TTL k", "~36000"},
		}})
	})
}
