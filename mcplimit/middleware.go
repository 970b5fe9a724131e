package mcplimit

import (
	"context"
	"maps"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/ends"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/running"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/rules"
)

// A Middleware puts limits before a server's methods. It is safe for concurrent use; make it with [New] once for all
// servers that are to share the limits.
type Middleware struct {
	config      Config
	server      adapt.Server
	plain       adapt.Plain[called]
	evaluations adapt.Evaluations
	ends        ends.Queue // of holds, which failed
}

// New makes a middleware, or reports everything that is wrong with the configuration.
//
// By rules, a call is decided by all that match it; one that matches none is admitted, unless the limiter denies by
// default. It is held as long as rules that wait hold it, and until a leaky bucket's turn.
func New(config Config) (*Middleware, error) {
	m := &Middleware{config: config, server: adapt.Server{
		Limiter: config.Limiter, Rules: config.Rules, Reserve: config.Reserve,
	}}
	faults := m.server.Faults(adapt.Functions{
		LimiterOf: config.LimiterOf != nil, Key: config.Key != nil, Cost: config.Cost != nil,
		Describe: config.Describe != nil,
	}, false)
	if err := prefix.Join(faults...); err != nil {
		return nil, err
	}
	m.plain = m.config.plain()
	return m, nil
}

// A Config says what a [Middleware] is made of: one of Limiter, LimiterOf and Rules; the rest has defaults. Its
// functions must be safe for concurrent use, and must not keep the verdicts and descriptions that they are given.
//
// An error of a function that finds something refuses the call: a jsonrpc.Error as it is, one that wraps
// stint.ErrInvalid as invalid parameters, any other as limits that could not be decided.
type Config struct {
	// Limiter decides by plain limits. Wrap a store that may be unreachable in one of package failover, which says what
	// happens then. Default: nil, LimiterOf or Rules do.
	Limiter *stint.Limiter
	// LimiterOf finds the limiter of a call, for limits that depend on the tool or on who asks: stint.Limiter.With makes
	// them quickly. A call whose limiter is nil, without an error, is not limited. Default: nil, Limiter or Rules
	// decide.
	LimiterOf func(context.Context, *Call) (*stint.Limiter, error)
	// Rules decide by all that match a call: an enforce.Limiter, whose rules may be swapped while calls come, or
	// Rules of package client, which are those of a service. To rules a call is a POST whose path is / and the method,
	// such as /tools/call. Its user is that of [Call], its header that of the HTTP request, and its attributes are tool
	// and session, each unless it is empty. Default: nil, plain limits do.
	Rules enforce.Decider

	// Key is whom a call counts for by plain limits, 1 to 256 bytes. Default: nil, the user, as user:NAME; all calls
	// without one, as over stdio, count together, as unknown.
	Key func(context.Context, *Call) (string, error)
	// Cost is how many permits a call takes by plain limits. At 0, such as for tools/list, it is admitted without asking
	// for the limiter or the key. Default: nil, 1, and 0 for ping.
	Cost func(context.Context, *Call) (int64, error)
	// Describe completes what Rules know of a call: its address, its API key and further attributes. Header fields are
	// what the client claims. Default: nil, calls have a user alone.
	Describe func(context.Context, *Call, *rules.Request) error

	// Reserve holds what a call costs while it runs, in the place of taking it, and renews the hold: so a long tool takes
	// a place of stint.Concurrency, or what it may cost at most. When the tool is done, or panics, the hold is committed
	// with the cost that it has said by [Cost], or with what is held. The tool's context ends, with stint.ErrLost as its
	// cause, when the hold is lost. It must have no ID. Default: nil, calls take.
	//
	// By rules, the tool says the cost of the limits whose cost requests may name, or of all if there is none. Rules with
	// a concurrency limit hold only so, and a rule's own reserve says how long and what expiry charges. Rules that wait
	// deny at once. Only an enforce.Limiter holds.
	//
	// A commit that fails is sent again in the background until the store forgets the hold. Failed is told of each, and
	// Drain waits for them.
	Reserve *stint.Hold

	// Decided is told each verdict, before the call is handled or refused: for logs and metrics. An admitting verdict
	// whose Claim has no policy asked no limit. A call whose Decision.Delay is not 0 is held after that, for its turn of
	// a leaky bucket. Default: nil.
	Decided func(context.Context, *Call, *enforce.Verdict)
	// Denied answers a call that the verdict denies, whose Reason says why. Of a result and an error it returns one; both
	// nil stand for the default. Default: nil, a result with isError, or a JSON-RPC error of code 429.
	Denied func(context.Context, *Call, *enforce.Verdict) (mcp.Result, error)
	// Failed is told the error of each call that is not decided, before it is answered: for logs and metrics. It is that
	// of Key, Cost, Describe or LimiterOf, wraps stint.ErrInvalid for a value that no limit takes, wraps
	// stint.ErrUnavailable when the store could not decide, or is the context's of a call that ended while it was held.
	// It is told an enforce.EndError, too, when a call's hold could not be ended; if that is given up later, by a context
	// with the call's values. Default: nil.
	Failed func(context.Context, *Call, error)
}

// A Call is what a client asks of the server. It must not be changed.
type Call struct {
	// Method is such as tools/call.
	Method string
	// Tool is the tool that a tools/call names; the server may have none of that name. Default: "", another method.
	Tool string
	// Session is the session's ID. A client may begin as many sessions as it likes. Default: "", as over stdio and from a
	// stateless server, which has none.
	Session string
	// User is the user of the bearer token that the SDK has verified. Default: "", none.
	User string
	// Request is the call as the SDK has it, with its parameters and the fields of HTTP.
	Request mcp.Request
}

const callTool = "tools/call"

// callOf takes a request apart.
func callOf(method string, request mcp.Request) *Call {
	c := &Call{Method: method, Session: request.GetSession().ID(), Request: request}
	if params, ok := request.GetParams().(*mcp.CallToolParamsRaw); ok && method == callTool {
		c.Tool = params.Name
	}
	if extra := request.GetExtra(); extra != nil && extra.TokenInfo != nil {
		c.User = extra.TokenInfo.UserID
	}
	return c
}

// Cost is the cost of the call whose context it is, for tools behind a [Middleware] with [Config.Reserve] to say what
// it turns out to be. Without one, what it is told has no effect.
func Cost(ctx context.Context) enforce.RunningCost { return enforce.CostOf(ctx) }

// Drain returns when no commit or cancel is left that failed and is sent again. Call it when the server has shut down,
// before the store is closed. What has not arrived when the context ends is given up, which [Config.Failed] is told;
// then the error wraps the context's.
func (m *Middleware) Drain(ctx context.Context) error { return m.ends.Drain(ctx) }

// Wrap returns a handler that calls next for the calls that are admitted, and for all notifications. It is what
// mcp.Server's AddReceivingMiddleware takes.
func (m *Middleware) Wrap(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, request mcp.Request) (mcp.Result, error) {
		if strings.HasPrefix(method, "notifications/") {
			return next(ctx, method, request)
		}
		c, cost := callOf(method, request), m.server.Running()
		if cost != nil {
			defer m.ends.End(ctx, cost, m.tellers(ctx, c))
		}
		if refused := m.admit(ctx, c, cost); refused != nil {
			return refused.result, refused.err
		}
		if cost != nil {
			ctx = cost.Begin(ctx)
		}
		return next(ctx, method, request)
	}
}

// tellers tell Failed of an end that failed; nil if nobody is told.
func (m *Middleware) tellers(ctx context.Context, c *Call) func() (now, later func(error)) {
	if m.config.Failed == nil {
		return nil
	}
	return func() (now, later func(error)) {
		again := context.WithoutCancel(ctx)
		return func(err error) { m.config.Failed(ctx, c, err) }, func(err error) { m.config.Failed(again, c, err) }
	}
}

// admit decides a call, and holds one that has a turn to wait for. Nil says that it is admitted.
func (m *Middleware) admit(ctx context.Context, c *Call, cost *running.Cost) *refusal {
	e := m.evaluations.Get()
	defer m.evaluations.Put(e)
	decide := m.byPlain
	if m.config.Rules != nil {
		decide = m.byRules
	}
	if err := decide(ctx, c, cost, e); err != nil {
		return m.fail(ctx, c, err)
	}
	v := &e.Verdict
	if m.config.Decided != nil {
		m.config.Decided(ctx, c, v)
	}
	if !v.Allowed {
		return m.deny(ctx, c, v)
	}
	if v.Decision.Delay > 0 {
		if err := sleep.For(ctx, v.Decision.Delay); err != nil {
			return m.fail(ctx, c, err)
		}
	}
	return nil
}

// byPlain decides by plain limits.
func (m *Middleware) byPlain(ctx context.Context, c *Call, cost *running.Cost, e *adapt.Evaluation) error {
	return m.plain.Decide(ctx, &m.server, called{ctx, c}, cost, e)
}

// called is a call with its context.
type called struct {
	ctx context.Context //nolint:containedctx // it lives as long as the call
	*Call
}

// plain is what plain limits have to know of a call.
func (c *Config) plain() (p adapt.Plain[called]) {
	p.Cost = func(of called) (int64, error) {
		switch {
		case c.Cost != nil:
			return c.Cost(of.ctx, of.Call)
		case of.Method == "ping":
			return 0, nil
		}
		return 1, nil
	}
	if c.LimiterOf != nil {
		p.LimiterOf = func(of called) (*stint.Limiter, error) { return c.LimiterOf(of.ctx, of.Call) }
	}
	p.Key = func(of called) (string, error) {
		switch {
		case c.Key != nil:
			return c.Key(of.ctx, of.Call)
		case of.User != "":
			return "user:" + of.User, nil
		}
		return "unknown", nil
	}
	p.NeedsEach = func(policy *stint.Policy) bool { return headersOf(policy).NeedsEach() }
	return p
}

// byRules decides by rules.
func (m *Middleware) byRules(
	ctx context.Context, c *Call, cost *running.Cost, e *adapt.Evaluation,
) error {
	facts := map[string]string{"tool": c.Tool, "session": c.Session}
	maps.DeleteFunc(facts, func(_, value string) bool { return value == "" })
	e.Request = rules.Request{Method: http.MethodPost, Path: "/" + c.Method, User: c.User, Attributes: facts}
	if extra := c.Request.GetExtra(); extra != nil {
		e.Request.Header = extra.Header
	}
	if m.config.Describe != nil {
		if err := m.config.Describe(ctx, c, &e.Request); err != nil {
			return err
		}
	}
	return m.server.DecideByRules(ctx, true, cost, e)
}

// headersOf knows when a denied call may come again, for places too.
func headersOf(policy *stint.Policy) *httplimit.Headers {
	return httplimit.HeadersOf(policy, httplimit.RetryAfter)
}
