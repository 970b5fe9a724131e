package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testprogram"
)

const (
	writer = "0123456789abcdef0123456789abcdef"
	reader = "fedcba9876543210fedcba9876543210"

	// patience is how long a test waits for what should come at once.
	patience = 5 * time.Minute
)

var programs string // the folder of stint, which is built once

func TestMain(m *testing.M) { os.Exit(testprogram.Main(m.Run, &programs, "../../service/cmd/stint")) }

// A service is stint.
type service struct {
	t          testing.TB
	api, admin string // URLs
	process    int
	end        func() // ends it before the test does
}

// serve starts the service, until the test ends.
func serve(t testing.TB, args ...string) *service {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	must.Do(t, os.WriteFile(tokens, []byte(writer+" write alice\n"+reader+" read bob\n"), 0o600))
	command := exec.CommandContext(context.Background(), filepath.Join(programs, "stint"), append([]string{
		"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--admin-tokens-file", tokens, "--drain-keep-alive", "0s",
	}, args...)...)
	p, at := testprogram.Start(t, command, testprogram.Listeners("http", "admin")...)
	s := &service{t: t, api: "http://" + at[0], admin: "http://" + at[1], process: p.Pid}
	s.end = sync.OnceFunc(func() { _ = p.Stop() })
	t.Cleanup(s.end)
	return s
}

// ruled starts the service with the rules of --demo. It has no traffic but the test's own: what is made up comes at
// times of its own, and goes on while a test waits for its end.
func ruled(t testing.TB, args ...string) *service {
	t.Helper()
	list := must.Get(os.ReadFile("../../service/internal/demo/demo.json"))(t)
	s := serve(t, args...)
	s.putAll(json.RawMessage(list))
	return s
}

// putAll puts rules in force.
func (s *service) putAll(list any) {
	s.t.Helper()
	if status := s.ask(http.MethodPut, "/api/v1/rules", map[string]any{"rules": list}, nil); status != http.StatusOK {
		s.t.Fatal(status)
	}
}

// put makes a rule, from JSON.
func (s *service) put(id, rule string) {
	s.t.Helper()
	var fault json.RawMessage
	if status := s.ask(http.MethodPut, "/api/v1/rules/"+id, json.RawMessage(rule), &fault); status != http.StatusCreated {
		s.t.Fatalf("rule %s: %d %s", id, status, fault)
	}
}

// patch changes a rule, by JSON.
func (s *service) patch(id, change string) {
	s.t.Helper()
	if status := s.ask(http.MethodPatch, "/api/v1/rules/"+id, json.RawMessage(change), nil); status != http.StatusOK {
		s.t.Fatalf("rule %s: %d", id, status)
	}
}

// A rule is what the tests look at of one.
type rule struct {
	Match struct {
		Methods, Paths, Except []string
		Headers                map[string]string
	}
	Scope     any
	OnExceed  string `json:"on_exceed"`
	Cost      int
	Limits    []map[string]any
	Overrides []struct {
		Key    string
		Until  time.Time
		Limits []struct{ Limit int }
	}
	Guaranteed map[string]struct{ Capacity int }
}

// rule is one that is in force.
func (s *service) rule(id string) (r rule) {
	s.t.Helper()
	if status := s.ask(http.MethodGet, "/api/v1/rules/"+id, nil, &r); status != http.StatusOK {
		s.t.Fatalf("rule %s: %d", id, status)
	}
	return r
}

// ask sends a request with the writer's token and decodes the answer into body, if there is one.
func (s *service) ask(method, path string, content, body any) int {
	s.t.Helper()
	var text bytes.Buffer
	if content != nil {
		must.Do(s.t, json.NewEncoder(&text).Encode(content))
	}
	r := must.Get(http.NewRequestWithContext(s.t.Context(), method, s.admin+path, &text))(s.t)
	r.Header.Set("Authorization", "Bearer "+writer)
	r.Header.Set("Content-Type", "application/json")
	response := must.Get(http.DefaultClient.Do(r))(s.t)
	defer func() { _ = response.Body.Close() }()
	if body != nil {
		must.Do(s.t, json.NewDecoder(response.Body).Decode(body))
	}
	return response.StatusCode
}

// guess tries to log in until an address has nothing left by demo-login, and once more.
func (s *service) guess(ip string) {
	s.t.Helper()
	for range 6 {
		s.check("/login", ip, "")
	}
}

// reserve holds what a request of an address takes, and reports whether it was admitted.
func (s *service) reserve(id, path, ip string) bool {
	s.t.Helper()
	return s.post(apipath.Reserve, map[string]string{"id": id, "path": path, "ip": ip}) == http.StatusOK
}

// check asks for a request of an address, and of a user unless that is "".
func (s *service) check(path, ip, user string) {
	s.t.Helper()
	request := api.EvaluateRequest{Method: http.MethodPost, Path: path, IP: ip}
	if user != "" {
		request.Attributes = map[string]string{api.AttributeUserID: user}
	}
	s.post("/api/v1/rate-limit/evaluate", request)
}

// post sends a request to the API and returns its status.
func (s *service) post(path string, content any) int {
	s.t.Helper()
	body := must.Get(json.Marshal(content))(s.t)
	response := must.Get(http.Post(s.api+path, "application/json", bytes.NewReader(body)))(s.t) //nolint:noctx // a test
	_ = response.Body.Close()
	return response.StatusCode
}

// A page is a tab of a browser that is the test's alone.
type page struct {
	t   *testing.T
	ctx context.Context
	s   *service

	mu       sync.Mutex
	faults   []string // what the console said, and requests to others
	refusals bool     // whether answers that refuse are none
}

// signedIn opens the dashboard in a browser of its own, and signs in with the writer's token.
func signedIn(t *testing.T, s *service, width int64) *page {
	t.Helper()
	p := open(t, s, width)
	p.signIn(writer)
	return p
}

// newBrowser starts a browser, which ends with the test.
func newBrowser(t *testing.T) context.Context {
	t.Helper()
	allocator, end := chromedp.NewExecAllocator(context.Background(),
		chromedp.NoSandbox, chromedp.Headless, chromedp.NoFirstRun, chromedp.WSURLReadTimeout(patience))
	t.Cleanup(end)
	return allocator
}

// open opens the dashboard in a browser that nobody has signed in with.
func open(t *testing.T, s *service, width int64) *page {
	t.Helper()
	p := openTab(t, s, newBrowser(t))
	p.do(chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.admin+"/"), chromedp.WaitVisible("[name=token]"))
	return p
}

// openTab opens an empty tab: in a browser of its own, or in that of the parent if there is one. What its console says, and what it
// requests from others than the service, fails the test.
func openTab(t *testing.T, s *service, parent context.Context) *page { //nolint:revive // the parent is no context of the call's
	t.Helper()
	ctx, end := chromedp.NewContext(parent)
	p := &page{t: t, ctx: ctx, s: s}
	messages := chromedp.Console(ctx)
	requests := chromedp.Events(ctx, network.RequestWillBeSent)
	var watching sync.WaitGroup
	watching.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.IsException() || m.Type == "error" || m.Type == "warning" {
				p.note("console: " + m.Text + " " + m.URL)
			}
		}
	})
	watching.Go(func() {
		for e, err := range requests {
			if err != nil {
				return
			}
			if url := e.Request.URL; !strings.HasPrefix(url, s.admin+"/") && !strings.HasPrefix(url, "data:") && !strings.HasPrefix(url, "about:") {
				p.note("a request to " + url)
			}
		}
	})
	t.Cleanup(func() {
		end()
		watching.Wait()
		for _, fault := range p.faults {
			t.Error(fault)
		}
	})
	return p
}

func (p *page) note(fault string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusals && strings.Contains(fault, "Failed to load resource") {
		return
	}
	p.faults = append(p.faults, fault)
}

// expectRefusals passes over what the console says of answers that refuse, which the test brings about.
func (p *page) expectRefusals() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusals = true
}

// do carries out steps.
func (p *page) do(steps ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		p.t.Fatalf("%v; the page shows:\n%s", err, p.text())
	}
}

// eval is what an expression of the page is.
func eval[T any](p *page, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until waits until an expression of the page is true. While it throws it is not, as an element that it needs may be
// missing yet.
func (p *page) until(what, expression string) {
	p.t.Helper()
	p.provoke(what, expression, func() {})
}

// provoke makes requests again and again until an expression of the page is true.
func (p *page) provoke(what, expression string, requests func()) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		requests()
		held, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if held && err == nil {
			return
		}
		select {
		case <-ctx.Done():
			p.t.Fatalf("%s: %s is not true (%v); the page shows:\n%s", what, expression, err, p.text())
		case <-time.After(50 * time.Millisecond): // a slow machine has time for what is waited for
		}
	}
}

// there is true of the page while the expression element is an element: not while it is null, as by querySelector, nor
// undefined, as by find or ?.
func there(element string) string { return "(" + element + ") instanceof Element" }

// act waits until the expression element is an element and then, before the page can draw itself anew, calls a function
// of the page with it.
func (p *page) act(what, element, function string) {
	p.t.Helper()
	p.until(what, fmt.Sprintf(`(() => {
		const element = (%s);
		if (!(%s)) return false;
		(%s)(element);
		return true;
	})()`, element, there("element"), function))
}

// click waits until the expression element is an element, and clicks it.
func (p *page) click(what, element string) {
	p.t.Helper()
	p.act(what, element, "(e) => e.click()")
}

// shows waits until the page has a text.
func (p *page) shows(text string) {
	p.t.Helper()
	p.until(fmt.Sprintf("it does not show %q", text), shown(text))
}

// shown is true of the page while it has a text.
func shown(text string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", text) }

// text is what the page shows.
func (p *page) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// visit goes to a page of the dashboard, and waits until that one is drawn: what is waited for next may be on the page
// before, too.
func (p *page) visit(place string) {
	p.t.Helper()
	eval[bool](p, fmt.Sprintf(`new Promise((drawn) => {
		const before = location.hash;
		location.hash = %q;
		if (location.hash === before) return drawn(true);
		// After the dashboard's own listener, and what that draws.
		addEventListener("hashchange", () => setTimeout(drawn, 0, true), {once: true});
	})`, "#/"+place))
}

// press presses the first button with a text that can be pressed. It confirms what the page asks.
func (p *page) press(text string) {
	p.t.Helper()
	button := fmt.Sprintf("[...document.querySelectorAll('button')].find((b) => b.textContent === %q && !b.disabled)", text)
	p.act(fmt.Sprintf("there is no button %q", text), button, "(b) => { window.confirm = () => true; b.click(); }")
}

// button is the expression of the first button with a text.
func button(text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("button")].find((b) => b.textContent === %q)`, text)
}

// save presses a button that saves a file, which is in window.saved then.
func (p *page) save(text string) {
	p.t.Helper()
	p.act("there is no "+text, button(text), `(button) => {
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => { blob.text().then((text) => (window.saved = text)); return make.call(URL, blob); };
		button.click();
	}`)
}

// write changes the text in the editor of a rule by a function of the page.
func (p *page) write(edit string) {
	p.t.Helper()
	p.fill("textarea:not(form textarea)", edit)
}

// fill changes the text of a field by a function of the page.
func (p *page) fill(field, edit string) {
	p.t.Helper()
	p.act("there is no "+field, fmt.Sprintf("document.querySelector(%q)", field), setValue(edit))
}

// setValue is a function of the page that changes the value of a field, by the function edit, as a person who types or
// chooses.
func setValue(edit string) string {
	return fmt.Sprintf(`(box) => {
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(box), "value").set.call(box, (%s)(box.value));
		box.dispatchEvent(new Event(box.tagName === "SELECT" ? "change" : "input", {bubbles: true}));
	}`, edit)
}

// signIn signs in by a token.
func (p *page) signIn(token string) {
	p.t.Helper()
	p.fill("[name=token]", fmt.Sprintf("() => %q", token))
	p.press("Sign in")
}

// An element that is missing is not there, however an expression says so: a wait for it goes on.
func TestWaitForElement(t *testing.T) {
	t.Parallel()
	p := open(t, serve(t), 1280)
	const row = `[...document.querySelectorAll("tr")].find((r) => r.id === "later")`
	const button = row + `?.querySelector("button")`
	for _, missing := range []string{`document.querySelector("nothing")`, row, button, "document.nothing"} {
		if eval[bool](p, there(missing)) {
			t.Errorf("%s is there", missing)
		}
	}
	eval[bool](p, `(() => {
		document.body.insertAdjacentHTML("beforeend", "<table><tr></tr></table>");
		const late = document.querySelector("tr");
		setTimeout(() => { late.id = "later"; }, 100);
		setTimeout(() => {
			late.innerHTML = "<td><button>Here</button></td>";
			late.querySelector("button").onclick = () => { late.title = "clicked"; };
		}, 300);
		return true;
	})()`)
	p.click("the button is not there", button)
	p.until("it is not clicked", row+`.title === "clicked"`)
}
