package mcplimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/leaks"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/mcplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const at = stint.Instant(1_790_000_000_123_456)

// newLimiter makes a limiter on an empty memory store whose clock stands still.
func newLimiter(t *testing.T, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return limiterOn(t, memstore.New(memstore.Config{Now: at.Time}), limits...)
}

func limiterOn(t *testing.T, store stint.Store, limits ...stint.Limit) *stint.Limiter {
	t.Helper()
	return must.Get(stint.New(store, "test", limits...))(t)
}

func newLimits(t *testing.T, config mcplimit.Config) *mcplimit.Middleware {
	t.Helper()
	return must.Get(mcplimit.New(config))(t)
}

// named is a connection with a session's ID, as those of HTTP have.
type named struct {
	mcp.Transport
	id string
}

type namedConnection struct {
	mcp.Connection
	id string
}

func (n named) Connect(ctx context.Context) (mcp.Connection, error) {
	connection, err := n.Transport.Connect(ctx)
	return namedConnection{connection, n.id}, err
}

func (n namedConnection) SessionID() string { return n.id }

// as makes the calls of a session those of a user, as a verified token does over HTTP.
func as(user string) mcp.Middleware {
	return func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
			if call, ok := request.(*mcp.CallToolRequest); ok && user != "" {
				call.Extra = &mcp.RequestExtra{TokenInfo: &auth.TokenInfo{UserID: user}}
			}
			return next(ctx, method, request)
		}
	}
}

// connect starts a server with the tools search and fetch behind limits, and connects a client to it.
func connect(t *testing.T, limits *mcplimit.Middleware, user, session, client string) *mcp.ClientSession {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "test"}, nil)
	for _, name := range []string{"search", "fetch"} {
		mcp.AddTool(server, &mcp.Tool{Name: name}, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil, nil
		})
	}
	server.AddReceivingMiddleware(as(user), limits.Wrap)
	here, there := mcp.NewInMemoryTransports()
	must.Get(server.Connect(t.Context(), named{there, session}, nil))(t)
	connected := must.Get(mcp.NewClient(&mcp.Implementation{Name: client}, nil).Connect(t.Context(), here, nil))(t)
	t.Cleanup(func() {
		if err := connected.Close(); err != nil {
			t.Error(err)
		}
	})
	return connected
}

// told is what a model is told by a tool, and after how many microseconds it may come again.
func told(t *testing.T, session *mcp.ClientSession, tool string) string {
	t.Helper()
	result := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool}))(t)
	return textOf(t, result)
}

func textOf(t *testing.T, result mcp.Result) string {
	t.Helper()
	called, ok := result.(*mcp.CallToolResult)
	if !ok || len(called.Content) != 1 {
		t.Fatalf("%#v is no result of a tool with one text", result)
	}
	text := called.Content[0].(*mcp.TextContent).Text
	if called.IsError != (text != "done") {
		t.Errorf("isError is %v of %q", called.IsError, text)
	}
	if wait, has := called.Meta["retryAfterMicros"]; has {
		text += fmt.Sprintf(" [%.0f]", wait)
	}
	return text
}

// onlyTools costs 1 for tools and nothing for what else a client asks.
func onlyTools(_ context.Context, c *mcplimit.Call) (int64, error) {
	if c.Tool == "" {
		return 0, nil
	}
	return 1, nil
}

const (
	done    = "done"
	limited = "Rate limit reached: this call was not run. Wait 2 s, then repeat it. [1500000]"
	above   = "This call was not run: it costs more than its rate limit ever allows. Do not repeat it. Ask for less."
	banned  = "This call was not run: a rule of this server denies it. Do not repeat it."
	broken  = "This call was not run: its rate limit could not be checked. Try again later."
	invalid = "This call was not run: its rate limit does not take what it counts by or what it costs."
)

// A tool is denied by a result that a model reads, other methods by an error of JSON-RPC.
func TestDenials(t *testing.T) {
	session := connect(t, newLimits(t, mcplimit.Config{
		Limiter: newLimiter(t, stint.TokenBucket(5, stint.Every(1500*time.Millisecond))),
		Key:     func(context.Context, *mcplimit.Call) (string, error) { return "k", nil },
		Cost: func(_ context.Context, c *mcplimit.Call) (int64, error) {
			return map[string]int64{"tools/callsearch": 3, "tools/callfetch": 2, "tools/list": 2}[c.Method+c.Tool], nil
		},
	}), "", "", "client")
	if got := told(t, session, "search"); got != done {
		t.Errorf("the first call is told %q", got)
	}
	if got, want := told(t, session, "search"), limited; got != want {
		t.Errorf("the second call is told %q, want %q", got, want)
	}
	if got := told(t, session, "fetch"); got != done {
		t.Errorf("a call that fits is told %q", got)
	}
	_, err := session.ListTools(t.Context(), nil) // which needs 2 where none is left
	fault, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || fault.Code != 429 || string(fault.Data) != `{"retryAfterMicros":3000000}` || fault.Message != "Rate limit reached: this call was not run. Wait 3 s, then repeat it." {
		t.Errorf("tools/list ends with %#v", err)
	}
}

// By default every call but a ping is charged: to the token's user, or to a key that callers without a user share.
func TestDefaults(t *testing.T) {
	limiter := newLimiter(t, stint.FixedWindow(100, time.Hour))
	limits := newLimits(t, mcplimit.Config{Limiter: limiter})
	left := func(key string) int64 {
		d := must.Get(limiter.Peek(t.Context(), key))(t)
		return d.Remaining
	}
	first := connect(t, limits, "ann", "s1", "client")
	second := connect(t, limits, "", "s2", "other client")
	before := left("unknown")
	for range 3 {
		_, _ = told(t, first, "search"), told(t, second, "search")
	}
	if got := left("user:ann"); got != 97 {
		t.Errorf("%d are left to ann, want 97", got)
	}
	if got := left("unknown"); got != before-3 {
		t.Errorf("%d are left to those who have no user, want %d", got, before-3)
	}
}

// Pings and notifications reach a server whose limit is used up; other methods do not.
func TestFree(t *testing.T) {
	limits := newLimits(t, mcplimit.Config{Limiter: newLimiter(t, stint.TokenBucket(1, stint.PerHour(1)))})
	for method, want := range map[string]bool{"ping": true, "notifications/initialized": true, "resources/read": false} {
		must.Get(call(t.Context(), limits, nothing))(t)
		reached := false
		_, err := limits.Wrap(func(context.Context, string, mcp.Request) (mcp.Result, error) {
			reached = true
			return nil, nil
		})(t.Context(), method, &mcp.ServerRequest[*mcp.PingParams]{Session: new(mcp.ServerSession), Params: new(mcp.PingParams)})
		if reached != want || want != (err == nil) {
			t.Errorf("%s: reached the server %v, %v", method, reached, err)
		}
	}
}

func byRules(t *testing.T, list ...rules.Rule) *enforce.Limiter {
	t.Helper()
	set := must.Get(rules.Compile(list, rules.Options{}))(t)
	return must.Get(enforce.New(enforce.Config{Store: memstore.New(memstore.Config{Now: at.Time}), Set: set}))(t)
}

// Rules count by tool, by session and by user.
func TestRules(t *testing.T) {
	rule := func(id string, permits int64, scope ...string) rules.Rule {
		return rules.Rule{
			ID: id, Match: rules.Match{Paths: []string{"/tools/call"}}, Scope: scope, Missing: rules.MissingSkip,
			Limits: []stint.Limit{stint.FixedWindow(permits, time.Hour)},
		}
	}
	none := rules.Rule{ID: "fetch", Match: rules.Match{Attributes: map[string][]string{"tool": {"fetch"}}}, Scope: []string{rules.Global}, Banned: true}
	var denied []string
	limits := newLimits(t, mcplimit.Config{
		Rules: byRules(t, none, rule("tool", 9, "custom:tool"), rule("session", 4, "custom:session"), rule("user", 6, rules.PerUser)),
		Decided: func(_ context.Context, _ *mcplimit.Call, v *enforce.Verdict) {
			if !v.Allowed {
				denied = append(denied, v.Rule.ID)
			}
		},
	})
	for _, step := range []struct {
		user, session string
		calls         int
		denies        string
	}{
		{"ann", "s1", 5, "[session]"}, // 4 of her 6
		{"ann", "s2", 3, "[user]"},    // 2 more
		{"bob", "", 4, "[tool]"},      // 3 more of the tool's 9
		{"", "s3", 1, "[tool]"},
	} {
		denied = nil
		session := connect(t, limits, step.user, step.session, "client")
		for i := range step.calls {
			if got := told(t, session, "search"); (got == done) != (i < step.calls-1) {
				t.Errorf("call %d of %q in %q is told %q", i, step.user, step.session, got)
			}
		}
		if got := fmt.Sprint(denied); got != step.denies {
			t.Errorf("calls of %q in %q are denied by %s, want %s", step.user, step.session, got, step.denies)
		}
	}
	if got := told(t, connect(t, limits, "ann", "", "client"), "fetch"); got != banned {
		t.Errorf("a banned call is told %q, want %q", got, banned)
	}
}

// call asks for a tool without a transport. The tool is run if it is admitted.
func call(ctx context.Context, limits *mcplimit.Middleware, run func(context.Context)) (mcp.Result, error) {
	request := &mcp.CallToolRequest{Session: new(mcp.ServerSession), Params: &mcp.CallToolParamsRaw{Name: "search"}}
	return limits.Wrap(func(ctx context.Context, _ string, _ mcp.Request) (mcp.Result, error) {
		run(ctx)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: done}}}, nil
	})(ctx, "tools/call", request)
}

func nothing(context.Context) {}

// What a tool holds while it runs is committed with what it says that it cost.
func TestToolsHold(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(context.Context)
		left int64
	}{
		"says nothing":  {nothing, 990},
		"says its cost": {func(ctx context.Context) { mcplimit.Cost(ctx).Set(3) }, 997},
		"never ran":     {func(ctx context.Context) { mcplimit.Cost(ctx).Cancel() }, 1000},
		"panics":        {func(ctx context.Context) { mcplimit.Cost(ctx).Add(5); panic("no") }, 995},
		"runs for long": {func(context.Context) { time.Sleep(time.Hour) }, 990}, //nolint:forbidigo // the bubble's time
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tokens := stint.SlidingWindowCounter(1000, 24*time.Hour).Named("tokens")
				limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.Concurrency(1).Named("places").WithCost(1), tokens)
				limits := newLimits(t, mcplimit.Config{
					Limiter: limiter, Reserve: &stint.Hold{TTL: 10 * time.Second},
					Cost: func(context.Context, *mcplimit.Call) (int64, error) { return 10, nil },
				})
				func() {
					defer func() { _ = recover() }()
					_, _ = call(t.Context(), limits, func(ctx context.Context) {
						result, err := call(ctx, limits, func(context.Context) { t.Error("a second call has a place") })
						if err != nil || result.GetMeta()["retryAfterMicros"] != int64(1_000_000) {
							t.Errorf("a second call is told %v, %v", result, err)
						}
						test.run(ctx)
					})
				}()
				alone := must.Get(limiter.With(tokens))(t)
				if d, err := alone.Peek(t.Context(), "unknown"); err != nil || d.Remaining != test.left {
					t.Errorf("%d are left (%v), want %d", d.Remaining, err, test.left)
				}
				if result, err := call(t.Context(), limits, nothing); err != nil || textOf(t, result) != done {
					t.Errorf("when the place is free a call is told %v, %v", result, err)
				}
			})
		})
	}
}

// A call that lacks a place may come when the other limits admit it, and not when the hold expires.
func TestDenialByPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := limiterOn(t, memstore.New(memstore.Config{}), stint.FixedWindow(1, 30*time.Second), stint.Concurrency(1).Named("places").WithCost(1))
		limits := newLimits(t, mcplimit.Config{Limiter: limiter, Reserve: &stint.Hold{TTL: time.Hour}})
		must.Get(call(t.Context(), limits, func(ctx context.Context) {
			result, err := call(ctx, limits, nothing)
			if err != nil || result.GetMeta()["retryAfterMicros"] != int64(30_000_000) {
				t.Errorf("a second call is told %v, %v", result, err)
			}
		}))(t)
	})
}

// A commit that fails is told to Failed and sent again; a drain waits for it.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(memstore.New(memstore.Config{}))
		limiter := limiterOn(t, store, stint.FixedWindow(100, 24*time.Hour).FromFirst())
		var told []error
		limits := newLimits(t, mcplimit.Config{
			Limiter: limiter, Reserve: &stint.Hold{TTL: time.Minute},
			Failed: func(_ context.Context, c *mcplimit.Call, err error) {
				told = append(told, fmt.Errorf("%s: %w", c.Tool, err))
			},
		})
		must.Get(call(t.Context(), limits, func(ctx context.Context) {
			mcplimit.Cost(ctx).Set(70)
			store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
		}))(t)
		time.AfterFunc(time.Second, func() { store.Inject(nil) })
		if err := limits.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if d, err := limiter.Peek(t.Context(), "unknown"); err != nil || d.Remaining != 30 {
			t.Errorf("%d are left (%v), want 30", d.Remaining, err)
		}
		if failed, ok := errors.AsType[*enforce.EndError](errors.Join(told...)); len(told) != 1 || !ok || !failed.Repeated {
			t.Errorf("Failed is told %v", told)
		}
	})
}

// A call is held until the turn that a leaky bucket gives, and one that ends meanwhile does not run.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed error
		limits := newLimits(t, mcplimit.Config{
			Limiter: limiterOn(t, memstore.New(memstore.Config{}), stint.LeakyBucket(10, stint.PerHour(1))),
			Failed:  func(_ context.Context, _ *mcplimit.Call, err error) { failed = err },
		})
		start := time.Now()
		for range 2 {
			if result, err := call(t.Context(), limits, nothing); err != nil || textOf(t, result) != done {
				t.Fatal(result, err)
			}
		}
		if passed := time.Since(start); passed != time.Hour {
			t.Errorf("the second call ran after %v, want an hour", passed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		result, err := call(ctx, limits, func(context.Context) { t.Error("a call that has ended runs") })
		if err != nil || textOf(t, result) != broken || !errors.Is(failed, context.Canceled) {
			t.Errorf("a call that ends is told %v, %v; Failed %v", result, err, failed)
		}
	})
}

// What the functions of a configuration and the store do wrong is told by its kind alone.
func TestFailures(t *testing.T) {
	down := storetest.NewFaulty(memstore.New(memstore.Config{}))
	down.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: stint.ErrUnavailable} })
	secret := errors.New("secret")
	one := newLimiter(t, stint.FixedWindow(1, time.Hour))
	for name, test := range map[string]struct {
		config mcplimit.Config
		want   string
		wraps  error
	}{
		"the store": {mcplimit.Config{Limiter: limiterOn(t, down, stint.FixedWindow(1, time.Hour))}, broken, stint.ErrUnavailable},
		"a key": {mcplimit.Config{Limiter: one, Key: func(context.Context, *mcplimit.Call) (string, error) {
			return strings.Repeat("secret", 99), nil
		}}, invalid, stint.ErrInvalid},
		"the key's error": {mcplimit.Config{Limiter: one, Key: func(context.Context, *mcplimit.Call) (string, error) { return "", secret }}, broken, secret},
		"the cost's error": {mcplimit.Config{Limiter: one, Cost: func(context.Context, *mcplimit.Call) (int64, error) {
			return 0, fmt.Errorf("%w: secret", stint.ErrInvalid)
		}}, invalid, stint.ErrInvalid},
		"a limiter's error": {
			mcplimit.Config{LimiterOf: func(context.Context, *mcplimit.Call) (*stint.Limiter, error) { return nil, secret }},
			broken, stint.ErrUnavailable,
		},
		"a cost above the limit": {mcplimit.Config{Limiter: one, Cost: func(context.Context, *mcplimit.Call) (int64, error) { return 2, nil }}, above, nil},
		"no limiter":             {mcplimit.Config{LimiterOf: func(context.Context, *mcplimit.Call) (*stint.Limiter, error) { return nil, nil }}, done, nil},
		"a description": {
			mcplimit.Config{Rules: byRules(t), Describe: func(context.Context, *mcplimit.Call, *rules.Request) error { return secret }},
			broken, secret,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failed error
			test.config.Failed = func(_ context.Context, _ *mcplimit.Call, err error) { failed = err }
			result, err := call(t.Context(), newLimits(t, test.config), nothing)
			if err != nil || textOf(t, result) != test.want {
				t.Errorf("told %v, %v; want %q", result, err, test.want)
			}
			if !errors.Is(failed, test.wraps) {
				t.Errorf("Failed is told %v, want %v", failed, test.wraps)
			}
		})
	}
	own := &jsonrpc.Error{Code: 7, Message: "mine"}
	limits := newLimits(t, mcplimit.Config{Limiter: one, Key: func(context.Context, *mcplimit.Call) (string, error) {
		return "", fmt.Errorf("secret: %w", own)
	}})
	if _, err := call(t.Context(), limits, nothing); err != error(own) { //nolint:errorlint // without what wraps it
		t.Errorf("an error of JSON-RPC becomes %v", err)
	}
}

// Denied answers in the place of the default, unless it returns nothing.
func TestDenied(t *testing.T) {
	answer, stop := &mcp.CallToolResult{}, errors.New("stop")
	for _, test := range []struct {
		result mcp.Result
		err    error
	}{{answer, nil}, {nil, stop}, {nil, nil}} {
		limits := newLimits(t, mcplimit.Config{
			Limiter: newLimiter(t, stint.TokenBucket(1, stint.Every(1500*time.Millisecond))), Cost: onlyTools,
			Denied: func(_ context.Context, c *mcplimit.Call, v *enforce.Verdict) (mcp.Result, error) {
				if v.Reason() != stint.ReasonLimit || c.Tool != "search" {
					t.Errorf("Denied is asked for %s, which is denied by %s", c.Tool, v.Reason())
				}
				return test.result, test.err
			},
		})
		session := connect(t, limits, "", "", "client")
		_ = told(t, session, "search")
		result, err := call(t.Context(), limits, nothing)
		switch {
		case test.result == nil && test.err == nil:
			if result.(*mcp.CallToolResult).Meta["retryAfterMicros"] != int64(1_500_000) {
				t.Errorf("a denial by default is %v, %v", result, err)
			}
		case result != test.result || !errors.Is(err, test.err):
			t.Errorf("a denial is %v, %v, want %v, %v", result, err, test.result, test.err)
		}
	}
}

func TestConfig(t *testing.T) {
	limiter := newLimiter(t, stint.Concurrency(1))
	for want, config := range map[string]mcplimit.Config{
		`Limiter is "nil"`:     {},
		`Reserve is "nil"`:     {Limiter: limiter},
		"Reserve.ID is":        {Limiter: limiter, Reserve: &stint.Hold{ID: "one"}},
		`Limiter is "several"`: {Limiter: limiter, Reserve: &stint.Hold{}, Rules: byRules(t)},
		`Cost is "set"`:        {Rules: byRules(t), Cost: onlyTools},
	} {
		if _, err := mcplimit.New(config); !errors.Is(err, stint.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
