package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/board"
)

// topCommand is `stint top`. One goroutine reads the service's events and another the keys; the
// board is only touched by the one that draws. On a terminal it is a screen, elsewhere lines, with
// --json the events themselves; all three come from the same stream.
func topCommand(p process) *cobra.Command {
	var f struct{ Count int }
	command, a := administerCommand(p, "top", &f)
	command.RunE = func(command *cobra.Command, _ []string) error {
		if f.Count < 0 {
			return misused("--count is %d; allowed: 0 or more", f.Count)
		}
		ctx, stop := context.WithCancel(command.Context())
		defer stop()
		w := &watcher{apiCommand: a, events: make(chan sentEvent), keys: make(chan byte)}
		ended := make(chan error, 1)
		go func() { ended <- w.follow(ctx) }()
		if screen, ok := p.Out.(*os.File); ok && !a.JSON && isTerminal(screen) && isTerminal(os.Stdin) {
			return w.live(ctx, screen, ended)
		}
		return w.lines(ctx, f.Count, ended)
	}
	return command
}

// A sentEvent is an event of the service; an empty kind says that the connection was lost for a
// cause.
type sentEvent struct {
	kind string
	data []byte
	err  error
}

// A watcher follows a service's events and what is typed. Events are handed over one at a time: a
// slow terminal slows the reading, and the service then ends the stream, which a
// snapshot makes good.
type watcher struct {
	*apiCommand

	// events are the service's, in order; keys are single bytes, arrows with their highest bit set.
	events chan sentEvent
	keys   chan byte
	last   string // the ID of the last event
}

// retryGap is the time between two attempts to connect. It is short enough to come back with a
// restarted service, and long enough not to trouble one that is overloaded.
const retryGap = time.Second

// follow reads events until ctx ends. It fails if the service refuses the first request; a
// connection that is lost is made again. That the first request fails is most likely a wrong URL or
// token, which trying again does not mend.
func (w *watcher) follow(ctx context.Context) error {
	s, err := w.service()
	if err != nil {
		return err
	}
	defer s.close()
	for {
		err := w.read(ctx, s)
		if ctx.Err() != nil {
			return nil
		}
		if w.last == "" {
			return err
		}
		if !w.emit(ctx, sentEvent{err: err}) || sleep.For(ctx, retryGap) != nil {
			return nil
		}
	}
}

// emit hands an event to the one that draws. It reports false at the end.
func (w *watcher) emit(ctx context.Context, e sentEvent) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// read reads one stream of events to its end. The form is that of server-sent events (WHATWG HTML,
// section 9.2). The last ID goes with the next request, so that the service sends a snapshot or
// what was missed.
func (w *watcher) read(ctx context.Context, s *service) error {
	ctx, end := context.WithCancelCause(ctx) // a deadline would end the stream, too
	defer end(nil)
	late := time.AfterFunc(w.Timeout, func() { end(context.DeadlineExceeded) })
	response, err := s.send(ctx, call{
		path: activity.PathEvents, header: map[string]string{"Last-Event-ID": w.last},
	})
	late.Stop()
	if err != nil {
		return err
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		_, err := s.read(response, &struct{ Nothing chan int }{})
		return err
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxAnswerBytes)
	var e sentEvent
	for lines.Scan() {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(": "))
		switch string(name) {
		case "id":
			w.last = string(value)
		case "event":
			e.kind = string(value)
		case "data":
			e.data = bytes.Clone(value)
		case "":
			if !w.emit(ctx, e) {
				return nil
			}
			e = sentEvent{}
		}
	}
	return fmt.Errorf("the service ended the stream: %w", errors.Join(lines.Err(), io.ErrUnexpectedEOF))
}

// lines prints a line per second. The count is of printed lines. A lost connection is told on
// standard error, and followed again.
func (w *watcher) lines(ctx context.Context, most int, ended <-chan error) error {
	b := &board.Board{}
	for n := 0; most == 0 || n < most; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case e := <-w.events:
			if err := b.Apply(e.kind, e.data, e.err); err != nil {
				return err
			}
			text := ""
			switch {
			case e.kind == "":
				w.tell(e.err.Error())
				continue
			case w.JSON:
				text = fmt.Sprintf("{%q:%s}", e.kind, e.data)
			case e.kind == "second":
				text = b.Line()
			default:
				continue
			}
			n++
			if err := say(w.Out, "%s\n", text); err != nil {
				return err
			}
		}
	}
	return nil
}

// live draws the screen until a key ends it. The terminal is restored however it ends, since in raw
// mode a shell is of no use. The alternate screen leaves what was in the terminal as it was. Each
// drawing overwrites the one before, line by line, without clearing first, so that nothing
// flickers.
func (w *watcher) live(ctx context.Context, screen *os.File, ended <-chan error) error {
	before, err := term.MakeRaw(int(os.Stdin.Fd()))
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(int(os.Stdin.Fd()), before) }()
	const enter, leave = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l" // the alternate screen, without a cursor
	_, _ = io.WriteString(screen, enter)
	defer func() { _, _ = io.WriteString(screen, leave) }()
	go w.readKeys(ctx)
	b := &board.Board{}
	explained := make(chan string, 1)
	for {
		width, height, err := term.GetSize(int(screen.Fd()))
		if err != nil {
			return err
		}
		if _, err := io.WriteString(screen, "\x1b[H"+strings.ReplaceAll(b.Draw(width, height), "\n", "\x1b[K\r\n")+
			"\x1b[J"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case e := <-w.events:
			if err := b.Apply(e.kind, e.data, e.err); err != nil {
				return err
			}
		case text := <-explained:
			b.Explanation = text
		case key := <-w.keys:
			switch b.Key(key) {
			case board.Quit:
				return nil
			case board.Explain:
				rule := b.Selected()
				go func() { explained <- w.explain(rule) }()
			case board.None:
			}
		}
	}
}

// readKeys reads what is typed. An arrow is the last byte of its sequence, with its highest bit
// set. It ends with the program: a read of a terminal can't be interrupted. Escape is told from an
// arrow by what is there behind it already: a terminal sends the bytes of a sequence at once.
func (w *watcher) readKeys(ctx context.Context) {
	in := bufio.NewReader(os.Stdin)
	for {
		key, err := in.ReadByte()
		if err != nil {
			return
		}
		if key == 0x1b && in.Buffered() >= 2 {
			if bracket, _ := in.ReadByte(); bracket == '[' {
				key, _ = in.ReadByte()
				key |= 0x80
			}
		}
		select {
		case w.keys <- key:
		case <-ctx.Done():
			return
		}
	}
}

// explain says in a line or two what a rule is. It asks for the rule as it is at the moment, and
// answers an error as text, which the board shows in its place.
func (w *watcher) explain(rule string) string {
	var r ruleRow
	if _, _, err := w.do(call{path: "/api/v1/rules/" + apipath.Segment(rule)}, &r); err != nil {
		return err.Error()
	}
	return fmt.Sprintf(
		"%s is %s: it matches %s, counts %s and allows %s.", r.ID, r.state(), r.matches(), r.scopeText(), r.allows(),
	)
}
