package resp_test

import (
	"crypto/sha1" //nolint:gosec // G505: the protocol names scripts by it
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/testredis"
)

// oneLine is the script that most programs on the JVM send, as their clients have no command for CL.THROTTLE.
const oneLine = "return redis.call('cl.throttle',KEYS[1],ARGV[1],ARGV[2],ARGV[3],ARGV[4])"

// digest is the SHA-1 of a script, in hexadecimal digits.
func digest(text string) string {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // G401: the protocol's
	return hex.EncodeToString(sum[:])
}

// What clients on the JVM send for a script, by their sources, and the replies that each waits for.
func TestScriptsOfClients(t *testing.T) {
	t.Parallel()
	type step struct {
		command []string
		reply   string
	}
	sha := digest(oneLine)
	first, second := "[0 16 15 -1 120]", "[0 16 14 -1 240]"
	with := func(words ...string) []string { return append(words, "1", "user:1", "15", "30", "3600", "1") }
	for name, flights := range map[string][][]step{
		// spring-data-redis 3.5, DefaultScriptExecutor: EVALSHA first, EVAL if the error has the word NOSCRIPT. In a pipeline or
		// a transaction it sends EVAL alone. LettuceConnectionFactory selects the database of its configuration when it connects.
		"Spring Data Redis": {
			{{[]string{"HELLO", "3"}, hello3}},
			{{[]string{"SELECT", "2"}, "OK"}, {[]string{"CLIENT", "SETINFO", "lib-name", "Lettuce"}, "OK"}},
			{{with("EVALSHA", sha), "NOSCRIPT No matching script.*"}},
			{{with("EVAL", oneLine), first}},
			{{with("EVALSHA", sha), second}},
			{{with("EVAL", oneLine), "[0 16 13 -1 360]"}, {with("EVAL", oneLine), "[0 16 12 -1 480]"}},
			{
				{[]string{"MULTI"}, "OK"},
				{with("EVAL", oneLine), "QUEUED"},
				{[]string{"EXEC"}, "[[0 16 11 -1 600]]"},
			},
		},
		// redis/lettuce 7.0, RedisCommandBuilder: eval, digest, scriptLoad, scriptExists, evalsha, scriptFlush. Its numbers are texts.
		"Lettuce": {
			{{with("EVAL", oneLine), first}},
			{{[]string{"SCRIPT", "LOAD", oneLine}, `"` + sha + `"`}, {[]string{"SCRIPT", "EXISTS", sha, digest("")}, "[1 0]"}},
			{{with("EVALSHA", sha), second}, {with("EVALSHA", sha), "[0 16 13 -1 360]"}},
			{{[]string{"SCRIPT", "FLUSH", "SYNC"}, "OK"}, {with("EVALSHA", sha), "NOSCRIPT .*"}},
		},
		// redis/jedis 7.0, CommandObjects: eval(script, keyCount, params...), eval(script), scriptLoad(script) and evalsha.
		"Jedis": {
			{{[]string{"SELECT", "3"}, "OK"}},
			{{[]string{"SCRIPT", "LOAD", oneLine}, `"` + sha + `"`}},
			{{with("EVALSHA", sha), first}},
			{{[]string{"EVAL", "return redis.call('CL.THROTTLE', 'user:1', '15', '30', '3600')", "0"}, second}},
			{{with("EVAL", oneLine+"[1];"), "0"}},
			{{[]string{"SCRIPT", "FLUSH"}, "OK"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := dial(t, startInMemory(t))
			for _, flight := range flights {
				var text strings.Builder
				for _, step := range flight {
					text.WriteString(testredis.Command(step.command...))
				}
				w.send(text.String())
				for _, step := range flight {
					w.compare(said{strings.Join(step.command, " "), step.reply})
				}
			}
		})
	}
}

// go-redis's Script sends EVALSHA, and EVAL where that is not known.
func TestScriptOfGoRedis(t *testing.T) {
	t.Parallel()
	s := startInMemory(t)
	protocols(t, func(t *testing.T, protocol int) {
		client, ctx := goRedis(t, s, protocol, func(o *redis.Options) { o.DB = protocol }), t.Context()
		script := redis.NewScript(oneLine)
		for left := 15; left > 12; left-- {
			answer, err := script.Run(ctx, client, []string{"k"}, 15, 30, 3600, 1).Result()
			expectThrottle(t, "a script", answer, err, 0, 16, int64(left), -1, int64(16-left)*120)
		}
		if err := client.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"k"}).Err(); err == nil || !strings.Contains(err.Error(), "allowed: return redis.call('CL.THROTTLE'") {
			t.Errorf("another script: %v", err)
		}
	})
}

// What a script means is what it means in Redis: there redis.call is a function of Lua here, which computes the five
// integers of a key without a state.
func TestScriptsMeanTheSame(t *testing.T) {
	t.Parallel()
	const lua = `local function cell(name, key, burst, count, period, quantity)
		if string.upper(name) ~= 'CL.THROTTLE' or key == nil then error('not the command') end
		local n = quantity or 1
		return {0, burst + 1, burst + 1 - n, -1, period / count * n}
	end
	local redis = {call = cell, pcall = cell}
	`
	w := dial(t, startInMemory(t))
	for i, text := range []string{
		oneLine,
		`return redis.call("CL.THROTTLE", KEYS[1], ARGV[1], ARGV[2], ARGV[3])`,
		"return redis.pcall ( 'CL.THROTTLE' ,\n\tKEYS [ 1 ],tonumber(ARGV[1]), tonumber ( ARGV[2] ) ,ARGV[3] , '2' ) ;",
		"return redis.call('Cl.Throttle', KEYS[2], 15, 030, \"3600\", 3)[3]",
		"return {redis.call('CL.THROTTLE', KEYS[2], ARGV[1], ARGV[2], ARGV[3])}",
		"return{redis.call('CL.THROTTLE', ARGV[4], ARGV[1], ARGV[2], ARGV[3])[2]};",
		"return redis.call('CL.THROTTLE', KEYS[01], tonumber(tonumber(15)), tonumber('30'), ARGV[3], ARGV[4])[5]",
	} {
		args := []string{"2", fmt.Sprint("one-", i), fmt.Sprint("two-", i), "15", "30", "3600", "1"}
		command := []any{"EVAL", lua + text}
		for _, arg := range args {
			command = append(command, arg)
		}
		want, err := shared.Do(command...)
		if err != nil {
			t.Errorf("Redis: %s: %v", text, err)
			continue
		}
		w.send(testredis.Command(append([]string{"EVAL", text}, args...)...))
		w.compare(said{text, strings.ReplaceAll(fmt.Sprint(want), "  ", " ")})
	}
}
