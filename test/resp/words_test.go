package resp_test

import (
	"strings"
	"testing"
)

// The reply to HELLO in each version of the protocol.
const (
	hello2 = `["server" "stint" "version" "7.2.0" "proto" 2 "id" .* "mode" "standalone" "role" "master" "modules" []]`
	hello3 = `{"server": "stint" "version": "7.2.0" "proto": 3 "id": .* "mode": "standalone" "role": "master" "modules": []}`
)

// compare reads the reply to a command.
func (w *wire) compare(s said) {
	w.t.Helper()
	if got := w.reply(); !matches(s.reply, got) {
		w.t.Errorf("%s\n got %s\nwant %s", s.command, got, s.reply)
	}
}

// Each of a client's first words is answered as a Redis would, in order, and the connection stays open.
func TestFirstWords(t *testing.T) {
	plain := startInMemory(t)
	guarded := startService(t, memory, tokens(t))
	for _, client := range talksOf(t, "first_words.txt") {
		t.Run(client.name, func(t *testing.T) {
			s, needsToken := plain, strings.Contains(client.name, "with a token")
			if needsToken {
				s = guarded
			}
			first := dial(t, s)
			if needsToken {
				first.expect("AUTH "+token, "OK")
			}
			first.expect("DEL k", ".*")
			t.Run("at once", func(t *testing.T) { speak(t, dial(t, s), client.flights) })
			first.expect("DEL k", ".*")
			t.Run("byte for byte", func(t *testing.T) { // as the worst network delivers them
				w := dial(t, s)
				for _, flight := range client.flights {
					for _, word := range flight {
						for _, b := range []byte(command(word.command)) {
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
			text.WriteString(command(s.command))
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
