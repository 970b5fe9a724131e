package main

import (
	"strings"
	"testing"
)

const redisSample = `BenchmarkRedis/load=hot/callers=512/impl=stint/check=books 	 1 	 1 ns/op 	 400000 decisions/s 	 3200000 decisions/cpu-s 	 0 wrong 	 0 errors
BenchmarkRedis/load=hot/callers=512/impl=redis_rate/check=books 	 1 	 1 ns/op 	 10000 decisions/s 	 12000 decisions/cpu-s 	 0 wrong 	 2 errors
BenchmarkRedis/load=zipf/callers=512/impl=stint/check=books 	 1 	 1 ns/op 	 200000 decisions/s 	 0 wrong 	 0 errors
BenchmarkRedis/load=zipf/callers=512/impl=stint/check=books 	 1 	 1 ns/op 	 200000 decisions/s 	 3 wrong 	 0 errors
BenchmarkRedis/load=zipf/callers=512/impl=redis_rate/check=books 	 1 	 1 ns/op 	 10000 decisions/s 	 0 wrong 	 0 errors
BenchmarkRedis/load=uniform/callers=64/impl=stint/check=books 	 1 	 1 ns/op 	 200000 decisions/s 	 0.002 p99-sec 	 0 wrong 	 0 errors
BenchmarkRedis/load=uniform/callers=64/impl=redis_rate/check=books 	 1 	 1 ns/op 	 200000 decisions/s 	 0.003 p99-sec 	 0 wrong 	 0 errors
BenchmarkRedis/load=denied/callers=512/impl=stint/check=none 	 1 	 1 ns/op 	 200000 decisions/s 	 3.5 commands/s 	 0 wrong 	 0 errors
BenchmarkRedisCluster/primaries=1/load=uniform/callers=64/impl=stint/check=books 	 1 	 1 ns/op 	 9000 decisions/s 	 60000 decisions/cpu-s 	 0 wrong
BenchmarkRedisCluster/primaries=3/load=uniform/callers=64/impl=stint/check=books 	 1 	 1 ns/op 	 9000 decisions/s 	 40000 decisions/cpu-s 	 0 wrong
BenchmarkRedisCluster/primaries=3/load=uniform/callers=64/impl=redis_rate/check=books 	 1 	 1 ns/op 	 6000 decisions/s 	 20000 decisions/cpu-s 	 0 wrong
BenchmarkRedisNetwork/delay=5ms/load=uniform/callers=64/impl=stint/check=books 	 1 	 1 ns/op 	 6000 decisions/s 	 0.010 p99-sec 	 0 wrong
BenchmarkRedisNetwork/delay=5ms/load=uniform/callers=64/impl=redis_rate/check=books 	 1 	 1 ns/op 	 12000 decisions/s 	 0.008 p99-sec 	 0 wrong
BenchmarkRedisNetwork/delay=50ms/load=uniform/callers=64/impl=stint/check=books 	 1 	 1 ns/op 	 1200 decisions/s 	 0.060 p99-sec 	 0 wrong
BenchmarkRedisMemory/state=token_bucket/generations=1/clients=1000000/impl=stint 	 1 	 1 ns/op 	 90 B/client
BenchmarkRedisMemory/state=sliding_log/entries=1000/window=1m/impl=stint 	 1 	 1 ns/op 	 5 B/entry
BenchmarkRedisMemory/state=sliding_log/entries=1000/window=1h/impl=stint 	 1 	 1 ns/op 	 13 B/entry
`

func TestRedisIsComparedWithRedisRate(t *testing.T) {
	table := tableOf(t, "redis", "redis.txt", redisSample)
	expectLines(t, table, map[string][]string{
		"x redis_rate: one hot key, 512 callers":                    {">= 20x", ">= 30x", " 40x", " ok ", "400000/s, redis_rate 10000/s"},
		"x redis_rate: Zipf 1.1 over 100,000 keys, 512 callers":     {" 20x", "WRONG"},
		"x redis_rate: three limits on three clients, 512 callers":  {"not measured"},
		"x redis_rate's p99: 100,000 uniform keys, 64 callers":      {"<= 0.50x", " 0.67x", "MISSED", "2.00 ms, redis_rate 3.00 ms"},
		"Redis commands per second under that flood":                {"<= 10", " 3.50", " ok "},
		"Redis bytes per client, token bucket, within a generation": {"<= 100 B", "<= 80 B", " 90 B", " ok "},
		"Redis bytes per client, token bucket, across a turn":       {"not measured"},
		"Redis bytes per entry of a sliding log":                    {" 13 B", "MISSED"},
		"zipf     512      stint":                                   {"20x", "books", "WRONG"},
		"hot      512      stint ":                                  {" 40x ", " 0.312 ", "books", "ok"},
		"hot      512      redis_rate":                              {" 1x ", " 83.3 ", " 2 ", "books", "ok"},
	})
	if strings.Contains(table, "heap per key") {
		t.Error("other parts are printed too")
	}
}

func TestClustersAndNetworksAreComparedWithRedisRate(t *testing.T) {
	for part, lines := range map[string]map[string][]string{
		"cluster": {
			"Redis CPU per decision, 3 primaries, of that with 1":               {"<= 1.25x", " 1.50x", "MISSED", "40000 per CPU second, with 1 60000"},
			"Redis CPU per decision, 2 primaries, of that with 1":               {"not measured"},
			"x redis_rate: per second of Redis's CPU, 3 primaries, 64 callers":  {">= 1x", " 2x", " ok ", "40000/s, redis_rate 20000/s"},
			"uniform, primaries=3  64       stint       9000         1.50x":     {" 25 ", "books", "ok"},
			"uniform, primaries=3  64       redis_rate  6000         1x       ": {" 50 "},
		},
		"network": {
			"x redis_rate: 5 ms of network delay, 64 callers":       {">= 0.90x", " 0.50x", "MISSED", "6000/s, redis_rate 12000/s"},
			"x redis_rate's p99: 5 ms of network delay, 64 callers": {"<= 1.10x", " 1.25x", "MISSED", "10.00 ms, redis_rate 8.00 ms"},
			"x redis_rate: 1 ms of network delay, 512 callers":      {"not measured"},
			"uniform, delay=5ms   64       stint":                   {"6000"},
			"uniform, delay=50ms  64       stint":                   {"1200"},
		},
	} {
		table := tableOf(t, part, "redis.txt", redisSample)
		expectLines(t, table, lines)
		if a, b := strings.Index(table, "delay=5ms "), strings.Index(table, "delay=50ms"); a > b {
			t.Error("50ms comes before 5ms")
		}
	}
}

func TestAnUnknownPartIsRefused(t *testing.T) {
	if _, err := run(&strings.Builder{}, "mongo", t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "allowed: all, cluster") {
		t.Errorf("error %v", err)
	}
}
