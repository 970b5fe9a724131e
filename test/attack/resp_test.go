package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// pipeline is a command so many times.
func pipeline(n int, args ...string) string { return strings.Repeat(testredis.Command(args...), n) }

// mostCommanded is how much memory the service may have while its listener of the Redis protocol is attacked.
const mostCommanded = 512 << 20

// TestRedisProtocol attacks the listener of the Redis protocol, from connections that send without waiting. A client with
// another address, which waits for each answer, is answered, and the service's memory stays bounded.
func TestRedisProtocol(t *testing.T) {
	// What fits into the memory for a command, and announces more.
	full := "*3\r\n$16370\r\n" + strings.Repeat("a", 16370) + "\r\n"
	thousand := append([]string{"DEL"}, strings.Fields(strings.Repeat("attacker ", 1000))...)
	most := append([]string{"DEL"}, strings.Fields(strings.Repeat("attacker ", 1<<14-1))...)
	patterns := append([]string{"CONFIG", "GET"}, strings.Fields(strings.Repeat("*a*a*a*a*b ", 3000))...)
	const script = "return redis.call('CL.THROTTLE', KEYS[1], ARGV[1], ARGV[2], ARGV[3])"
	sum := strings.Repeat("0a", 20)
	for _, attack := range []struct {
		name        string
		connections int
		text        string
		how         respAttackers
	}{
		{"throttles", connections, pipeline(1000, "CL.THROTTLE", "attacker", "9", "1", "86400"), respAttackers{}},
		{"throttles of other keys", connections, pipeline(1000, "CL.THROTTLE", "attacker"+eachOther, "9", "1", "86400"), respAttackers{}},
		{"throttles by other parameters", connections, pipeline(100, "CL.THROTTLE", "attacker", "9", "1"+eachOther, "86400"), respAttackers{}},
		{"checks", connections, pipeline(1000, "STINT.CHECK", "recorded", "attacker"), respAttackers{}},
		{"evaluations", connections, pipeline(100, "STINT.EVALUATE", "GET", "/login", "ip", "10.6.6.6"), respAttackers{}},
		{"reserves that nobody ends", connections, pipeline(100, "STINT.RESERVE", eachOther, "innocent", "attacker"+eachOther, "1", "1h"), respAttackers{}},
		{"commits of nothing", connections, pipeline(100, "STINT.COMMIT", eachOther, "1", "innocent", "attacker"), respAttackers{}},
		{"resets", connections, pipeline(1, thousand...), respAttackers{}},
		{"resets of many keys", connections, pipeline(1, most...), respAttackers{}},
		{"settings by many patterns", connections, pipeline(1, patterns...), respAttackers{}},
		{"settings by one long pattern", connections, pipeline(1, "CONFIG", "GET", strings.Repeat("*a", 100_000)), respAttackers{}},
		{"scripts", connections, pipeline(1000, "EVAL", script, "1", "attacker", "9", "1", "86400"), respAttackers{}},
		{"many scripts", connections, pipeline(100, "EVAL", "return redis.call('CL.THROTTLE', '"+eachOther+"', 9, 1, 86400)", "0"), respAttackers{}},
		{"many scripts that are loaded", connections, pipeline(100, "SCRIPT", "LOAD", "return redis.call('CL.THROTTLE', '"+eachOther+"', 9, 1, 86400)"), respAttackers{}},
		{"long scripts", connections, pipeline(1, "EVAL", script+strings.Repeat(" ", 1_000_000), "1", "attacker", "9", "1", "86400"), respAttackers{}},
		{"scripts within scripts", connections, pipeline(100, "EVAL", "return redis.call('CL.THROTTLE', "+strings.Repeat("tonumber(", 100)+"1", "0"), respAttackers{}},
		{"questions for scripts", connections, pipeline(1, append([]string{"SCRIPT", "EXISTS"}, strings.Fields(strings.Repeat(sum+" ", 16_000))...)...), respAttackers{}},
		{"pings", connections, strings.Repeat("PING\n", 3000), respAttackers{}},
		{"descriptions", connections, strings.Repeat("COMMAND\n", 2000), respAttackers{}},
		{"transactions", connections, "MULTI\n" + strings.Repeat("COMMAND\n", 8000) + "EXEC\n", respAttackers{}},
		{"transactions that nobody ends", 1000, "MULTI\n" + strings.Repeat("PING\n", 13_000), respAttackers{once: true}},
		{"answers that nobody reads", 500, strings.Repeat("STINT.CHECK recorded attacker\n", 1000), respAttackers{deaf: true}},
		{"transactions that nobody reads", 500, "MULTI\n" + strings.Repeat("COMMAND\n", 8000) + "EXEC\n", respAttackers{deaf: true}},
		{"half a command", connections, full, respAttackers{once: true}},
		{"many arguments", 1000, "*1024\r\n" + strings.Repeat("$1\r\na\r\n", 1023), respAttackers{once: true}},
		{"wrong tokens", connections, pipeline(1000, "AUTH", "nobody-"+eachOther), respAttackers{stranger: true}},
		{"no token", connections, pipeline(1000, "CL.THROTTLE", "attacker", "9", "1", "86400"), respAttackers{stranger: true}},
		{"requests of HTTP", connections, get("/", ""), respAttackers{stranger: true}},
		{"long announcements", connections, "*2\r\n$4\r\nECHO\r\n$536870912\r\n", respAttackers{stranger: true}},
	} {
		t.Run(attack.name, func(t *testing.T) {
			s := startService(t)
			innocent := s.startCommands(t)
			var made commanded
			end := attackBy(t, attack.connections, 4, func(ctx context.Context, from net.Addr) {
				over(ctx, from, s.resp, func(conn net.Conn) { made.command(ctx, conn, attack.text, attack.how) })
			})
			await(t, "the attack has begun", func() bool { return made.sent.Load() > 0 })
			innocent.await(t)
			<-time.After(*lasting) // the length of the experiment, not a wait for something
			memory := s.resident(t, "VmHWM")
			checks := innocent.stop()
			end()
			t.Logf("attackers: %d connections, %d MiB sent, %d MiB answered, %d admitted; the service had %d MiB",
				made.connections.Load(), made.sent.Load()>>20, made.answered.Load()>>20, made.admitted.Load(), memory>>20)
			t.Logf("innocent:  %s", checks)
			if made.admitted.Load() > attackersLimit && !strings.Contains(attack.text, eachOther) {
				t.Errorf("the attackers were admitted %d times, at most %d are right", made.admitted.Load(), attackersLimit)
			}
			if memory > mostCommanded {
				t.Errorf("the service had %d MiB", memory>>20)
			}
			checks.expect(t)
			if checks.failures > 0 {
				t.Errorf("%d of the innocent client's commands came to nothing", checks.failures)
			}
			if log := s.Log(); strings.Contains(log, "unreachable") || strings.Contains(log, "panic") {
				t.Errorf("the log:\n%s", log)
			} else if lines := strings.Count(log, "\n"); lines > 60+20*int(lasting.Seconds()) {
				t.Errorf("%d lines of the log", lines)
			}
		})
	}
}

// respAttackers says how attackers use their connections. The zero value shows a token, sends its text again and again, and
// reads whatever is answered.
type respAttackers struct {
	stranger bool // without a token
	deaf     bool // reads nothing
	once     bool // sends its text once, and keeps the connection
}

// commanded is what attackers brought about.
type commanded struct{ connections, sent, answered, admitted, number atomic.Int64 } // bytes sent and answered

// command attacks over one connection, until it ends.
func (made *commanded) command(ctx context.Context, conn net.Conn, text string, how respAttackers) {
	made.connections.Add(1)
	if tcp, ok := conn.(*net.TCPConn); ok && how.deaf { // the less the system keeps, the more the service has to
		_ = tcp.SetReadBuffer(4 << 10)
		_ = tcp.SetWriteBuffer(16 << 10)
	}
	var err error
	if !how.stranger {
		if _, err = io.WriteString(conn, testredis.Command("AUTH", token)); err != nil {
			return
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		if !how.deaf {
			made.read(conn)
		}
	}()
	parts := strings.Split(text, eachOther)
	for err == nil && ctx.Err() == nil {
		var numbered strings.Builder
		for i, part := range parts {
			if i > 0 {
				fmt.Fprintf(&numbered, "%08d", made.number.Add(1)%100_000_000)
			}
			numbered.WriteString(part)
		}
		var n int
		n, err = io.WriteString(conn, numbered.String())
		made.sent.Add(int64(n))
		if how.once {
			select {
			case <-read:
			case <-ctx.Done():
			}
			break
		}
	}
	_ = conn.Close()
	<-read
}

// read counts what is answered, and of CL.THROTTLE what is admitted.
func (made *commanded) read(from io.Reader) {
	const admitted = "*5\r\n:0\r\n"
	buffer := make([]byte, 64<<10)
	for kept := 0; ; {
		n, err := from.Read(buffer[kept:])
		if err != nil {
			return
		}
		made.answered.Add(int64(n))
		n += kept
		made.admitted.Add(int64(bytes.Count(buffer[:n], []byte(admitted))))
		kept = copy(buffer, buffer[max(0, n-len(admitted)+1):n]) // the beginning of another, perhaps
	}
}

// startCommands starts a client of the Redis protocol that waits for each answer.
func (s *service) startCommands(t *testing.T) *innocent {
	t.Helper()
	i, ctx := newInnocent(t)
	from := net.Dialer{LocalAddr: innocentAddress}
	conn := must.Get(from.DialContext(ctx, "tcp", s.resp))(t)
	t.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	must.Get(io.WriteString(conn, testredis.Command("AUTH", token)))(t)
	must.Get(in.ReadString('\n'))(t)
	i.work.Go(func() {
		pace := time.NewTicker(time.Second / perSecond)
		defer pace.Stop()
		for ; ctx.Err() == nil; <-pace.C {
			if !i.command(conn, in) {
				return
			}
		}
	})
	return i
}

// command makes a check by a command, and reports whether it was answered.
func (i *innocent) command(conn net.Conn, in *bufio.Reader) bool {
	begun := time.Now()
	err := conn.SetDeadline(begun.Add(patience))
	if err == nil {
		_, err = io.WriteString(conn, testredis.Command("STINT.CHECK", "innocent", "innocent"))
	}
	said := map[string]string{}
	var line string
	if err == nil {
		line, err = in.ReadString('\n')
	}
	if n, isArray := strings.CutPrefix(line, "*"); err == nil && isArray {
		var values []string
		for range number(n) {
			var value string
			if value, err = readValue(in); err != nil {
				break
			}
			values = append(values, value)
		}
		for at := 0; at+1 < len(values); at += 2 {
			said[values[at]] = values[at+1]
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.checks.asked++
	i.checks.took = append(i.checks.took, time.Since(begun))
	switch {
	case err != nil:
		i.checks.failures++
		return false
	case strings.HasPrefix(line, "-"):
		i.checks.statuses[503]++
	case said["degraded"] == "1":
		i.checks.statuses[200]++
		i.checks.degraded++
	case said["allowed"] == "1":
		i.checks.statuses[200]++
		i.checks.remaining = append(i.checks.remaining, int64(number(said["remaining"])))
	}
	return true
}

// readValue reads an integer or a string.
func readValue(in *bufio.Reader) (string, error) {
	line, err := in.ReadString('\n')
	if size, isString := strings.CutPrefix(line, "$"); err == nil && isString {
		text := make([]byte, number(size)+2)
		_, err = io.ReadFull(in, text)
		return string(text[:len(text)-2]), err
	}
	return strings.TrimSpace(strings.TrimPrefix(line, ":")), err
}

// number is a number that the service sent.
func number(text string) int {
	n, _ := strconv.Atoi(strings.TrimSpace(text))
	return n
}
