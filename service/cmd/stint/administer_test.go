package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/stint-go/stint/internal/must"
)

// startAdmin starts a service whose rules are kept in its store, and returns the URL of its admin listener.
func startAdmin(t *testing.T, flags ...string) (base, admin string) {
	t.Helper()
	base, admin, stop := serveAdmin(t, flags...)
	t.Cleanup(stop)
	return base, admin
}

// A change is not applied if somebody else edits the rules after the comparison.
func TestApplyLosesNoEdit(t *testing.T) {
	_, admin := startAdmin(t)
	mine := writeFile(t, `[{id: mine, scope: global, unlimited: true}]`)
	theirs := writeFile(t, `[{id: theirs, scope: global, unlimited: true}]`)
	target, meddled := must.Get(url.Parse(admin))(t), false
	proxy := proxyTo(t, target, func(r *http.Request) {
		if r.Method == http.MethodPut && !meddled {
			meddled = true
			says(t, nil, exitOK, "", "rules", "apply", "--admin", admin, theirs)
		}
	})
	says(t, nil, exitFailed, "somebody else edited the rules", "rules", "apply", "--admin", proxy, mine)
	listed := says(t, nil, exitOK, `"theirs"`, "rules", "list", "--json", "--admin", admin)
	if strings.Contains(listed, `"mine"`) {
		t.Errorf("the rules are %s", listed)
	}
}

// proxyTo forwards requests after look has seen them.
func proxyTo(t *testing.T, target *url.URL, look func(*http.Request)) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		look(r)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}
