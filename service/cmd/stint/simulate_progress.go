package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// isTerminal reports whether somebody looks at what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A progress shows on a terminal how far files are read, and how fast.
type progress struct {
	out         io.Writer // nil: nobody looks
	total, done int64     // bytes; a total of 0 is not known
	begun, told time.Time
}

// newProgress shows progress on a terminal alone. The total is known if all inputs are files;
// otherwise only what was read is shown.
func newProgress(out io.Writer, names []string) *progress {
	p := &progress{begun: time.Now()}
	if isTerminal(out) {
		p.out = out
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() {
			p.total = 0
			break
		}
		p.total += info.Size()
	}
	return p
}

// count is a reader of which the progress is shown.
func (p *progress) count(in io.Reader) io.Reader {
	if p.out == nil {
		return in
	}
	return io.TeeReader(in, p)
}

// Write notes what was read.
func (p *progress) Write(read []byte) (int, error) {
	p.done += int64(len(read))
	now := time.Now()
	if now.Sub(p.told) < 200*time.Millisecond {
		return len(read), nil
	}
	p.told = now
	_, _ = fmt.Fprint(p.out, "\r\x1b[K"+p.text(now.Sub(p.begun))) // which is for people only
	return len(read), nil
}

// text is a bar, the rate, and the time left.
func (p *progress) text(took time.Duration) string {
	rate := float64(p.done) / max(took.Seconds(), 1e-3)
	text := fmt.Sprintf("%.0f MB, %.0f MB/s", float64(p.done)/1e6, rate/1e6)
	if p.total == 0 {
		return text
	}
	const width = 30
	part := min(float64(p.done)/float64(p.total), 1)
	full := int(part * width)
	left := time.Duration(float64(p.total-p.done) / max(rate, 1) * float64(time.Second)).Round(time.Second)
	return fmt.Sprintf(
		"[%s%s] %3.0f%%  %s, %s left", strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*part, text, left,
	)
}

// end takes the progress off the screen.
func (p *progress) end() {
	if p.out != nil && p.done > 0 {
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
