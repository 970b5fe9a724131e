package resp_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// A said is a command that a client sends, and the reply that it is to get.
type said struct{ command, reply string }

// A talk is what one client says. What it sends at once, before it waits for the replies, is a flight.
type talk struct {
	name    string
	flights [][]said
}

// talksOf reads the conversations of a file in testdata:
//
//	# a comment
//	== the conversation's name
//	PING => PONG               a command and the pattern of its reply
//	                           an empty line is between two flights
//	HELLO 3 => $HELLO3         the reply to it as hello3 has it; likewise $HELLO2, $TOKEN for the token, and digests
func talksOf(t testing.TB, file string) (talks []talk) {
	t.Helper()
	words := strings.NewReplacer("$TOKEN", token, "$HELLO2", hello2, "$HELLO3", hello3, "$SHA", digest(oneLine), "$NO_SHA", digest(""))
	apart := true
	for line := range strings.SplitSeq(string(must.Get(os.ReadFile("testdata/"+file))(t)), "\n") {
		command, reply, isSaid := strings.Cut(line, " => ")
		name, isName := strings.CutPrefix(line, "== ")
		switch last := len(talks) - 1; {
		case isName:
			talks, apart = append(talks, talk{name: name}), true
		case line == "":
			apart = true
		case line[0] == '#':
		case !isSaid || last < 0:
			t.Fatalf("%s: %q is no command with its reply", file, line)
		default:
			if apart {
				talks[last].flights, apart = append(talks[last].flights, nil), false
			}
			flight := &talks[last].flights[len(talks[last].flights)-1]
			*flight = append(*flight, said{words.Replace(command), words.Replace(reply)})
		}
	}
	return talks
}

// stepsOf are the steps of the one flight of a conversation.
func stepsOf(t testing.TB, file, name string) []said {
	t.Helper()
	for _, talk := range talksOf(t, file) {
		if talk.name == name && len(talk.flights) == 1 {
			return talk.flights[0]
		}
	}
	t.Fatalf("%s has no conversation of one flight %q", file, name)
	return nil
}
