package resp_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stint-go/stint/internal/must"
)

// page is one of docs/.
func page(t *testing.T, name string) string {
	t.Helper()
	return string(must.Get(os.ReadFile("../../docs/" + name))(t))
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

// The page's commands and programs do what it says.
func TestGuide(t *testing.T) {
	s := startInMemory(t)
	guide := strings.ReplaceAll(page(t, "redis-protocol.md"), "6390", s.port())
	inNode := func(text string) string {
		return output(t, "", "env", "-C", "node", "node", "--input-type=module", "--eval", text)
	}
	asked := strings.Fields(strings.Split(block(t, guide, "sh", 0), "\n")[1])
	if got, want := output(t, "", asked[0], append([]string{"--no-raw"}, asked[1:]...)...), block(t, guide, "text", 0); got != want {
		t.Errorf("redis-cli answers\n%s\nwant\n%s", got, want)
	}
	if got, want := output(t, "", "/usr/bin/python3", "-c", block(t, guide, "python", 0)), "[False, False]\n"; got != want {
		t.Errorf("Python prints %q, want %q", got, want)
	}
	text := block(t, guide, "js", 0)
	if got := inNode(text); got != "" {
		t.Errorf("the first request of Node is limited: %s", got)
	}
	client := goRedis(t, s, 3)
	must.Do(t, askInGo(t.Context(), client))
	for range 16 { // all that there may be, of which none comes again while the test runs
		must.Do(t, askThrottle(t.Context(), client, "user123", 15, 1, 86400).Err())
	}
	slow := strings.Replace(text, "15, 30, 60", "15, 1, 86400", 1)
	if got := inNode(slow); !strings.HasPrefix(got, "come again in ") {
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
