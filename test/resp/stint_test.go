package resp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// limits are policies and rules of a service. No window of a day ends within a test but at midnight; buckets get a permit
// in an hour.
const limits = `
policies:
  two:
    - {algorithm: token_bucket, name: burst, capacity: 3, refill: 1/1h}
    - {algorithm: token_bucket, name: long, capacity: 100, refill: 1/1h}
  tokens: [{algorithm: token_bucket, capacity: 100, refill: 1/1h}]
  places: [{algorithm: concurrency, capacity: 2}]
rules:
  - {id: login, match: {methods: [POST], path: /login}, scope: per_ip, limits: [{algorithm: token_bucket, capacity: 2, refill: 1/1h}]}
  - {id: trial, match: {path: /login}, scope: per_ip, on_exceed: shadow, limits: [{algorithm: token_bucket, capacity: 1, refill: 1/1h}]}
  - {id: user, match: {path: "/user/**"}, scope: per_user, missing: deny, limits: [{algorithm: token_bucket, capacity: 2, refill: 1/1h}]}
  - {id: tier, match: {path: /tier}, scope: "custom:tier", missing: skip, limits: [{algorithm: token_bucket, capacity: 2, refill: 1/1h}]}
  - {id: host, match: {path: /host, host: example.com, headers: {X-Version: "2"}}, scope: global, limits: [{algorithm: token_bucket, capacity: 2, refill: 1/1h}]}
  - {id: quota, match: {path: /quota}, scope: global, limits: [{algorithm: token_bucket, capacity: 1, refill: 1/1h}], otherwise: extra,
     classes: {by: {attribute: class}, keep: {critical: 0%, batch: 40%}, default: batch}}
  - {id: extra, match: {path: /nothing}, scope: global, limits: [{algorithm: token_bucket, capacity: 1, refill: 1/1h}]}
  - {id: none, match: {path: /banned}, scope: global, banned: true}
`

// The replies of RESP 3. In RESP 2 they are pairs, see inRESP2.
var stintCommands = []said{
	{"STINT.CHECK two ann", `{"allowed": true "limit": 3 "remaining": 2 "resetAfterMicros": .* "retryAfterMicros": 0 "delayMicros": 0 "at": .* ` +
		`"algorithm": "TOKEN_BUCKET" "degraded": false "source": "store"}`},
	{"STINT.CHECK two ann 2", `{"allowed": true "limit": 3 "remaining": 0 .*}`},
	{"STINT.CHECK two ann", `{"allowed": false "limit": 3 "remaining": 0 "resetAfterMicros": .* "retryAfterMicros": 3.* "delayMicros": 0 "at": .* ` +
		`"algorithm": "TOKEN_BUCKET" "degraded": false "source": "store" "reason": "limit" "limitName": "burst"}`},
	{"STINT.CHECK two ben 3", `{"allowed": true "limit": 3 "remaining": 0 .*}`},
	{"STINT.CHECK nothing ann", `ERR policy is "nothing"; allowed: places, tokens, two`},
	{"STINT.CHECK two ann 0", `ERR permits is "0"; allowed: .*`},
	{"STINT.CHECK two ann many", `ERR permits is "many"; allowed: .*`},
	{"STINT.CHECK two", "ERR wrong number of arguments for 'stint.check' command"},

	{"STINT.EVALUATE POST /login ip 192.0.2.1", `{"allowed": true "limit": 2 "remaining": 1 .* "rule": "login" "matched": ["login" "trial"] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE POST /login ip 192.0.2.1", `{"allowed": true "limit": 2 "remaining": 0 .* "rule": "login" "matched": ["login" "trial"] "shadowed": ["trial"] "missing": []}`},
	{"STINT.EVALUATE POST /login ip 192.0.2.1", `{"allowed": false "limit": 2 "remaining": 0 .* "reason": "limit" "limitName": "" "rule": "login" "matched": ["login" "trial"] .*}`},
	{"STINT.EVALUATE POST /login ip 192.0.2.2", `{"allowed": true "limit": 2 "remaining": 1 .* "rule": "login" .*}`},
	{"STINT.EVALUATE GET /else", `{"allowed": true "limit": 0 .* "retryAfterMicros": 0 .* "degraded": false .* "rule": "" "matched": [] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE GET /user/x", `{"allowed": false "limit": 0 .* "retryAfterMicros": -1 .* "reason": "missing" "limitName": "" "rule": "user" "matched": ["user"] "shadowed": [] "missing": ["per_user"]}`},
	{"STINT.EVALUATE GET /banned", `{"allowed": false "limit": 0 .* "retryAfterMicros": -1 .* "reason": "banned" "limitName": "" "rule": "none" "matched": ["none"] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE GET /tier attributes.tier gold", `{"allowed": true "limit": 2 "remaining": 1 .* "rule": "tier" "matched": ["tier"] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE GET /quota attributes.class critical", `{"allowed": true "limit": 1 .* "rule": "quota" "class": "critical" "via": "limits" "available": 1 "matched": ["quota"] .*}`},
	{"STINT.EVALUATE GET /quota", `{"allowed": true "limit": 1 .* "rule": "quota" "class": "batch" "via": "otherwise" "available": 0 "matched": ["quota"] .*}`},
	{"STINT.EVALUATE GET /quota", `{"allowed": false "limit": 1 .* "rule": "quota" "class": "batch" "via": "" "available": 0 "matched": ["quota"] .*}`},
	{"STINT.EVALUATE GET /tier", `{"allowed": true .* "rule": "" .*}`},
	{"STINT.EVALUATE GET /host host example.com headers.X-Version 2 wait false", `{"allowed": true "limit": 2 .* "rule": "host" "matched": ["host"] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE GET /host host example.org headers.X-Version 2", `{"allowed": true .* "matched": [] "shadowed": [] "missing": []}`},
	{"STINT.EVALUATE GET /tier attributes.tier gold attributes.tier gold", `ERR attributes.tier is repeated; allowed: once`},
	{"STINT.EVALUATE GET /tier colour gold", `ERR name is "colour"; allowed: .*`},
	{"STINT.EVALUATE GET /tier ip", `ERR ip has no value`},
	{"STINT.EVALUATE GET /tier ip there", `ERR ip is "there"; allowed: .*`},
	{"STINT.EVALUATE GET tier", `ERR path is "tier"; allowed: .*`},
	{"STINT.EVALUATE GET /tier wait maybe", `ERR wait is "maybe"; allowed: true or false`},
	{"STINT.EVALUATE GET /tier set other", `NOPERM .*set of rules.*`},
	{"STINT.EVALUATE GET", "ERR wrong number of arguments for 'stint.evaluate' command"},

	{"STINT.RESERVE h1 tokens ann 40 1m", `{"allowed": true "limit": 100 "remaining": 60 .* "id": "h1" "expiresAt": .* "replayed": false "lost": false}`},
	{"STINT.RESERVE h1 tokens ann 40 1m", `{"allowed": true "limit": 100 "remaining": 60 .* "id": "h1" "expiresAt": .* "replayed": true "lost": false}`},
	{"STINT.COMMIT h1 10", `{"id": "h1" "applied": -30 "late": false "replayed": false "reset": false "limit": 100 "remaining": 90 "at": .*}`},
	{"STINT.COMMIT h1 10", `{"id": "h1" "applied": -30 "late": false "replayed": true "reset": false "limit": 100 "remaining": 90 "at": .*}`},
	{"STINT.COMMIT h1 11", `CONFLICT the hold "h1" was committed at .*`},
	{"STINT.CANCEL h1", `CONFLICT the hold "h1" was committed at .*`},
	{"STINT.RESERVE h2 tokens ann 40 1m", `{"allowed": true .* "remaining": 50 .* "id": "h2" .*}`},
	{"STINT.CANCEL h2", `{"id": "h2" "applied": -40 "late": false "replayed": false "reset": false "limit": 100 "remaining": 90 "at": .*}`},
	{"STINT.COMMIT h2 1", `CONFLICT the hold "h2" was cancelled at .*`},
	{"STINT.RESERVE h3 tokens ann 95 1m", `{"allowed": false "limit": 100 "remaining": 90 .* "reason": "limit" .* "id": "h3" "expiresAt": 0 "replayed": false "lost": false}`},
	{"STINT.RESERVE h4 tokens ann 10 30s", `{"allowed": true .* "remaining": 80 .* "id": "h4" .*}`},
	{"STINT.COMMIT h4 25 tokens ann", `{"id": "h4" "applied": 15 .* "remaining": 65 "at": .*}`}, // above what was reserved
	{"STINT.COMMIT h5 1", `UNKNOWN .*"h5".*`},
	{"STINT.COMMIT h5 1 tokens", `ERR key is "missing"; allowed: .*`},
	{"STINT.COMMIT h5 1 tokens ann", `UNKNOWN .*`},
	{"STINT.COMMIT h5 1 nothing ann", `ERR policy is "nothing"; allowed: .*`},
	{"STINT.COMMIT h5 1 tokens ann soon", `ERR expiresAt is "soon"; allowed: .*`},
	{"STINT.COMMIT h5 some tokens ann", `ERR n is "some"; allowed: .*`},
	{"STINT.CANCEL h5", `UNKNOWN .*"h5".*`},
	{"STINT.CANCEL h5 tokens", `ERR key is "missing"; allowed: .*`},
	{"STINT.RESERVE h6 tokens ann 1 0", `ERR ttl is "0"; allowed: 1s to 1h`},
	{"STINT.RESERVE h6 tokens ann 1 2h", `ERR ttl is 2h0m0s; allowed: 1s to 1h.*`},
	{"STINT.RESERVE h6 tokens ann 1 long", `ERR ttl is "long"; allowed: .*`},
	{"STINT.RESERVE h6 tokens ann some 1m", `ERR .* is "some"; allowed: .*`},
	{"STINT.RESERVE h6 nothing ann 1 1m", `ERR policy is "nothing"; allowed: .*`},
	{"STINT.RESERVE h6 tokens ann 1", "ERR wrong number of arguments for 'stint.reserve' command"},

	{"STINT.RESERVE p1 places ann 1 1m", `{"allowed": true .* "remaining": 1 .* "id": "p1" .*}`},
	{"STINT.RESERVE p2 places ann 1 1m", `{"allowed": true .* "remaining": 0 .* "id": "p2" .*}`},
	{"STINT.RESERVE p3 places ann 1 1m", `{"allowed": false .* "remaining": 0 .* "id": "p3" .*}`},
	{"STINT.CANCEL p1 places ann", `{"id": "p1" .* "remaining": 1 "at": .*}`},
	{"STINT.RESERVE p3 places ann 1 1m", `{"allowed": true .* "remaining": 0 .* "id": "p3" .*}`},
	{"STINT.COMMIT p2 0", `{"id": "p2" .* "remaining": 1 "at": .*}`},
	{"STINT.CHECK places ann", `ERR .*reserve.*concurrency.*`},

	// CL.THROTTLE's keys are others than those of policies.
	{"CL.THROTTLE ann 2 1 3600", "[0 3 2 -1 3600]"},
	{"DEL ann", "1"},
	{"STINT.CHECK two ann", `{"allowed": false .*}`},
}

// inRESP2 is a reply as RESP 2 has it: pairs for maps, 1 and 0 for true and false.
func inRESP2(reply string) string {
	if !strings.HasPrefix(reply, "{") {
		return reply
	}
	return strings.NewReplacer("{", "[", "}", "]", `": `, `" `, "true", "1", "false", "0").Replace(reply)
}

// The STINT commands say the same in both versions of the protocol, one by one and all at once.
func TestStintCommands(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store string) {
		for i, test := range []struct {
			name          string
			three, atOnce bool
		}{{"RESP 2", false, false}, {"RESP 3", true, false}, {"RESP 2 at once", false, true}, {"RESP 3 at once", true, true}} {
			t.Run(test.name, func(t *testing.T) {
				w := dial(t, startService(t, strings.Replace(store, "key_prefix: ", fmt.Sprintf("key_prefix: s%d", i), 1), limits))
				steps := stintCommands
				if test.three {
					w.expect("HELLO 3", hello3)
				} else {
					steps = nil
					for _, step := range stintCommands {
						steps = append(steps, said{step.command, inRESP2(step.reply)})
					}
				}
				if test.atOnce {
					speak(t, w, [][]said{steps})
					return
				}
				for _, step := range steps {
					w.expect(step.command, step.reply)
				}
			})
		}
	})
}

// Between MULTI and EXEC the commands are answered as without, in one array.
func TestStintCommandsInMulti(t *testing.T) {
	w := dial(t, startService(t, memory, limits))
	w.expect("HELLO 3", hello3)
	w.expect("MULTI", "OK")
	var queued []said
	for _, step := range stintCommands {
		if strings.Contains(step.reply, "wrong number of arguments") { // which EXEC would not forgive
			continue
		}
		w.expect(step.command, "QUEUED")
		queued = append(queued, step)
	}
	w.send(testredis.Command("EXEC"))
	if n := w.array(); n != len(queued) {
		t.Fatalf("EXEC answers %d commands of %d", n, len(queued))
	}
	for _, step := range queued {
		w.compare(step)
	}
	for _, step := range []said{
		{"MULTI", "OK"},
		{"CL.THROTTLE k 4 1 3600", "QUEUED"},
		{"CL.THROTTLE k", "ERR wrong number of arguments for 'cl.throttle' command"},
		{"CL.THROTTLE k 4 1 3600", "QUEUED"},
		{"EXEC", "EXECABORT .*"},
		{"EXEC", "ERR EXEC without MULTI"},
		{"CL.THROTTLE k 4 1 3600 0", "[0 5 5 -1 0]"},
		{"MULTI", "OK"},
		{"CL.THROTTLE k 4 1 3600", "QUEUED"},
		{"MULTI", "ERR MULTI calls can not be nested"},
		{"DISCARD", "OK"},
		{"DISCARD", "ERR DISCARD without MULTI"},
		{"CL.THROTTLE k 4 1 3600 0", "[0 5 5 -1 0]"},
		{"MULTI", "OK"},
		{"CL.THROTTLE k 4 1 0", "QUEUED"},
		{"CL.THROTTLE k 4 1 3600", "QUEUED"},
		{"EXEC", `[ERR period is "0"; allowed: .* [0 5 4 -1 3600]]`},
		{"MULTI", "OK"},
		{"EXEC", "[]"},
	} {
		w.expect(step.command, step.reply)
	}
}

// STINT.RESERVE id policy key n ttl calls what is wrong by its name, as STINT.COMMIT id n does.
func TestReserveNamesItsArgument(t *testing.T) {
	w := dial(t, startService(t, memory, limits))
	w.expect("STINT.COMMIT h some tokens ann", `ERR n is "some"; allowed: .*`)
	w.expect("STINT.RESERVE h tokens ann some 1m", `ERR n is "some"; allowed: .*`)
}

// Who has not shown a token may do nothing but show one, RESET forgets it, and errors are those of Redis.
func TestTokens(t *testing.T) {
	w := dial(t, startService(t, memory, tokens(t)))
	for _, step := range []said{
		{"PING", "NOAUTH Authentication required."},
		{"CL.THROTTLE k 15 30 3600", "NOAUTH Authentication required."},
		{"STINT.EVALUATE GET /", "NOAUTH Authentication required."},
		{"HELLO 3", "NOAUTH .*"},
		{"AUTH wrong", "WRONGPASS .*"},
		{"AUTH default wrong", "WRONGPASS .*"},
		{"HELLO 3 AUTH default wrong", "WRONGPASS .*"},
		{"PING", "NOAUTH Authentication required."},
		{"AUTH " + token, "OK"},
		{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"},
		{"AUTH wrong", "WRONGPASS .*"}, // which takes nothing away
		{"PING", "PONG"},
		{"HELLO 3", hello3},
		{"RESET", "RESET"},
		{"PING", "NOAUTH Authentication required."},
		{"HELLO 2 AUTH anybody " + token, hello2},
		{"PING", "PONG"},
		{"QUIT", "OK"},
	} {
		w.expect(step.command, step.reply)
	}
	if !w.ended() {
		t.Error("QUIT does not end the connection")
	}
}

// Where keys may not be named, a client may still have rules decide, as over HTTP: STINT.EVALUATE names no key.
func TestExplicitKeys(t *testing.T) {
	w := dial(t, startService(t, memory, "api: {explicit_keys: false}\n"+limits))
	for _, step := range []said{
		{"PING", "PONG"},
		{"CL.THROTTLE k 15 30 3600", "NOPERM .*api.explicit_keys.*"},
		{"STINT.CHECK two ann", "NOPERM .*api.explicit_keys.*"},
		{"STINT.RESERVE h tokens ann 1 1m", "NOPERM .*api.explicit_keys.*"},
		{"DEL k", "NOPERM .*api.explicit_keys.*"},
		{"MULTI", "OK"},
		{"CL.THROTTLE k 15 30 3600", "NOPERM .*"},
		{"EXEC", "EXECABORT .*"},
		{"STINT.EVALUATE GET /banned", `["allowed" 0 .* "reason" "banned" .*]`},
	} {
		w.expect(step.command, step.reply)
	}
}
