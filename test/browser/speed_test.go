package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/internal/must"
)

const (
	manyRules   = 1000
	manyClients = 100_000
)

// All scripts together have at most 100 kB, compressed.
func TestScriptSize(t *testing.T) {
	scripts, err := filepath.Glob("../../service/internal/server/dashboard/dist/assets/*.js.gz")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts (%v); make web builds them", err)
	}
	var bytes int64
	for _, script := range scripts {
		about := must.Get(os.Stat(script))(t)
		bytes += about.Size()
	}
	if bytes > 100_000 {
		t.Errorf("%d bytes", bytes)
	}
	t.Logf("%d bytes", bytes)
}

// fill puts 1,000 rules in force.
func (s *service) fill() {
	s.t.Helper()
	list := make([]map[string]any, manyRules)
	for i := range list {
		list[i] = map[string]any{
			"id": fmt.Sprintf("rule-%04d", i), "match": map[string]any{"path": fmt.Sprintf("/r/%d", i)}, "scope": "per_ip", "labels": map[string]any{"team": fmt.Sprint(i % 7)},
			"limits": []any{map[string]any{"algorithm": "token_bucket", "capacity": 1 + i%20, "refill": "1/m"}},
		}
	}
	s.putAll(list)
}

// evaluate asks by the rule i for one of many clients.
func (s *service) evaluate(i int) {
	n := rand.IntN(manyClients)
	body := fmt.Sprintf(`{"path":"/r/%d","ip":"10.%d.%d.%d"}`, i%manyRules, n>>16, n>>8&255, n&255)
	response, err := http.Post(s.api+"/api/v1/rate-limit/evaluate", "application/json", strings.NewReader(body)) //nolint:noctx // ends with the service
	if err != nil {
		return // the test is over
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

// 1,000 rules with sparklines scroll under traffic of 100,000 clients. Only the rows in sight are drawn, each event of a second draws them
// anew, and the browser's long tasks are told.
func TestManyRules(t *testing.T) {
	s := serve(t)
	s.fill()
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for i := 0; ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for range 20 {
				s.evaluate(i)
				i++
			}
		}
	})
	defer load.Wait()
	defer stop()
	p := signedIn(t, s, 1280)
	p.visit("rules")
	p.until("the rules are not there", `document.querySelector("h1").innerText.includes("000 rules")`)
	p.until("there are no sparklines", `document.querySelectorAll(".window svg.spark polyline").length > 20`)
	type result struct {
		Longest, Tasks, Frames, Rows, Turns int
		Last                                bool
	}
	longest := p.traced()
	got := eval[result](p, `new Promise((resolve) => {
		const box = document.querySelector(".window"), seen = {longest: 0, tasks: 0, frames: 0, rows: 0, turns: 0, last: false};
		const note = (list) => list.forEach((task) => { seen.tasks++; seen.longest = Math.max(seen.longest, Math.ceil(task.duration)); });
		const observer = new PerformanceObserver((list) => note(list.getEntries()));
		observer.observe({type: "longtask"});
		let shown = "", step = 168;
		const frame = () => {
			seen.frames++;
			seen.rows = Math.max(seen.rows, box.querySelectorAll("tbody tr").length);
			seen.last ||= box.innerText.includes("rule-0999");
			const now = box.innerText;
			if (now !== shown) seen.turns++;
			shown = now;
			box.scrollTop += step;
			if (box.scrollTop + box.clientHeight >= box.scrollHeight - 1 || box.scrollTop === 0) step = -step;
			if (seen.frames < 250) return requestAnimationFrame(frame);
			note(observer.takeRecords());
			resolve({Longest: seen.longest, Tasks: seen.tasks, Frames: seen.frames, Rows: seen.rows, Turns: seen.turns, Last: seen.last});
		};
		requestAnimationFrame(frame);
	})`)
	busy := longest()
	// What a page that drew every rule would do at once: four times, since the browser may say that it traces before its page does.
	longest = p.traced()
	eval[int](p, `new Promise((resolve) => {
		const row = document.querySelector(".window tbody tr:nth-child(5)");
		let times = 0;
		const draw = () => {
			const table = document.createElement("table");
			for (let i = 0; i < 1000; i++) table.append(row.cloneNode(true));
			document.body.append(table);
			const height = table.offsetHeight;
			table.remove();
			if (++times < 4) return requestAnimationFrame(draw);
			resolve(height);
		};
		draw();
	})`)
	all := longest()
	t.Logf("%d frames: %d long tasks, the longest of %d ms; by the processor's time the longest has %v, 1,000 rows drawn at once %v; at most %d rows were drawn", got.Frames, got.Tasks, got.Longest, busy, all, got.Rows)
	if busy == 0 || busy > all/3 {
		t.Errorf("the longest task takes %v, drawing all rules at once %v", busy, all)
	}
	if got.Rows > 60 || !got.Last || got.Turns < 100 {
		t.Errorf("it shows %d rows, the last of all: %v, and changed %d times", got.Rows, got.Last, got.Turns)
	}
}

// traced has the browser trace the page's tasks, until the function that it returns tells the longest by the processor's time. A task that waits for
// a processor, as on a busy machine, is long for the browser's observer alone.
func (p *page) traced() (longest func() time.Duration) {
	p.t.Helper()
	call := func(action chromedp.Action[cdp.Empty]) {
		p.t.Helper()
		must.Get(chromedp.Run(p.ctx, action))(p.t)
	}
	type place struct{ Pid, Tid int }
	main, spent := map[place]bool{}, map[place]int64{} // the pages' threads; of each the longest task, microseconds
	note := func(text []byte) {
		var e struct {
			place

			Name string
			Tdur int64
			Args struct{ Name string }
		}
		if json.Unmarshal(text, &e) != nil {
			return // of a kind that has other arguments
		}
		if e.Name == "thread_name" && e.Args.Name == "CrRendererMain" {
			main[e.place] = true
		}
		spent[e.place] = max(spent[e.place], e.Tdur)
	}
	complete := make(chan struct{}, 1) // the listener stays, and hears of later traces, too
	must.Do(p.t, chromedp.Listen(p.ctx, func(event any) {
		switch e := event.(type) {
		case *tracing.EventDataCollected:
			for _, text := range e.Value {
				note(text)
			}
		case *tracing.EventTracingComplete:
			select {
			case complete <- struct{}{}:
			default:
			}
		}
	}))
	call(func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, t, tracing.Start, tracing.StartParams{TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel", "__metadata"}, ExcludedCategories: []string{"*"}}})
	})
	return func() (most time.Duration) {
		p.t.Helper()
		call(func(ctx context.Context, t *chromedp.Target) (cdp.Empty, error) {
			return cdp.Call(ctx, t, tracing.End, cdp.Empty{})
		})
		select {
		case <-complete:
		case <-time.After(patience):
			p.t.Fatal("the trace does not end")
		}
		for at := range main {
			most = max(most, time.Duration(spent[at])*time.Microsecond)
		}
		return most
	}
}
