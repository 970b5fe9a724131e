package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"
)

// An admin is the handler of the admin listener. On loopback it guards against the
// pages in the operator's own browser: a page may send requests there, and by
// binding its name to 127.0.0.1 it may even read the answers. Elsewhere it always
// has tokens.
type admin struct {
	guarded     bool     // whether the listener is on loopback
	tokens      tokenSet // one of which is needed; none: nothing is needed
	bodyTimeout time.Duration
}

func (a *admin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	boundBody(w, r, a.bodyTimeout)
	if a.guarded {
		if err := checkOrigin(r); err != nil {
			writeProblem(w, err)
			return
		}
	}
	if len(a.tokens) > 0 {
		if err := a.tokens.check(r.Header["Authorization"]); err != nil {
			writeProblem(w, err)
			return
		}
	}
	name, ok := strings.CutPrefix(r.URL.Path, "/debug/pprof/")
	if !ok {
		writeProblem(w, errNotFound(r.URL.Path))
		return
	}
	switch name {
	case "cmdline":
		pprof.Cmdline(w, r)
	case "profile":
		pprof.Profile(w, r)
	case "symbol":
		pprof.Symbol(w, r)
	case "trace":
		pprof.Trace(w, r)
	default:
		pprof.Index(w, r)
	}
}

// checkOrigin refuses a request that was not made to this machine by name, or that
// was made by a page of another origin.
func checkOrigin(r *http.Request) error {
	if !isLocalHost(r.Host) {
		return forbidden(fmt.Sprintf("Host is %q; allowed: localhost or a loopback address", clip(r.Host)))
	}
	for _, origin := range r.Header["Origin"] {
		if origin != "http://"+r.Host && origin != "https://"+r.Host {
			return forbidden(fmt.Sprintf("Origin is %q; allowed: none, or http://%s", clip(origin), clip(r.Host)))
		}
	}
	return nil
}

// isLocalHost reports whether a Host field (host or host:port) means this machine.
func isLocalHost(host string) bool {
	if addrPort, err := netip.ParseAddrPort(host); err == nil {
		return addrPort.Addr().IsLoopback()
	}
	name, _, _ := strings.Cut(host, ":")
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.IsLoopback()
}
