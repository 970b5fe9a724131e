package browser

import (
	"context"
	"fmt"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/internal/must"
)

// The page that `stint simulate --html` writes has no serious fault, light and dark, and fits a phone. Its plots have one
// scale, and it says who is hurt.
func TestReport(t *testing.T) {
	t.Parallel()
	_, p, _ := reported(t, t.TempDir(), "--pattern", "retry-storm", "--limit", "100/1m")
	p.shows("5 of 100 clients (5.00%) are denied at least once, 1 of them more than half of what they ask for.")
	p.loadAxe()
	backgrounds := map[string]bool{}
	for _, width := range []int64{1280, 390} {
		for _, scheme := range []string{"light", "dark"} {
			must.Get(chromedp.Run(p.ctx, chromedp.Action[cdp.Empty](func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
				return cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
					Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
				})
			})))(t)
			p.do(chromedp.EmulateViewport(width, 900))
			backgrounds[eval[string](p, "getComputedStyle(document.body).backgroundColor")] = true
			p.expectNoFaults(fmt.Sprintf("%s, %d wide", scheme, width), "")
			p.picture("report", scheme, width)
		}
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark have the backgrounds %v", backgrounds)
	}
	scales := eval[[]string](p, `[...document.querySelectorAll("figure .plot")].map((e) => e.getAttribute("aria-label").match(/up to [\d,]+/)[0])`)
	if len(scales) != 5 {
		t.Fatalf("%d plots of five algorithms: %v", len(scales), scales)
	}
	for _, scale := range scales {
		if scale != scales[0] {
			t.Errorf("the scales are %q", scales)
		}
	}
}
