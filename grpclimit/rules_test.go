package grpclimit_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

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

func newRules(t testing.TB, config grpclimit.Config) *grpclimit.Server {
	t.Helper()
	return must.Get(grpclimit.New(config))(t)
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

// expectRule checks a denial by the rule and its limit "burst".
func expectRule(t *testing.T, err error, rule string) {
	t.Helper()
	expectCode(t, err, codes.ResourceExhausted)
	retry, subject, description := details(t, err)
	if retry != 300*time.Millisecond || subject != "rule:"+rule+"/burst" || description != "the limit of 2 permits is reached" {
		t.Errorf("details: %v, %q, %q; want rule %s", retry, subject, description, rule)
	}
}

// The rule of a service holds for its methods, unary and streaming, and is named in denials.
func TestRules(t *testing.T) {
	limits := newRules(t, grpclimit.Config{Rules: standing(t, bursts("health", "/grpc.health.v1.Health/*", rules.PerIP))})
	conn := serve(t, intercepted(limits)...)
	for _, remaining := range []string{"1", "0"} {
		header, _, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
		expectMetadata(t, header, "2", remaining, "1790000001", "")
	}
	_, trailer, err := invoke(bounded(t), conn)
	expectRule(t, err, "health")
	expectMetadata(t, trailer, "2", "0", "1790000001", "1")
	_, err = watch(bounded(t), t, conn)
	expectRule(t, err, "health")

	stream := openEcho(bounded(t), t, conn)
	if err := say(t, stream, ""); err != nil {
		t.Errorf("a call of another service: %v", err)
	}
	header := must.Get(stream.Header())(t)
	expectMetadata(t, header, "", "", "", "")
}

// A call is a POST to its authority with its metadata as header, and Describe tells the rest.
func TestRulesSeeTheCall(t *testing.T) {
	asked := make(chan rules.Request, 1)
	limits := newRules(t, grpclimit.Config{
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

func TestRulesBan(t *testing.T) {
	banned := rules.Rule{ID: "banned", Scope: []string{rules.Global}, Banned: true}
	limits := newRules(t, grpclimit.Config{Rules: standing(t, banned)})
	for name, options := range map[string][]grpc.ServerOption{
		"interceptors": intercepted(limits), "tap": {grpc.InTapHandle(limits.TapHandle())},
	} {
		_, trailer, err := invoke(bounded(t), serve(t, options...))
		expectCode(t, err, codes.ResourceExhausted)
		if retry, subject, description := details(t, err); retry != -1 || subject != "rule:banned" || description != "the client is banned" {
			t.Errorf("%s: details: %v, %q, %q", name, retry, subject, description)
		}
		expectMetadata(t, trailer, "", "", "", "")
	}
}

func TestRulesFailures(t *testing.T) {
	costly := bursts("costly", "", rules.Global)
	costly.Cost.Header = "cost"
	unambiguous := must.Get(enforce.New(enforce.Config{Store: unavailable(), RejectAmbiguousPaths: true}))(t)
	for name, test := range map[string]struct {
		config grpclimit.Config
		cost   string
		code   codes.Code
		text   string
	}{
		"cost": {grpclimit.Config{Rules: standing(t, costly)}, "much", codes.InvalidArgument, "Cost; allowed: a cost"},
		"path": {grpclimit.Config{Rules: unambiguous, Describe: func(_ context.Context, method string, r *rules.Request) error {
			r.Path = "/" + method
			return nil
		}}, "1", codes.InvalidArgument, "path; allowed: a path"},
		"store":    {grpclimit.Config{Rules: enforced(t, unavailable(), costly)}, "1", codes.Unavailable, "could not be decided"},
		"describe": {grpclimit.Config{Rules: standing(t, costly), Describe: func(context.Context, string, *rules.Request) error { return errors.New("secret") }}, "1", codes.Internal, "could not be applied"},
		"a status": {grpclimit.Config{Rules: standing(t, costly), Describe: func(context.Context, string, *rules.Request) error { return status.Error(codes.Unauthenticated, "who") }}, "1", codes.Unauthenticated, "who"},
	} {
		limits := newRules(t, test.config)
		_, _, err := invoke(metadata.AppendToOutgoingContext(bounded(t), "cost", test.cost), serve(t, intercepted(limits)...))
		expectCode(t, err, test.code)
		if text := status.Convert(err).Message(); !strings.Contains(text, test.text) || strings.Contains(text, "secret") {
			t.Errorf("%s: %q", name, text)
		}
	}
	if _, err := grpclimit.New(grpclimit.Config{}); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("without a limiter: %v", err)
	}
}

// With the interceptors besides, a call is decided once, also where no rule matches.
func TestRulesTapAndInterceptors(t *testing.T) {
	var mu sync.Mutex
	var told []string
	limits := newRules(t, grpclimit.Config{
		Rules: standing(t, bursts("health", "/grpc.health.v1.Health/*", rules.Global)),
		Decided: func(_ context.Context, method string, v *enforce.Verdict) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, method+" by "+strings.Join(v.Matched, "+"))
		},
	})
	conn := serve(t, append(intercepted(limits), grpc.InTapHandle(limits.TapHandle()))...)
	header, _, err := invoke(bounded(t), conn)
	expectCode(t, err, codes.OK)
	expectMetadata(t, header, "2", "1", "1790000001", "")
	must.Do(t, say(t, openEcho(bounded(t), t, conn), ""))
	mu.Lock()
	defer mu.Unlock()
	if want := []string{check + " by health", echo + " by "}; !slices.Equal(told, want) {
		t.Errorf("decided were %q, want %q", told, want)
	}
}

// The tap handle can't hold a call, since it would hold its connection: it refuses what the
// interceptors hold.
func TestRulesThatWait(t *testing.T) {
	waits := bursts("waits", "", rules.Global)
	waits.OnExceed, waits.MaxWait = rules.Wait, bounds.MaxWaitLimit
	limits := newRules(t, grpclimit.Config{Rules: standing(t, waits)})
	conn := serve(t, grpc.InTapHandle(limits.TapHandle()))
	for range 2 {
		_, _, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
	}
	_, _, err := invoke(bounded(t), conn)
	expectRule(t, err, "waits")

	synctest.Test(t, func(t *testing.T) {
		limits := newRules(t, grpclimit.Config{Rules: enforced(t, memstore.New(memstore.Config{}), waits)})
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

// A turn that comes after the call's deadline is left to others, by the interceptors and by the tap
// handle, which else leaves the holding to them.
func TestRulesLateTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := rules.Rule{ID: "turns", Scope: []string{rules.Global}, Limits: []stint.Limit{stint.LeakyBucket(9, stint.Every(time.Minute))}}
		limits := newRules(t, grpclimit.Config{Rules: enforced(t, memstore.New(memstore.Config{}), turns)})
		reached := 0
		unary := func(ctx context.Context) error {
			_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: check},
				func(context.Context, any) (any, error) { reached++; return nil, nil })
			return err
		}
		expectCode(t, unary(t.Context()), codes.OK)
		start := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for range 3 {
			_, tapped := limits.TapHandle()(short, &tap.Info{FullMethodName: check})
			for _, err := range []error{unary(short), tapped} {
				expectCode(t, err, codes.ResourceExhausted)
				if retry, subject, _ := details(t, err); retry != time.Minute || subject != "rule:turns" {
					t.Errorf("RetryInfo %v of %q (%v), want a minute", retry, subject, err)
				}
			}
		}
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		held, err := limits.TapHandle()(long, &tap.Info{FullMethodName: check})
		if err != nil || time.Since(start) != 0 {
			t.Errorf("the tap handle: %v after %v", err, time.Since(start))
		}
		if err := unary(held); err != nil || reached != 2 || time.Since(start) != time.Minute {
			t.Errorf("%d calls reached the handler (%v), the last after %v, want 1m", reached, err, time.Since(start))
		}
	})
}

// With Messages every message is decided, after the start of the stream.
func TestRulesOfMessages(t *testing.T) {
	limits := newRules(t, grpclimit.Config{Rules: standing(t, bursts("echo", echo, rules.Global)), Messages: true})
	stream := openEcho(bounded(t), t, serve(t, intercepted(limits)...))
	must.Do(t, say(t, stream, ""))
	expectRule(t, say(t, stream, ""), "echo")
}
