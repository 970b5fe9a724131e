package resp_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/testredis"
)

// A guarded service needs a token and speaks TLS.
func startGuarded(t *testing.T) (s *service, caFile string) {
	t.Helper()
	authority := testredis.NewAuthority(t)
	configuration, _ := secure(t, authority)
	return startService(t, memory, configuration+tokens(t)+limits), authority.CAFile
}

// cli runs redis-cli on some input.
func cli(t *testing.T, s *service, input string, args ...string) string {
	t.Helper()
	return output(t, input, "redis-cli", append([]string{"-p", s.port()}, args...)...)
}

func expectText(t *testing.T, what, got, want string) {
	t.Helper()
	if !matches(want, strings.TrimSpace(got)) {
		t.Errorf("%s\n got %q\nwant %q", what, got, want)
	}
}

func TestRedisCLI(t *testing.T) {
	s := startService(t, memory, limits)
	expectText(t, "one command", cli(t, s, "", "CL.THROTTLE", "one", "15", "30", "60"), "0\n16\n15\n-1\n2")
	expectText(t, "one command in RESP 3", cli(t, s, "", "-3", "CL.THROTTLE", "three", "15", "30", "60"), "0\n16\n15\n-1\n2")
	expectText(t, "as a terminal shows it", cli(t, s, "", "--no-raw", "CL.THROTTLE", "shown", "15", "30", "60"),
		"1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2")
	expectText(t, "database 0, three times", cli(t, s, "", "-n", "0", "-r", "3", "PING"), "PONG\nPONG\nPONG")
	expectText(t, "an argument from the input", cli(t, s, "read", "-x", "ECHO"), "read")
	expectText(t, "an error", cli(t, s, "", "CL.THROTTLE", "one", "15", "30", "long"), `ERR period is "long"; allowed: an integer from 1 to 31622400`)
	line := regexp.MustCompile(`\d+(\.\d+)?[KM] +1 +0 +\d+ \(\+0\) +\d+`)
	if text := output(t, "", "script", "-qec", "timeout 1 redis-cli -p "+s.port()+" --stat; true", "/dev/null"); !line.MatchString(text) {
		t.Errorf("--stat: %s", text)
	}
	expectText(t, "CSV", cli(t, s, "", "--csv", "CONFIG", "GET", "databases"), `"databases","16"`)

	lines := "CL.THROTTLE lines 4 1 3600\nMULTI\nCL.THROTTLE lines 4 1 3600\nTTL lines\nEXEC\nDEL lines\nEXISTS lines\n"
	for _, protocol := range []string{"-2", "-3"} {
		expectText(t, "many commands", cli(t, s, lines, protocol), "0\n5\n4\n-1\n3600\nOK\nQUEUED\nQUEUED\n0\n5\n3\n-1\n~7200\n~7200\n1\n0")
	}
	var said struct {
		Allowed   bool
		Remaining int
		Algorithm string
	}
	text := cli(t, s, "", "--json", "STINT.CHECK", "two", "ann")
	if err := json.Unmarshal([]byte(text), &said); err != nil || !said.Allowed || said.Remaining != 2 || said.Algorithm != "TOKEN_BUCKET" {
		t.Errorf("JSON of STINT.CHECK: %s, %v", text, err)
	}
	// On a terminal it asks for the commands first, to complete their names.
	text = output(t, "CL.THROTTLE terminal 15 30 60\nquit\n", "script", "-qec", "TERM=dumb redis-cli -p "+s.port(), "/dev/null")
	if !strings.Contains(text, "1) (integer) 0\r\n2) (integer) 16\r\n3) (integer) 15\r\n4) (integer) -1\r\n5) (integer) 2\r\n") {
		t.Errorf("on a terminal: %q", text)
	}
	// Mass insertion: the protocol itself, and then ECHO of a random text, which says that all of it was answered.
	text = cli(t, s, strings.Repeat(testredis.Command("CL.THROTTLE", "mass", "99999", "1", "3000"), 10_000), "--pipe")
	if !strings.Contains(text, "errors: 0, replies: 10000") {
		t.Errorf("--pipe: %s", text)
	}
	expectText(t, "after --pipe", cli(t, s, "", "CL.THROTTLE", "mass", "99999", "1", "3000", "0"), "0\n100000\n90000\n-1\n~30000000")
}

func TestRedisCLIByTokenAndTLS(t *testing.T) {
	s, ca := startGuarded(t)
	encrypted := []string{"--tls", "--cacert", ca, "--no-auth-warning"}
	for _, protocol := range []string{"-2", "-3"} {
		with := append(encrypted[:len(encrypted):len(encrypted)], protocol)
		expectText(t, "with a token", cli(t, s, "", append(with, "--pass", token, "CL.THROTTLE", protocol, "15", "30", "60")...), "0\n16\n15\n-1\n2")
		expectText(t, "with a user", cli(t, s, "", append(with, "--user", "any", "--pass", token, "PING")...), "PONG")
		if got := cli(t, s, "", append(with, "PING")...); !strings.Contains(got, "NOAUTH") {
			t.Errorf("without a token: %s", got)
		}
		if got := cli(t, s, "", append(with, "--pass", "wrong", "PING")...); !strings.Contains(got, "WRONGPASS") || !strings.Contains(got, "NOAUTH") {
			t.Errorf("with a wrong token: %s", got)
		}
	}
	expectText(t, "AUTH by hand", cli(t, s, "AUTH "+token+"\nPING\n", encrypted...), "OK\nPONG")
	expectText(t, "by URL", cli(t, s, "", append(encrypted, "-u", "rediss://any:"+token+"@127.0.0.1:"+s.port()+"/0", "PING")...), "PONG")
}

// redis-benchmark asks for CONFIG first, and then sends 64 commands at once on each of 50 connections.
func TestRedisBenchmark(t *testing.T) {
	s := startInMemory(t)
	for i, args := range [][]string{{}, {"-3"}, {"--threads", "2"}, {"-P", "1"}} {
		key := fmt.Sprint("k", i)
		args = append([]string{"-p", s.port(), "-q", "-n", "6400", "-P", "64"}, args...)
		text := output(t, "", "redis-benchmark", append(args, "CL.THROTTLE", key, "9999", "1", "3600")...)
		if !strings.Contains(text, "requests per second") || strings.Contains(strings.ToLower(text), "err") || strings.Contains(text, "WARN") {
			t.Errorf("%v: %s", args, text)
		}
		expectText(t, "what is left", cli(t, s, "", "CL.THROTTLE", key, "9999", "1", "3600", "0"), "0\n10000\n3600\n-1\n~23040000")
	}
	text := output(t, "", "redis-benchmark", "-p", s.port(), "-q", "-n", "6400", "-P", "64", "-t", "ping")
	if strings.Count(text, "requests per second") != 2 { // as a line, and as an array
		t.Errorf("PING: %s", text)
	}
	guarded, ca := startGuarded(t)
	text = output(t, "", "redis-benchmark", "-p", guarded.port(), "-q", "-n", "6400", "-P", "64", "-a", token, "--tls", "--cacert", ca,
		"-r", "100", "CL.THROTTLE", "key:__rand_int__", "9999", "1", "3600")
	if !strings.Contains(text, "requests per second") || strings.Contains(strings.ToLower(text), "err") {
		t.Errorf("by TLS: %s", text)
	}
}

// asExpected is the last line of a program that has compared all answers.
const asExpected = "all as expected"

func TestNode(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("node/node_modules/.package-lock.json"); err != nil {
		t.Fatalf("%v: `make test/resp/node/node_modules` installs the clients", err)
	}
	guarded, ca := startGuarded(t)
	expectText(t, "clients.mjs", output(t, "", "node", "node/clients.mjs", startInMemory(t).port(), guarded.port(), token, ca), asExpected)
}

func TestPython(t *testing.T) {
	t.Parallel()
	// Debian's, which has the packages of Debian.
	const python = "/usr/bin/python3"
	expectText(t, "plain", output(t, "", python, "testdata/redis_py.py", startInMemory(t).port()), asExpected)
	guarded, ca := startGuarded(t)
	expectText(t, "by token and TLS", output(t, "", python, "testdata/redis_py.py", guarded.port(), token, ca), asExpected)
}
