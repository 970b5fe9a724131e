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

// literal is a script that names its key and its parameters.
const literal = "return redis.call('CL.THROTTLE', 'user:1', '15', '30', '3600')"

// command is a command that is written as words with spaces between them, of which some stand for a script.
func command(text string) string {
	words := strings.Fields(text)
	for i := range words {
		words[i] = strings.NewReplacer("$SCRIPT", oneLine, "$LITERAL", literal).Replace(words[i])
	}
	return testredis.Command(words...)
}

// What clients on the JVM send for a script, and the replies that each waits for.
func TestScriptsOfClients(t *testing.T) {
	t.Parallel()
	for _, client := range talksOf(t, "scripts.txt") {
		t.Run(client.name, func(t *testing.T) { speak(t, dial(t, startInMemory(t)), client.flights) })
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
		err := client.Eval(ctx, "return redis.call('GET', KEYS[1])", []string{"k"}).Err()
		expectError(t, "another script", err, ".*allowed: return redis.call('CL.THROTTLE'.*")
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
		asked := []any{"EVAL", lua + text}
		for _, arg := range args {
			asked = append(asked, arg)
		}
		want, err := shared.Do(asked...)
		if err != nil {
			t.Errorf("Redis: %s: %v", text, err)
			continue
		}
		w.send(testredis.Command(append([]string{"EVAL", text}, args...)...))
		w.compare(said{text, strings.ReplaceAll(fmt.Sprint(want), "  ", " ")})
	}
}
