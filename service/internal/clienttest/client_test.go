package clienttest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/storetest"
)

func TestVerbs(t *testing.T) {
	policy := policyOf(t, "pair", stint.FixedWindow(5, time.Hour), stint.SlidingWindowLog(3, time.Hour))
	c, ctx := openPolicies(t, policy), t.Context()
	if a, err := c.Check(ctx, api.Request{Key: "k", Permits: 95}); err != nil || !a.Allowed || a.Remaining != 5 || a.Algorithm != "TOKEN_BUCKET" || a.At != int64(start) {
		t.Errorf("Check: %+v, %v", a, err)
	}
	if a, err := c.Check(ctx, api.Request{Key: "k", Permits: 6}); err != nil || a.Allowed || a.RetryAfterMicros != 100_000 {
		t.Errorf("a denied Check: %+v, %v", a, err)
	}
	if a, err := c.Check(ctx, api.Request{}); err != nil || a.Key != "127.0.0.1" {
		t.Errorf("a Check without a key: %+v, %v", a, err)
	}
	answers, err := c.CheckAll(ctx, []api.Request{{Key: "k", Policy: "pair", Permits: 2}, {Key: "k", Policy: "pair", Permits: 2}, {Key: "<é&>"}})
	if err != nil || len(answers) != 3 || !answers[0].Allowed || answers[1].Allowed || answers[1].Policy != "pair" || answers[2].Key != "<é&>" {
		t.Errorf("CheckAll: %+v, %v", answers, err)
	}
	if a, err := c.Remaining(ctx, api.Request{Key: "k", Policy: "pair"}); err != nil || a.Remaining != 1 || a.Limit != 3 {
		t.Errorf("Remaining: %+v, %v", a, err)
	}
	if a, err := c.Settle(ctx, api.Request{Key: "k", Permits: -5}); err != nil || a.Applied != -5 || a.Remaining != 10 {
		t.Errorf("Settle: %+v, %v", a, err)
	}
	if a, err := c.Settle(ctx, api.Request{Key: "k"}); err != nil || a.Applied != 0 || a.Remaining != 10 {
		t.Errorf("Settle of 0: %+v, %v", a, err)
	}
	if a, err := c.Reset(ctx, api.Request{Key: "k"}); err != nil || !a.Reset || a.Algorithm != "" {
		t.Errorf("Reset: %+v, %v", a, err)
	}
	if a, err := c.Remaining(ctx, api.Request{Key: "k"}); err != nil || a.Remaining != 100 {
		t.Errorf("Remaining after Reset: %+v, %v", a, err)
	}
}

// TestCheckAllInBatches: requests beyond a batch's size go in further ones; the
// answers before a fault come with it.
func TestCheckAllInBatches(t *testing.T) {
	c := openPolicies(t)
	requests := make([]api.Request, 2*bounds.MaxBatch+1)
	for i := range requests {
		requests[i] = api.Request{Key: "k", Algorithm: "fixed_window"}
	}
	answers, err := c.CheckAll(t.Context(), requests)
	if err != nil || len(answers) != len(requests) || !answers[99].Allowed || answers[100].Allowed {
		t.Errorf("%d answers, %v", len(answers), err)
	}
	requests[bounds.MaxBatch+3].Permits = 101
	answers, err = c.CheckAll(t.Context(), requests)
	if !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), "element 3: permits") || len(answers) != bounds.MaxBatch {
		t.Errorf("%d answers, %v", len(answers), err)
	}
	if answers, err = c.CheckAll(t.Context(), nil); err != nil || len(answers) != 0 {
		t.Errorf("of none: %v, %v", answers, err)
	}
}

// holdOf is a request on a hold that the service does not know, and that has not expired.
func holdOf(r api.Request) api.HoldRequest {
	return api.HoldRequest{Request: r, ID: "unknown", ExpiresAt: int64(start.Add(time.Minute))}
}

func TestRefusedInput(t *testing.T) {
	c, ctx := openPolicies(t), t.Context()
	check := func(r api.Request) error { _, err := c.Check(ctx, r); return err }
	checkAll := func(r api.Request) error { _, err := c.CheckAll(ctx, []api.Request{{}, r}); return err }
	remaining := func(r api.Request) error { _, err := c.Remaining(ctx, r); return err }
	reset := func(r api.Request) error { _, err := c.Reset(ctx, r); return err }
	settle := func(r api.Request) error { _, err := c.Settle(ctx, r); return err }
	reserve := func(r api.Request) error { _, err := c.Reserve(ctx, holdOf(r)); return err }
	commit := func(r api.Request) error { _, err := c.Commit(ctx, holdOf(r)); return err }
	cancel := func(r api.Request) error { _, err := c.Cancel(ctx, holdOf(r)); return err }
	for name, row := range map[string]struct {
		ask     func(api.Request) error
		request api.Request
		detail  string // of the service's problem; "" where the client itself refuses
	}{
		"check, algorithm":      {check, api.Request{Key: "k", Algorithm: "SAND"}, "algorithm is"},
		"check, both":           {check, api.Request{Key: "k", Algorithm: "FIXED_WINDOW", Policy: "p"}, "policy is"},
		"check, key":            {check, api.Request{Key: "\xff"}, ""},
		"check, long key":       {check, api.Request{Key: strings.Repeat("k", 257)}, "key is"},
		"check all, key":        {checkAll, api.Request{Key: "\n"}, ""},
		"remaining, policy":     {remaining, api.Request{Key: "k", Policy: "none"}, "policy is"},
		"remaining, too many":   {remaining, api.Request{Key: "k", Permits: 101}, "permits is"},
		"remaining, below none": {remaining, api.Request{Key: "k", Permits: -1}, ""},
		"remaining, key":        {remaining, api.Request{Key: "\xff"}, ""},
		"remaining, keep":       {remaining, api.Request{Key: "k", Keep: 101}, "keep is"},
		"remaining, keep < 0":   {remaining, api.Request{Key: "k", Keep: -1}, ""},
		"check, keep":           {check, api.Request{Key: "k", Keep: 101}, "keep is"},
		"check, keep < 0":       {check, api.Request{Key: "k", Keep: -1}, "keep is"},
		"check all, keep":       {checkAll, api.Request{Key: "k", Keep: 101}, "element 1: keep is"},
		"reset, keep":           {reset, api.Request{Key: "k", Keep: 1}, ""},
		"settle, keep":          {settle, api.Request{Key: "k", Keep: 1, Permits: 1}, ""},
		"reset, permits":        {reset, api.Request{Key: "k", Permits: 1}, ""},
		"reset, policy":         {reset, api.Request{Key: "k", Policy: "none"}, "policy is"},
		"settle, key":           {settle, api.Request{Key: "\x7f", Permits: 1}, ""},
		"reserve, key":          {reserve, api.Request{Key: "\xff"}, ""},
		"commit, key":           {commit, api.Request{Key: "\xff"}, ""},
		"cancel, key":           {cancel, api.Request{Key: "\xff"}, ""},
		"settle, leaky refund ": {settle, api.Request{Key: "k", Algorithm: "LEAKY_BUCKET", Permits: -1}, "permits is"},
	} {
		err := row.ask(row.request)
		problem, told := errors.AsType[*api.Problem](err)
		if !errors.Is(err, stint.ErrInvalid) || told != (row.detail != "") ||
			told && (problem.Status != 400 || !strings.Contains(problem.Detail, row.detail)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTokens(t *testing.T) {
	const token = "sesame-sesame-sesame"
	url := serve(t, storetest.NewClock(start), func(c *server.Config) { c.API.Tokens = []string{token} })
	if _, err := open(t, url, client.Options{Token: token}).Check(t.Context(), api.Request{Key: "k"}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	const wrong = "open-open-open"
	_, err := open(t, url, client.Options{Token: wrong}).Check(t.Context(), api.Request{Key: "k"})
	var problem *api.Problem
	if !errors.As(err, &problem) || problem.Status != http.StatusUnauthorized || !errors.Is(err, stint.ErrUnavailable) || strings.Contains(err.Error(), wrong) {
		t.Errorf("with another: %v", err)
	}
}

func TestTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(answer(200, "application/json", `{"key":"k","reset":true}`))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of the handshake that fails
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	c := open(t, s.URL, client.Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}})
	if _, err := c.Reset(t.Context(), api.Request{Key: "k"}); err != nil {
		t.Errorf("with its certificate: %v", err)
	}
	if _, err := open(t, s.URL, client.Options{}).Reset(t.Context(), api.Request{Key: "k"}); !errors.Is(err, stint.ErrUnavailable) {
		t.Errorf("without: %v, want ErrUnavailable", err)
	}
	if _, err := open(t, s.URL, client.Options{HTTPClient: s.Client()}).Reset(t.Context(), api.Request{Key: "k"}); err != nil {
		t.Errorf("with an HTTP client: %v", err)
	}
}

func TestPathBeforeTheAPI(t *testing.T) {
	s := handle(t, func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		if r.URL.Path != "/limits"+apipath.Remaining || r.URL.Query().Get("key") != "a b&c" || user != "u" || password != "hunter2" {
			t.Errorf("asked for %s as %s", r.URL, user)
		}
		answer(200, "application/json", `{"key":"a b&c","algorithm":"TOKEN_BUCKET","limit":5,"remaining":5,"allowed":true,"at":1,"source":"store"}`)(w, r)
	})
	c := open(t, strings.Replace(s.URL, "http://", "http://u:hunter2@", 1)+"/limits/", client.Options{})
	if _, err := c.Remaining(t.Context(), api.Request{Key: "a b&c"}); err != nil {
		t.Error(err)
	}
}

func TestRefusedOptions(t *testing.T) {
	const sound = "http://127.0.0.1:1"
	bucket := stint.TokenBucket(5, stint.PerSecond(1))
	for name, row := range map[string]struct {
		url     string
		options client.Options
		want    string
	}{
		"no url":            {"", client.Options{}, "url is "},
		"no scheme":         {"127.0.0.1:80", client.Options{}, "url is "},
		"no host":           {"http:///x", client.Options{}, "url is "},
		"another scheme":    {"redis://u:hunter2@host", client.Options{}, "url is "},
		"a query":           {sound + "?token=hunter2", client.Options{}, "url is "},
		"a fragment":        {sound + "#hunter2", client.Options{}, "url is "},
		"no url at all":     {"http://u:hunter2@ho st", client.Options{}, "url is "},
		"user and token":    {"http://u:hunter2@host", client.Options{Token: "t"}, "token is "},
		"token":             {sound, client.Options{Token: "hunter2\r\nX: y"}, "token is "},
		"timeout":           {sound, client.Options{Timeout: -1}, "timeout is "},
		"idle":              {sound, client.Options{MaxIdleConns: -1}, "idle connections is "},
		"tls without https": {sound, client.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}}, "tls is "},
		"tls and client":    {"https://host", client.Options{TLS: &tls.Config{MinVersion: tls.VersionTLS13}, HTTPClient: &http.Client{}}, "tls is "},
		"idle and client":   {sound, client.Options{MaxIdleConns: 1, HTTPClient: &http.Client{}}, "idle connections is "},
		"default":           {sound, client.Options{Defaults: []stint.Limit{{}}}, "default 0: algorithm is "},
		"default twice":     {sound, client.Options{Defaults: []stint.Limit{bucket, bucket}}, "default 1 is "},
	} {
		_, err := client.Open(row.url, row.options)
		if !errors.Is(err, stint.ErrInvalid) || !strings.HasPrefix(err.Error(), "stint: "+row.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want ErrInvalid beginning with %q", name, err, row.want)
		}
	}
}

// TestBuiltInDefaults: the client takes for the service's defaults what they are.
func TestBuiltInDefaults(t *testing.T) {
	defaults := client.Options{}.EnsureDefaults().Defaults
	want := config.DefaultLimits()
	for _, limit := range defaults {
		if limit != want[limit.Algorithm] {
			t.Errorf("%+v, the service's is %+v", limit, want[limit.Algorithm])
		}
	}
	if len(defaults) != len(want) {
		t.Errorf("%d defaults, the service has %d", len(defaults), len(want))
	}
}
