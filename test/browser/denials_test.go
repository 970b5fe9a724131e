package browser

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/stint-go/stint/api"
)

// denied is true of the page while a row of denials has all texts.
func denied(texts ...string) string {
	var has []string
	for _, text := range texts {
		has = append(has, fmt.Sprintf("r.innerText.includes(%q)", text))
	}
	return fmt.Sprintf(`[...document.querySelectorAll("[aria-label*=enials] tbody tr")].some((r) => %s)`, strings.Join(has, " && "))
}

// once is how a rule ends that admits one request a day.
const once = `"missing": "skip", "limits": [{"algorithm": "fixed_window", "limit": 1, "window": "1d", "start": "first_request"}]}`

// Denials are found by their request ID and since a time, explained with what is known of the request, and saved as a file, in
// which no text of a stranger is a formula.
func TestDenials(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("free", `{"match": {"path": "/**", "attributes": {"plan": ["free"]}}, "scope": ["per_user", "custom:tenant"], `+once)
	s.put("regions", `{"scope": "custom:region", `+once)
	ask := func() {
		s.post("/api/v1/rate-limit/evaluate", api.EvaluateRequest{
			Method: http.MethodGet, Path: "/orders", IP: "192.0.2.9",
			Attributes: map[string]string{api.AttributeUserID: "=a|b", "tenant": `c\d`, "plan": "free", "region": "eu", "token": "secret"},
		})
	}
	ask()
	s.guess("192.0.2.1")
	p := signedIn(t, s, 1440)
	p.visit("denials")
	p.provoke("the denial is not shown", denied("free", "1 fixed window", "over the limit", "GET /orders"), func() {
		ask()
		p.press("Search")
	})
	p.save("Download CSV")
	p.until("nothing was saved", `window.saved?.includes("/orders")`)
	if text := eval[string](p, "window.saved"); !strings.HasPrefix(text, `"first","last","count","client","rule"`) || !strings.Contains(text, `,"'=a\|b|c\\d","free",`) || !strings.Contains(text, `"192.0.2.1","demo-login"`) {
		t.Errorf("the file is\n%s", text)
	}

	id := eval[string](p, `[...document.querySelectorAll("[aria-label=Denials] tbody tr")].find((r) => r.innerText.includes("demo-login")).cells[8].innerText`)
	p.visit("denials/q=" + id)
	p.until("the request is not found by its ID", denied("demo-login", id)+` && document.querySelectorAll("[aria-label=Denials] tbody tr").length === 1`)
	p.visit("denials/since=1h")
	p.until("the last hour has no denials", denied("demo-login"))
	p.visit("denials/since=" + time.Now().Add(24*time.Hour).UTC().Format("2006-01-02 15:04"))
	p.shows("None among the last")
	p.visit("denials/since=yesterday")
	p.shows("Not a time: write 2h, 14:05")

	p.visit("denials")
	p.click("it can't be explained", `[...document.querySelectorAll("[aria-label=Denials] tbody tr")].find((r) => r.innerText.includes("free"))?.querySelector("a[href*=explain]")`)
	p.shows("What is known of a request that free denied.")
	p.shows("Its address is not known")
	p.shows("0 of 1")
	for label, want := range map[string]string{"Method": "GET", "Path": "/orders", "User": "=a|b", "Attributes, name: value": "plan: free\ntenant: c\\d\nregion: eu", "Address": "192.0.2.1"} {
		p.until(label+" is another one", fmt.Sprintf(`[...document.querySelectorAll("label")].find((l) => l.firstChild.textContent === %q)?.querySelector("input, textarea").value === %q`, label, want))
	}
	p.until("the address does not have the request", `location.hash.includes("orders")`)
	if status := s.ask(http.MethodDelete, "/api/v1/rules/free", nil, nil); status != http.StatusNoContent && status != http.StatusOK {
		t.Fatal(status)
	}
	p.do(chromedp.Reload())
	p.until("a denial of a rule that is gone is not explained", shown("What is known of a request that free denied.")+` && document.querySelector("main tbody").innerText.includes("demo-ban")`)
}

// A client that is an API key is found by the key. An exception for it ends at the time that was typed.
func TestExceptionOfAKey(t *testing.T) {
	t.Parallel()
	s := ruled(t)
	s.put("keys", `{"scope": "per_api_key", `+once)
	ask := func() {
		s.post("/api/v1/rate-limit/evaluate", api.EvaluateRequest{Path: "/x", IP: "192.0.2.9", Attributes: map[string]string{api.AttributeAPIKey: "key-A"}})
	}
	ask()
	ask()
	p := signedIn(t, s, 1280)
	p.visit("client/key-A")
	p.until("its denial is not found", denied("keys", "over the limit"))
	p.shows("0 of 1")
	end := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Minute)
	const field = `[...document.querySelectorAll("label")].find((l) => l.firstChild.textContent.startsWith("Ends:"))?.querySelector("input")`
	p.until("the rule is not chosen", `document.querySelector("[aria-label='The override, as YAML']")?.value.includes("limit: 2")`)
	p.act("no end can be typed", field, setValue(`() => "soon"`))
	p.until("what is no time can be put in force", button("Put in force")+".disabled")
	p.act("no end can be typed", field, setValue(fmt.Sprintf("() => %q", end.Format("2006-01-02 15:04"))))
	p.press("Put in force")
	p.shows("In force for this client until " + end.Format("2006-01-02 15:04") + ": the override below.")
	if saved := s.rule("keys"); len(saved.Overrides) != 1 || !saved.Overrides[0].Until.Equal(end) || saved.Overrides[0].Limits[0].Limit != 2 {
		t.Errorf("the rule has the overrides %+v", saved.Overrides)
	}
	p.press("Without an end")
	p.press("Put in force")
	p.shows("In force for this client: the override below.")
}
