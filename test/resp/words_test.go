package resp_test

import (
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// The reply to HELLO in each version of the protocol.
const (
	hello2 = `["server" "stint" "version" "7.2.0" "proto" 2 "id" .* "mode" "standalone" "role" "master" "modules" []]`
	hello3 = `{"server": "stint" "version": "7.2.0" "proto": 3 "id": .* "mode": "standalone" "role": "master" "modules": []}`
)

// A said is a command that a client sends, and the reply that it is to get.
type said struct{ command, reply string }

// compare reads the reply to a command.
func (w *wire) compare(s said) {
	w.t.Helper()
	if got := w.reply(); !matches(s.reply, got) {
		w.t.Errorf("%s\n got %s\nwant %s", s.command, got, s.reply)
	}
}

// A client's first words with its default options: what it sends at once, before it waits for the replies, is a flight.
var firstWords = []struct {
	name    string
	tokens  bool
	flights [][]said
}{
	{
		// redis/jedis v7.0, Connection.initializeFromClientConfig: without a protocol nothing is negotiated.
		name: "Jedis 7",
		flights: [][]said{
			{{"CLIENT SETINFO LIB-NAME jedis", "OK"}, {"CLIENT SETINFO LIB-VER 7.0.0", "OK"}},
			{{"PING", "PONG"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
			{{"MULTI", "OK"}, {"CL.THROTTLE k 15 30 3600", "QUEUED"}, {"DEL k", "QUEUED"}, {"EXEC", "[[0 16 14 -1 240] 1]"}},
			{{"QUIT", "OK"}},
		},
	},
	{
		// The same with a password: AUTH alone comes first, as the user has no name.
		name: "Jedis 7 with a token", tokens: true,
		flights: [][]said{
			{{"AUTH " + token, "OK"}},
			{{"CLIENT SETINFO LIB-NAME jedis", "OK"}, {"CLIENT SETINFO LIB-VER 7.0.0", "OK"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
		},
	},
	{
		// redis/jedis v8.0, Connection.hello: RESP 3 is tried unless it is switched off.
		name: "Jedis 8",
		flights: [][]said{
			{{"HELLO 3", hello3}},
			{{"CLIENT SETINFO LIB-NAME jedis", "OK"}, {"CLIENT SETINFO LIB-VER 8.0.0", "OK"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
			{{"MULTI", "OK"}, {"CL.THROTTLE k 15 30 3600", "QUEUED"}, {"DEL k", "QUEUED"}, {"EXEC", "[[0 16 14 -1 240] 1]"}},
		},
	},
	{
		name: "Jedis 8 with a token", tokens: true,
		flights: [][]said{
			{{"HELLO 3 AUTH default " + token, hello3}},
			{{"CLIENT SETINFO LIB-NAME jedis", "OK"}, {"CLIENT SETINFO LIB-VER 8.0.0", "OK"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
		},
	},
	{
		// redis/lettuce 7.0, RedisHandshake: HELLO, then what it tells of itself, then notifications, whose error it ignores.
		name: "Lettuce 7",
		flights: [][]said{
			{{"HELLO 3", hello3}},
			{{"CLIENT SETINFO lib-name Lettuce", "OK"}, {"CLIENT SETINFO lib-ver 7.0.0.RELEASE/a1b2c3d", "OK"}},
			{{"CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type internal-ip", "ERR unknown subcommand .*"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}, {"PING", "PONG"}, {"DEL k", "1"}},
		},
	},
	{
		name: "Lettuce 7 with a token and a name", tokens: true,
		flights: [][]said{
			{{"HELLO 3 AUTH default " + token + " SETNAME app", hello3}},
			{{"CLIENT SETINFO lib-name Lettuce", "OK"}, {"CLIENT SETINFO lib-ver 7.0.0.RELEASE/a1b2c3d", "OK"}},
			{{"CLIENT MAINT_NOTIFICATIONS on moving-endpoint-type internal-ip", "ERR unknown subcommand .*"}},
			{{"CLIENT GETNAME", `"app"`}, {"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
		},
	},
	{
		// The same, told to speak RESP 2: it begins with PING.
		name: "Lettuce 7 in RESP 2",
		flights: [][]said{
			{{"PING", "PONG"}},
			{{"CLIENT SETNAME app", "OK"}, {"CLIENT SETINFO lib-name Lettuce", "OK"}, {"CLIENT SETINFO lib-ver 7.0.0.RELEASE/a1b2c3d", "OK"}},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
		},
	},
	{
		// StackExchange.Redis 2.8, ServerEndPoint.HandshakeAsync and AutoConfigureAsync: all of it at once. It needs the reply
		// to ECHO, and goes on without what is an error.
		name: "StackExchange.Redis 2.8",
		flights: [][]said{
			{
				{"CLIENT SETNAME web-1(SE.Redis-v2.8.16)", "OK"},
				{"CLIENT SETINFO lib-name SE.Redis", "OK"},
				{"CLIENT SETINFO lib-ver 2.8.16.12844", "OK"},
				{"CLIENT ID", ".*"},
				{"CONFIG GET timeout", `["timeout" "0"]`},
				{"CONFIG GET slave-read-only", ".*"},
				{"CONFIG GET databases", `["databases" "16"]`},
				{"INFO replication", `.*role:master\r\n.*`},
				{"INFO server", `.*redis_version:7.2.0\r\n.*redis_mode:standalone\r\n.*`},
				{"CLUSTER NODES", "ERR This instance has cluster support disabled"},
				{"GET __Booksleeve_TieBreak", "ERR unknown command .*"},
				{"ECHO 0123456789abcdef", `"0123456789abcdef"`},
			},
			{{"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}, {"MULTI", "OK"}, {"CL.THROTTLE k 15 30 3600", "QUEUED"}, {"EXEC", "[[0 16 14 -1 240]]"}},
			{{"PING", "PONG"}, {"INFO replication", ".*role:master.*"}}, // its heartbeat
			{{"QUIT", "OK"}},
		},
	},
	{
		// Its second connection, for subscriptions.
		name: "StackExchange.Redis 2.8, subscriptions",
		flights: [][]said{
			{
				{"CLIENT SETNAME web-1(SE.Redis-v2.8.16)", "OK"},
				{"CLIENT SETINFO lib-name SE.Redis", "OK"},
				{"CLIENT SETINFO lib-ver 2.8.16.12844", "OK"},
				{"CLIENT ID", ".*"},
				{"ECHO 0123456789abcdef", `"0123456789abcdef"`},
				{"SUBSCRIBE __Booksleeve_MasterChanged", "ERR unknown command .*"},
			},
			{{"PING", "PONG"}},
		},
	},
	{
		// The development version of July 2026: HELLO tells what INFO did, the slots come before the nodes.
		name: "StackExchange.Redis 3 with a token", tokens: true,
		flights: [][]said{
			{
				{"AUTH " + token, "OK"},
				{"HELLO 3", hello3},
				{"CLIENT SETNAME web-1(SE.Redis-v3.0.0)", "OK"},
				{"CLIENT SETINFO lib-name SE.Redis", "OK"},
				{"CLIENT SETINFO lib-ver 3.0.0", "OK"},
				{"CLIENT ID", ".*"},
				{"CLIENT MAINT_NOTIFICATIONS ON", "ERR unknown subcommand .*"},
				{"CONFIG GET timeout", `{"timeout": "0"}`},
				{"CONFIG GET replica-read-only", ".*"},
				{"CONFIG GET databases", `{"databases": "16"}`},
				{"INFO replication", `.*role:master\r\n.*`},
				{"INFO server", `.*redis_version:7.2.0\r\n.*`},
				{"CLUSTER SLOTS", "ERR This instance has cluster support disabled"},
				{"CLUSTER NODES", "ERR This instance has cluster support disabled"},
				{"GET __Booksleeve_TieBreak", "ERR unknown command .*"},
				{"ECHO 0123456789abcdef", `"0123456789abcdef"`},
			},
			{{"SUBSCRIBE __Booksleeve_MasterChanged", "ERR unknown command .*"}, {"CL.THROTTLE k 15 30 3600", "[0 16 15 -1 120]"}},
		},
	},
}

// Each of a client's first words is answered as a Redis would, in order, and the connection stays open.
func TestFirstWords(t *testing.T) {
	plain := startInMemory(t)
	guarded := startService(t, memory, tokens(t))
	for _, client := range firstWords {
		t.Run(client.name, func(t *testing.T) {
			s := plain
			if client.tokens {
				s = guarded
			}
			first := dial(t, s)
			if client.tokens {
				first.expect("AUTH "+token, "OK")
			}
			first.expect("DEL k", ".*")
			t.Run("at once", func(t *testing.T) { speak(t, dial(t, s), client.flights) })
			first.expect("DEL k", ".*")
			t.Run("byte for byte", func(t *testing.T) { // as the worst network delivers them
				w := dial(t, s)
				for _, flight := range client.flights {
					for _, word := range flight {
						for _, b := range []byte(testredis.Command(strings.Fields(word.command)...)) {
							w.send(string(b))
						}
						w.compare(word)
					}
				}
			})
		})
	}
}

// speak sends flights, and compares the replies.
func speak(t *testing.T, w *wire, flights [][]said) {
	t.Helper()
	for i, flight := range flights {
		var text strings.Builder
		for _, s := range flight {
			text.WriteString(testredis.Command(strings.Fields(s.command)...))
		}
		w.send(text.String())
		for _, s := range flight {
			w.compare(s)
		}
		if last := flight[len(flight)-1]; last.command == "QUIT" {
			if !w.ended() || i != len(flights)-1 {
				t.Error("QUIT does not end the connection")
			}
		}
	}
}

// Load balancers look whether a Redis is there, and a primary, with lines of words: HAProxy's tcp-check does so.
func TestHealthChecks(t *testing.T) {
	w := dial(t, startInMemory(t))
	for _, step := range []said{{"PING", "PONG"}, {"info replication", `.*role:master\r\n.*`}, {"QUIT", "OK"}} {
		w.send(step.command + "\r\n")
		w.compare(step)
	}
	if !w.ended() {
		t.Error("QUIT does not end the connection")
	}
}
