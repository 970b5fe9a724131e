package served

import (
	"flag"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint/bench/internal/proc"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/internal/testredis"
)

var (
	commands = flag.Int("commands", 100_000, "`number` of commands of each measurement in pipelines of 64; a tenth without them")
	respKeys = flag.Int("resp-keys", 1000, "`number` of random keys")
)

// BenchmarkRESP compares the Redis protocol of `stint serve` on memory with redis-server, by redis-benchmark: each server on
// a core of its own, and redis-benchmark on another, where there are two.
func BenchmarkRESP(b *testing.B) {
	redis, addr := testredis.Start(b), testport.Address(b)
	info := must.Get(redis.Info("server"))(b)
	redisID, _ := strconv.Atoi(info["process_id"])
	stintID := serve(b, "", "--resp-listen", addr, []string{"GOMAXPROCS=1"})
	if cpus := proc.CPUs(); len(cpus) > 1 {
		proc.Pin(b, redisID, cpus[0])
		proc.Pin(b, stintID, cpus[0])
		clients = []string{"taskset", "-c", strconv.Itoa(cpus[1])}
	}
	text := must.Get(os.ReadFile("../../service/internal/bench/scripts/redis_rate.lua"))(b)
	sha := must.Get(redis.Do("SCRIPT", "LOAD", text))(b)
	const throttle = "CL.THROTTLE key:__rand_int__ 15 30 60 1"
	of := func(name, addr string, pid, pipeline int, command string) entrant {
		return entrant{name, pid, true, func(tb testing.TB) figures { return redisBenchmark(tb, addr, pipeline, command) }}
	}
	// All keys are there before anything counts.
	redisBenchmark(b, redis.Addr(), 64, "SET key:__rand_int__ xxx")
	redisBenchmark(b, addr, 64, throttle)
	b.Run("pipeline=64", func(b *testing.B) {
		race(
			b,
			of("redis_get", redis.Addr(), redisID, 64, "GET key:__rand_int__"),
			of("stint_throttle", addr, stintID, 64, throttle),
			of("redis_evalsha", redis.Addr(), redisID, 64, "EVALSHA "+sha.(string)+" 1 rate:__rand_int__ 16 30 60000000 1"),
		)
	})
	b.Run("pipeline=1", func(b *testing.B) {
		race(
			b,
			of("redis_incr", redis.Addr(), redisID, 1, "INCR count:__rand_int__"),
			of("stint_throttle", addr, stintID, 1, throttle),
		)
	})
}

// clients is what begins the command of redis-benchmark.
var clients []string

// perSecond is what redis-benchmark -q says at its end.
var perSecond = regexp.MustCompile(`([0-9.]+) requests per second`)

// redisBenchmark sends commands, in which __rand_int__ is one of the keys.
func redisBenchmark(tb testing.TB, addr string, pipeline int, command string) (f figures) {
	tb.Helper()
	_, port, _ := strings.Cut(addr, ":")
	n := *commands
	if pipeline == 1 {
		n /= 10
	}
	args := append(clients[:len(clients):len(clients)], "redis-benchmark", "-p", port, "-c", "50", "-r", strconv.Itoa(*respKeys), "-q",
		"-P", strconv.Itoa(pipeline), "-n", strconv.Itoa(n))
	args = append(args, strings.Fields(command)...)
	out, err := exec.CommandContext(tb.Context(), args[0], args[1:]...).CombinedOutput()
	said := perSecond.FindAllStringSubmatch(string(out), -1)
	if err != nil || len(said) == 0 {
		tb.Fatalf("redis-benchmark: %v: %s", err, out)
	}
	f.Decisions = int64(n)
	f.PerSecond, _ = strconv.ParseFloat(said[len(said)-1][1], 64) // which it matches
	return f
}
