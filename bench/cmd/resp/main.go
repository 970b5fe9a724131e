// Command resp measures the Redis protocol of "stint serve" on memory beside redis-server, by redis-benchmark: commands per
// second and processor time of each, by turns, each server on a core of its own and the clients on another.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/bench/internal/cli"
	"github.com/stint-go/stint/bench/internal/proc"
)

func main() { cli.Main("resp", run) }

// A contest is what several commands do in pipelines of a length.
type contest struct {
	pipeline int
	runs     []contestant
}

// A contestant is a command to one of the servers.
type contestant struct {
	name    string
	server  int // 0 redis-server, 1 stint
	command []string
	figures []figures
}

type figures struct{ rate, cost float64 } // commands a second, microseconds of the server's processor for each

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("resp", flag.ContinueOnError)
	stint := flags.String("stint", "results/bin/stint", "the stint binary")
	script := flags.String("script", "../service/internal/bench/scripts/redis_rate.lua", "redis_rate's algorithm")
	var rounds, commands, clients, keys int
	cli.Number(flags, &rounds, "rounds", 5, 1, 1000, "how often each is measured, by turns")
	cli.Number(flags, &commands, "commands", 1_000_000, 1000, 1_000_000_000, "of each measurement in pipelines of 64; a tenth without them")
	cli.Number(flags, &clients, "clients", 50, 1, 10_000, "connections")
	cli.Number(flags, &keys, "keys", 100_000, 1, 100_000_000, "random keys")
	if err := cli.Parse(flags, args); err != nil {
		return err
	}
	cpus := proc.CPUs()
	if len(cpus) < 2 {
		return fmt.Errorf("this machine has %d processors; allowed: 2, one for the server and one for redis-benchmark", len(cpus))
	}
	if err := os.Setenv("GOMAXPROCS", "1"); err != nil {
		return err
	}
	server, load := strconv.Itoa(cpus[0]), strconv.Itoa(cpus[1])
	redisServer, err := proc.Start(ctx, nil, "taskset", "-c", server, "redis-server", "--bind", "127.0.0.1", "--port", proc.Port, "--save", "")
	if err != nil {
		return err
	}
	defer func() { _ = redisServer.Stop() }()
	binary, err := exec.LookPath(*stint)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(binary, "/") {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		binary = dir + "/" + binary
	}
	service, err := proc.Start(ctx, nil, "taskset", "-c", server, binary, "serve", "--listen", "127.0.0.1:0", "--admin-listen", "off", "--resp-listen", proc.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = service.Stop() }()
	client := redis.NewClient(&redis.Options{Addr: redisServer.Addr})
	defer func() { _ = client.Close() }()
	text, err := os.ReadFile(*script)
	if err != nil {
		return err
	}
	sha, err := client.ScriptLoad(ctx, string(text)).Result()
	if err != nil {
		return err
	}
	const key = "key:__rand_int__"
	throttle := []string{"CL.THROTTLE", key, "15", "30", "60", "1"}
	contests := []contest{
		{64, []contestant{
			{name: "GET", command: []string{"GET", key}},
			{name: "CL.THROTTLE", server: 1, command: throttle},
			{name: "EVALSHA", command: []string{"EVALSHA", sha, "1", "rate:__rand_int__", "16", "30", "60000000", "1"}},
		}},
		{1, []contestant{
			{name: "INCR", command: []string{"INCR", "count:__rand_int__"}}, {name: "CL.THROTTLE", server: 1, command: throttle},
		}},
	}
	servers := []*proc.Process{redisServer, service}
	options := []string{"-c", strconv.Itoa(clients), "-r", strconv.Itoa(keys), "-q"}
	// All keys are there before the first round.
	for i, fill := range [][]string{{"SET", key, "xxx"}, throttle} {
		if _, err := measure(ctx, load, servers[i], append(options, "-P", "64", "-n", strconv.Itoa(10*keys)), fill, 10*keys); err != nil {
			return err
		}
	}
	for range rounds {
		for i := range contests {
			c := &contests[i]
			n := commands
			if c.pipeline == 1 {
				n /= 10
			}
			for j := range c.runs {
				r := &c.runs[j]
				f, err := measure(ctx, load, servers[r.server], append(options, "-P", strconv.Itoa(c.pipeline), "-n", strconv.Itoa(n)), r.command, n)
				if err != nil {
					return err
				}
				r.figures = append(r.figures, f)
			}
		}
	}
	report(contests, rounds)
	return nil
}

// perSecond is what redis-benchmark -q says at its end.
var perSecond = regexp.MustCompile(`([0-9.]+) requests per second`)

// measure has redis-benchmark send n commands.
func measure(ctx context.Context, cpu string, server *proc.Process, options, command []string, n int) (f figures, err error) {
	_, port, _ := strings.Cut(server.Addr, ":")
	before, err := used(server.ID())
	if err != nil {
		return f, err
	}
	args := slices.Concat([]string{"-c", cpu, "redis-benchmark", "-p", port}, options, command)
	out, err := exec.CommandContext(ctx, "taskset", args...).CombinedOutput()
	if err != nil {
		return f, fmt.Errorf("redis-benchmark: %w: %s", err, out)
	}
	after, err := used(server.ID())
	if err != nil {
		return f, err
	}
	said := perSecond.FindAllStringSubmatch(string(out), -1)
	if len(said) == 0 {
		return f, fmt.Errorf("redis-benchmark says no rate: %s", out)
	}
	f.rate, err = strconv.ParseFloat(said[len(said)-1][1], 64)
	f.cost = float64((after - before).Microseconds()) / float64(n)
	return f, err
}

// used is the processor time of a process, from /proc.
func used(pid int) (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ, as it is everywhere
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	system, other := strconv.Atoi(fields[12])
	return time.Duration(user+system) * tick, errors.Join(err, other)
}

// report prints medians, and what they are of the first command's.
func report(contests []contest, rounds int) {
	fmt.Printf("medians of %d rounds, %d processors\n", rounds, runtime.NumCPU())
	fmt.Printf("%-10s%-14s%14s%10s%20s%10s\n", "pipeline", "command", "per second", "ratio", "us of processor", "ratio")
	for _, c := range contests {
		var first figures
		for i, r := range c.runs {
			m := figures{median(r.figures, func(f figures) float64 { return f.rate }), median(r.figures, func(f figures) float64 { return f.cost })}
			if i == 0 {
				first = m
			}
			fmt.Printf("%-10d%-14s%14.0f%10.2f%20.2f%10.2f\n", c.pipeline, r.name, m.rate, m.rate/first.rate, m.cost, m.cost/first.cost)
		}
	}
}

func median(of []figures, what func(figures) float64) float64 {
	values := make([]float64, len(of))
	for i, f := range of {
		values[i] = what(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}
