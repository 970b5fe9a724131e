package grpclimit_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
)

func enforced(t testing.TB, store stint.Store, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	return must.Get(enforce.New(enforce.Config{Store: store, Set: set}))(t)
}

// standing enforces rules in memory where time stands still.
func standing(t testing.TB, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	return enforced(t, memstore.New(memstore.Config{Now: at.Time}), list...)
}

// bursts is a rule of the limit "burst".
func bursts(id, path string, scope ...string) rules.Rule {
	r := rules.Rule{ID: id, Scope: scope, Limits: []stint.Limit{burst()}}
	if path != "" {
		r.Match.Paths = []string{path}
	}
	if !slices.Contains(scope, rules.Global) {
		r.Missing = rules.MissingDeny
	}
	return r
}

// A call is a POST to its authority with its metadata as header, and Describe tells the rest.
func TestRulesSeeTheCall(t *testing.T) {
	asked := make(chan rules.Request, 1)
	limits := newServer(t, grpclimit.Config{
		Rules:   standing(t, bursts("users", "", rules.PerUser)),
		Clients: resolver(t, clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}),
		Describe: func(_ context.Context, method string, r *rules.Request) error {
			r.User = r.Header.Get("User")
			request := *r
			request.Header = r.Header.Clone()
			asked <- request
			if method != check {
				t.Errorf("described %s", method)
			}
			return nil
		},
	})
	conn := serve(t, intercepted(limits)...)
	_, _, err := invoke(metadata.AppendToOutgoingContext(bounded(t), "user", "ann", "x-plan", "free", "x-forwarded-for", "192.0.2.1"), conn)
	expectCode(t, err, codes.OK)
	r := <-asked
	if r.Method != "POST" || r.Path != check || r.Host != conn.Target() || r.Address != "192.0.2.1" || r.Header.Get("X-Plan") != "free" {
		t.Errorf("described as %+v", r)
	}
	for name := range r.Header {
		if strings.HasPrefix(name, ":") {
			t.Errorf("%s is no field", name)
		}
	}
	_, _, err = invoke(bounded(t), conn) // without a user, which the rule does not pass
	<-asked
	expectCode(t, err, codes.ResourceExhausted)
	if retry, subject, description := details(t, err); retry != -1 || subject != "rule:users" || description != "the call lacks what the rule asks for" {
		t.Errorf("details: %v, %q, %q", retry, subject, description)
	}
}

// The tap handle can't hold a call, since it would hold its connection: it refuses what the
// interceptors hold.
func TestRulesThatWait(t *testing.T) {
	waits := bursts("waits", "", rules.Global)
	waits.OnExceed, waits.MaxWait = rules.Wait, bounds.MaxWaitLimit
	limits := newServer(t, grpclimit.Config{Rules: standing(t, waits)})
	conn := serve(t, grpc.InTapHandle(limits.TapHandle()))
	for range 2 {
		_, _, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
	}
	_, _, err := invoke(bounded(t), conn)
	expectDenial(t, err, "rule:waits")

	synctest.Test(t, func(t *testing.T) {
		limits := newServer(t, grpclimit.Config{Rules: enforced(t, memstore.New(memstore.Config{}), waits)})
		start := time.Now()
		for i, want := range []time.Duration{0, 0, 300 * time.Millisecond, 600 * time.Millisecond} {
			_, err := limits.UnaryServerInterceptor()(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: check},
				func(context.Context, any) (any, error) { return nil, nil })
			if err != nil || time.Since(start) != want {
				t.Errorf("call %d after %v (%v), want %v", i, time.Since(start), err, want)
			}
		}
	})
}
