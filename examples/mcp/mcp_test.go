package main

import (
	"bytes"
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/must"
)

// announced takes over what the server prints first.
type announced chan string

func (a announced) Write(text []byte) (int, error) {
	a <- string(text)
	return len(text), nil
}

// The example as its README tells it, on a free port.
func TestExample(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	out, ended := make(announced, 1), make(chan error, 1)
	go func() { ended <- run(ctx, []string{"-address", "127.0.0.1:0", "-rules", "rules.yaml"}, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the example ended: %v", err)
		}
	})
	var address string
	select {
	case line := <-out:
		address = regexp.MustCompile(`listening on (\S+),`).FindStringSubmatch(line)[1]
	case <-time.After(5 * time.Minute):
		t.Fatal("the server does not listen")
	}
	// Three reports of 30 rows leave 10 of the day's 100, which is less than the 40 that one may have.
	const want = `found stint
found stint
found stint
Rate limit reached: this call was not run. Wait N s, then repeat it.
  retryAfterMicros: N
a report of 30 rows
a report of 30 rows
a report of 30 rows
Rate limit reached: this call was not run. Wait N s, then repeat it.
  retryAfterMicros: N
`
	for _, user := range []string{"ann", "bob"} { // each has permits of its own
		var told bytes.Buffer
		must.Do(t, run(t.Context(), []string{"-address", address, "-call", user}, &told))
		if got := regexp.MustCompile(`(Wait|Micros:) \d+`).ReplaceAllString(told.String(), "$1 N"); got != want {
			t.Errorf("%s is told\n%s, want\n%s", user, got, want)
		}
	}
}
