package redisstore

import (
	"strings"

	"github.com/redis/rueidis"
)

// command is what is sent to a server: a script with its keys and arguments, or any
// other command, which replies with a string, as its arguments. It is put together for
// every server that it is sent to, since rueidis uses what it was given again.
type command struct {
	script *Script // nil for another command
	whole  bool    // send the script's source, not its digest
	keys   []string
	args   []string
}

func (c command) build(b rueidis.Builder) rueidis.Completed {
	switch {
	case c.script == nil:
		return b.Arbitrary(c.args[0]).Args(c.args[1:]...).Build()
	case c.whole:
		return b.Eval().Script(c.script.Source).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	default:
		return b.Evalsha().Sha1(c.script.Digest).Numkeys(int64(len(c.keys))).Key(c.keys...).Arg(c.args...).Build()
	}
}

// eval runs a script by sending a command: by its digest, and by its source if the
// server does not know that, in which case it has not run.
func eval(script *Script, keys, args []string, send func(command) rueidis.RedisResult) (string, error) {
	c := command{script: script, keys: keys, args: args}
	reply, err := send(c).ToString()
	if failure, replied := rueidis.IsRedisErr(err); replied && failure.IsNoScript() {
		c.whole = true
		reply, err = send(c).ToString()
	}
	return reply, err
}

// textOf is the reply to a command, "" for nil.
func textOf(result rueidis.RedisResult) (string, error) {
	reply, err := result.ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return reply, err
}

// readOnly reports whether a server refused a write because it is a replica. Redis 6
// wraps the error of a script.
func readOnly(err error) bool {
	_, replied := rueidis.IsRedisErr(err)
	return replied && strings.Contains(err.Error(), "READONLY ")
}
