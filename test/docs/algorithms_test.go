package docs_test

import (
	"encoding/xml"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/memstore"
)

// Why not the counter in doubt: docs/algorithms.md, "Four questions". After 100 at the end of a window it admits nearly 100
// more by the end of the next one, and a bucket of 20 that refills as fast never more than 120 in a minute.
func TestCounterAdmitsAlmostTwice(t *testing.T) {
	now := stint.Instant(time.Date(2026, 1, 1, 10, 0, 59, 900_000_000, time.UTC).UnixMicro())
	for _, c := range []struct {
		limit      stint.Limit
		least, max int
	}{
		{stint.SlidingWindowCounter(100, time.Minute), 195, 199},
		{stint.TokenBucket(20, stint.PerMinute(100)), 110, 120},
		{stint.SlidingWindowLog(100, time.Minute), 100, 100},
	} {
		at := now
		limiter, err := stint.New(memstore.New(memstore.Config{Now: func() time.Time { return at.Time() }}), "api", c.limit)
		if err != nil {
			t.Fatal(err)
		}
		admitted := 0
		ask := func(times int) {
			for range times {
				d := must.Get(limiter.Allow(t.Context(), "ann"))(t)
				if d.Allowed {
					admitted++
				}
			}
		}
		ask(200)
		for at < now+stint.Instant(time.Minute.Microseconds())-100_000 {
			at += 100_000
			ask(1)
		}
		if admitted < c.least || admitted > c.max {
			t.Errorf("%v admits %d in a minute, want %d to %d", c.limit.Algorithm, admitted, c.least, c.max)
		}
	}
}

// luminance is the relative luminance of a colour, as WCAG 2 defines it.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	rgb := must.Get(strconv.ParseUint(colour, 16, 32))(t)
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb>>(16-8*i)&0xff) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// The pictures of the algorithms are told to those who can't see them, and stand out on a light page and on a dark one.
func TestPictures(t *testing.T) {
	shown := groups(`\]\((img/[a-z-]+\.svg)\)`, pages(t)["docs/algorithms.md"])
	if len(shown) != len(notation.Algorithms())+1 {
		t.Fatalf("%d pictures were found, want one of each algorithm and of concurrency", len(shown))
	}
	light, dark := luminance(t, "ffffff"), luminance(t, "0d1117")
	for _, found := range shown {
		name := "docs/" + found
		text := read(t, name)[name]
		var picture struct {
			Role  string `xml:"role,attr"`
			Title string `xml:"title"`
			Desc  string `xml:"desc"`
		}
		if err := xml.Unmarshal([]byte(text), &picture); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if picture.Role != "img" || picture.Title == "" || len(picture.Desc) < 40 {
			t.Errorf("%s: role %q, title %q, desc %q; want a picture with both", name, picture.Role, picture.Title, picture.Desc)
		}
		for _, paint := range groups(`(?:fill|stroke)="([^"]*)"`, text) {
			colour, hex := strings.CutPrefix(paint, "#")
			if !hex {
				if paint != "none" {
					t.Errorf("%s: the colour %q is not the same everywhere", name, paint)
				}
				continue
			}
			l := luminance(t, colour)
			if onLight, onDark := (light+0.05)/(l+0.05), (l+0.05)/(dark+0.05); min(onLight, onDark) < 3.5 {
				t.Errorf("%s: #%s has a contrast of %.1f on white and %.1f on a dark page, want 3.5", name, colour, onLight, onDark)
			}
		}
	}
}
