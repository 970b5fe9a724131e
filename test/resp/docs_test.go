package resp_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// page is the guide, whose commands and programs ask the service at its own port.
func page(t *testing.T, s *service) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis-protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.addr, ":")
	return strings.ReplaceAll(string(text), "6390", port)
}

// block is the n-th block of code in a language.
func block(t *testing.T, page, language string, n int) string {
	t.Helper()
	found := regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(page, -1)
	if len(found) <= n {
		t.Fatalf("the page has %d blocks of %s", len(found), language)
	}
	return found[n][1]
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// The page's commands and programs do what it says.
func TestGuide(t *testing.T) {
	s := startInMemory(t)
	guide := page(t, s)
	asked := strings.Fields(strings.Split(block(t, guide, "sh", 0), "\n")[1])
	if got, want := output(t, "", asked[0], append([]string{"--no-raw"}, asked[1:]...)...), block(t, guide, "text", 0); got != want {
		t.Errorf("redis-cli answers\n%s\nwant\n%s", got, want)
	}
	if got, want := output(t, "", "/usr/bin/python3", "-c", block(t, guide, "python", 0)), "[False, False]\n"; got != want {
		t.Errorf("Python prints %q, want %q", got, want)
	}
	program := block(t, guide, "js", 0)
	if got := output(t, "node", "node", "--input-type=module", "--eval", program); got != "" {
		t.Errorf("the first request of Node is limited: %s", got)
	}
	client := goRedis(t, s, 3)
	if err := askInGo(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	for range 16 { // all that there may be, of which none comes again while the test runs
		if err := askThrottle(t.Context(), client, "user123", 15, 1, 86400).Err(); err != nil {
			t.Fatal(err)
		}
	}
	slow := strings.Replace(program, "15, 30, 60", "15, 1, 86400", 1)
	if got := output(t, "node", "node", "--input-type=module", "--eval", slow); !strings.HasPrefix(got, "come again in ") {
		t.Errorf("a limited request of Node prints %q", got)
	}
}

// askInGo is the page's program in Go.
func askInGo(ctx context.Context, client *redis.Client) error {
	reply, err := client.Do(ctx, "CL.THROTTLE", "user123", 15, 30, 60).Int64Slice()
	if err != nil {
		return err
	}
	if reply[0] == 1 {
		fmt.Println("come again in", time.Duration(reply[3])*time.Second)
	}
	return nil
}
