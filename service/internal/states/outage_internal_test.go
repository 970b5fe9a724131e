package states

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/failover"
)

// The end of an outage is told with what it came to, from the first part that goes to the last that is back.
func TestEndOfAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		answers, primary := uint64(5), "192.0.2.1:6379"
		l := &changeLog{
			logger:  slog.New(slog.NewTextHandler(&text, nil)),
			answers: func() uint64 { return answers }, primary: func() string { return primary },
		}
		change := func(shard int, up bool) {
			l.note(failover.Change{Shard: shard, Up: up, Cause: errors.New("no answer")})
		}
		for _, want := range []string{
			`again" after=3s decided_without=7 primary=192.0.2.1:6379`, `again" after=3s decided_without=7 primary=192.0.2.2:6379`,
			`again" after=3s decided_without=7` + "\n",
		} {
			change(0, false)
			<-time.After(time.Second) // of the bubble
			change(1, false)
			change(0, true)
			answers += 7
			<-time.After(2 * time.Second)
			change(1, true)
			answers++ // not of an outage
			if lines := strings.SplitAfter(text.String(), "\n"); len(lines) != 3 || !strings.Contains(lines[1], want) {
				t.Errorf("the log is\n%swant %s", &text, want)
			}
			text.Reset()
			if primary = "192.0.2.2:6379"; strings.Contains(want, primary) {
				primary = ""
			}
		}
	})
}
