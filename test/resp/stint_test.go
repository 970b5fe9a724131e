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
				steps := stepsOf(t, "stint.txt", "commands")
				if test.three {
					w.expect("HELLO 3", hello3)
				} else {
					for i := range steps {
						steps[i].reply = inRESP2(steps[i].reply)
					}
				}
				if test.atOnce {
					speak(t, w, [][]said{steps})
					return
				}
				w.follow(steps)
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
	for _, step := range stepsOf(t, "stint.txt", "commands") {
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
	w.follow(stepsOf(t, "stint.txt", "transactions"))
}

// Who has not shown a token may do nothing but show one, RESET forgets it, and errors are those of Redis.
func TestTokens(t *testing.T) {
	w := dial(t, startService(t, memory, tokens(t)))
	w.follow(stepsOf(t, "stint.txt", "tokens"))
	if !w.ended() {
		t.Error("QUIT does not end the connection")
	}
}

// Where keys may not be named, a client may still have rules decide, as over HTTP: STINT.EVALUATE names no key.
func TestExplicitKeys(t *testing.T) {
	w := dial(t, startService(t, memory, "api: {explicit_keys: false}\n"+limits))
	w.follow(stepsOf(t, "stint.txt", "no keys"))
}
