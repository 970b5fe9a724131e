package attack_test

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var (
	lasting = flag.Duration("for", time.Second, "how `long` each attack lasts")
	// Beside other tests the store's process may not run for longer than the standard timeout.
	storeTimeout = flag.Duration("store-timeout", time.Minute, "the service's store.`timeout`")
	strict       = flag.Bool("strict", false, "hold the innocent client's answers to their statuses, which depend on the machine's speed")
)

const (
	// patience is how long what should come soon may take.
	patience    = 5 * time.Minute
	connections = 64
	// perSecond is how many checks the innocent client makes.
	perSecond = 250
	// attackersLimit is what the attackers' limits admit in all.
	attackersLimit = 10
)

// TestAttack makes each attack on a service whose store is a real Redis.
func TestAttack(t *testing.T) {
	single := get("/api/v1/rate-limit/check", "")
	oddPath := "/" + strings.Repeat("abc%2e%2e%2E;defghi%20%c3%a9kl%2Fm/%5c..;/", 120)
	for _, attack := range []struct {
		name        string
		connections int
		request     string
		limits      int // how many limits the request meets, of each address
		others      attackers
	}{
		{"batches", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat("{},", 999)+"{}]"), 1, attackers{}},
		{"batches that record denials", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat(`{"policy":"recorded"},`, 999)+`{"policy":"recorded"}]`), 1, attackers{}},
		{"large bodies", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat(`{"algorithm":"LEAKY_BUCKET"        },`, 999)+strings.Repeat(" ", 900_000)+"{}]"), 2, attackers{}},
		{"bad bodies", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat("{},", 300_000)+"{}"), 1, attackers{}},
		{"single checks", connections, single, 1, attackers{}},
		{"batches from 64 addresses", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat("{},", 999)+"{}]"), 1, attackers{addresses: 64}},
		{"batches that keep permits for others", connections, post("/api/v1/rate-limit/check", "["+strings.Repeat(`{"keep":1},{"keep":2},`, 499)+`{"keep":9},{"keep":10}]`), 1, attackers{}},
		{"pipelined checks", connections, single, 1, attackers{pipelined: 100}},
		{"reserves that nobody ends", connections, hold("/api/v1/rate-limit/reserve", `"key":"attacker","ttl":"1h"`), 1, attackers{}},
		{"places that nobody frees", connections, hold("/api/v1/rate-limit/reserve", `"key":"attacker","policy":"places"`), 1, attackers{}},
		{"reserves without a token", connections, post("/api/v1/rate-limit/reserve", `{"id":"a"}`), 0, attackers{}},
		{"commits of nothing", connections, hold("/api/v1/rate-limit/commit", `"key":"attacker","permits":1`), 0, attackers{}},
		{"cancels of nothing", connections, hold("/api/v1/rate-limit/cancel", `"path":"/login","ip":"10.6.6.6"`), 0, attackers{}},
		{"metrics", 128, get("/metrics", ""), 0, attackers{}},
		{"compressed metrics", 128, get("/metrics", "Accept-Encoding: gzip\r\n"), 0, attackers{}},
		{"descriptions", 128, get("/openapi.yaml", ""), 0, attackers{}},
		{"health", 128, get("/actuator/health", ""), 0, attackers{}},
		{"odd paths", 200, "GET /forward-auth HTTP/1.1\r\nHost: stint\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: a.example\r\nX-Forwarded-For: 10.6.6.6\r\nX-Forwarded-Uri: " + oddPath + "\r\n\r\n", 1, attackers{}},
		{"teams that nobody knows", connections, "GET /forward-auth HTTP/1.1\r\nHost: stint\r\nX-Forwarded-Method: GET\r\nX-Forwarded-Host: a.example\r\nX-Forwarded-For: 10.6.6.6\r\nX-Forwarded-Uri: /teams\r\nX-Team: " + eachOther + "\r\n\r\n", 1, attackers{}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			innocent := s.startInnocent(t)
			crowd := s.startCrowd(t, attack.connections, attack.request, attack.others)
			crowd.await(t)
			innocent.await(t)
			<-time.After(*lasting) // the length of the experiment, not a wait for something
			made, checks := crowd.stop(), innocent.stop()
			t.Logf("attackers: %s", made)
			t.Logf("innocent:  %s", checks)
			if most := attackersLimit * attack.limits * max(attack.others.addresses, 1); made.admitted > most {
				t.Errorf("the attackers were admitted %d times, at most %d are right", made.admitted, most)
			}
			if made.degraded > 0 {
				t.Errorf("%d decisions were the failure policy's", made.degraded)
			}
			checks.expect(t)
			s.expectReachable(t)
		})
	}
}
