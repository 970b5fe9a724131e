package main

import (
	"bytes"
	"context"
	"regexp"
	"strings"
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
	const want = `WORD 1
WORD 2
WORD 3
ResourceExhausted
  rule:translate/burst: the limit of 3 permits is reached
WORD 1
WORD 2
WORD 3
WORD 4
ResourceExhausted
  rule:dictate/messages: the limit of 5 permits is reached
`
	for _, user := range []string{"ann", "bob"} { // each has permits of its own
		var told bytes.Buffer
		must.Do(t, run(t.Context(), []string{"-address", address, "-call", user}, &told))
		waits := regexp.MustCompile(`  try again in \d+m?\d*s\n`)
		if n := len(waits.FindAllString(told.String(), -1)); n != 2 {
			t.Errorf("%s is told %d times when to try again", user, n)
		}
		if got := waits.ReplaceAllString(told.String(), ""); got != want {
			t.Errorf("%s is told\n%s, want\n%s", user, got, want)
		}
	}
	var told bytes.Buffer
	must.Do(t, run(t.Context(), []string{"-address", address, "-call", "ann"}, &told))
	if got := told.String(); strings.Contains(got, "WORD") || strings.Count(got, "ResourceExhausted") != 2 {
		t.Errorf("ann, who has used her permits, is told\n%s", got)
	}
}
