// Package client asks a running stint service, as a stint.Store or by its plain verbs.
//
// A [Client] is a [stint.Store], so a program chooses by one line whether it
// asks Redis itself or goes through the service:
//
//	store, err := client.Open("https://limits.example.com", client.Options{Token: token})
//	...
//	limiter, err := stint.NewLimiter(stint.Config{Store: store, Policy: push})
//
// # Whose limits
//
// The limits are the service's. A policy goes over the wire as a name: one with a name is asked for
// by that name, and one without, of a single limit, by that limit's algorithm, if the limit is what
// the service has as its default ([Options.Defaults]). What the service has configured under the
// name decides, and a [stint.Decision] carries that limit's capacity, whatever the program's own
// policy says. Its Index is the first limit of the program's policy with the algorithm and capacity
// that the answer names, else the first with the algorithm, else 0.
//
// So the limits that a program makes up, and rules, whose policies the service does not have,
// can't be decided through a client: package enforce gets an error that wraps [stint.ErrInvalid].
//
// The service's own rules are another way: [Client.Rules] has it decide a request by all rules that
// match, for middleware of packages httplimit and grpclimit, and [Client.Evaluate] is the plain
// verb.
//
// # What the service can be asked
//
// Take and Peek are carried out as by any other store, with one difference: the service calls a
// cost or a Keep above the limit invalid, where other stores deny it with RetryAfter Never. The REST
// API offers less than a store for the rest. What it does not offer is refused with an error that
// wraps [stint.ErrInvalid], before anything is sent:
//
//   - Try is Take for limits that don't count denied requests; for others it is
//     refused.
//   - Reset answers Allowed and nothing else.
//   - Settle, Reserve, Commit and Cancel are carried out as by any other store.
//   - Each is filled in for a policy of one limit. GrowsAfter is ResetAfter, a bound.
//     With Reset it is refused, and so it is for several limits, of which the service
//     tells the deciding one.
//   - And is refused: the service decides for one key at a time.
//   - A key has to be UTF-8 without control characters.
//
// So [stint.Limiter.Wait] is refused for limits that count denied requests.
package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/prefix"
)

var _ stint.Store = (*Client)(nil)

// A Client asks one service. Make it with [Open]. It is safe for concurrent use,
// and made to be used by all of a program.
//
// Its errors are those of a [stint.Store]: one wraps [stint.ErrInvalid] when the
// service, or the client in its place, finds fault with what was asked, and then
// nothing was consumed; it is the context's when that has ended; every other wraps
// [stint.ErrUnavailable], and whether permits were consumed is not known. When the
// service said why, errors.As finds the [*api.Problem]. A denial is no error.
//
// A request that takes permits is sent once. If its answer is lost, it is not sent
// again, because it may have been carried out.
type Client struct {
	base     *url.URL
	token    string
	timeout  time.Duration
	http     *http.Client
	own      bool // whether the connections are the client's own
	defaults []stint.Limit
}

// Open makes a client of the service at the URL, or reports everything that is wrong
// with the options. A path in the URL is put before the API's; a user and password
// are sent as basic authentication. It sends nothing.
func Open(url string, options Options) (*Client, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	base, err := parseBase(url, &options)
	if err != nil {
		return nil, err
	}
	o := options.EnsureDefaults()
	c := &Client{base: base, token: o.Token, timeout: o.Timeout, own: o.HTTPClient == nil, defaults: o.Defaults}
	if c.own {
		c.http = &http.Client{Transport: newTransport(&o)}
	} else {
		given := *o.HTTPClient
		c.http = &given
	}
	// A redirected token would go to others, and a redirected check be another.
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c, nil
}

// Close closes the idle connections, unless they are those of [Options.HTTPClient]. Call it when no
// request is under way any more; a later one opens a connection again.
func (c *Client) Close() {
	if c.own {
		c.http.CloseIdleConnections()
	}
}

// Check takes permits of a key, beyond those that it leaves to others (Keep), and says whether they
// were had. It is a POST to apipath.Check. 200 and 429 are answers, and the body's allowed has to agree
// with the status.
func (c *Client) Check(ctx context.Context, request api.Request) (api.CheckResponse, error) {
	if err := checkKey(request.Key); err != nil {
		return api.CheckResponse{}, err
	}
	q := call{method: http.MethodPost, path: apipath.Check, body: request, denial: true}
	answer, _, err := do(
		ctx, c, q, "a check", func(a *api.CheckResponse, ok bool) bool { return plausible(a) && a.Allowed == ok },
	)
	return answer, err
}

// CheckAll is Check for any number of requests, decided in order, each alone, up to 1,000
// of them in one request. If one of a batch is at fault, nothing of that batch is consumed, and its
// error names the place within the batch. With an error come the answers of the batches before.
func (c *Client) CheckAll(ctx context.Context, requests []api.Request) ([]api.CheckResponse, error) {
	answers := make([]api.CheckResponse, 0, len(requests))
	for len(requests) > 0 {
		n := min(len(requests), bounds.MaxBatch)
		batch, err := c.checkBatch(ctx, requests[:n])
		if err != nil {
			return answers, err
		}
		answers, requests = append(answers, batch...), requests[n:]
	}
	return answers, nil
}

// checkBatch asks for 1 to MaxBatch checks in one request.
func (c *Client) checkBatch(ctx context.Context, requests []api.Request) ([]api.CheckResponse, error) {
	for i := range requests {
		if err := checkKey(requests[i].Key); err != nil {
			return nil, prefix.Errorf("element %d: %w", i, err)
		}
	}
	q := call{method: http.MethodPost, path: apipath.Check, body: requests}
	answers, _, err := do(ctx, c, q, "a batch of checks", func(answers *[]api.CheckResponse, _ bool) bool {
		return len(*answers) == len(requests) &&
			!slices.ContainsFunc(*answers, func(a api.CheckResponse) bool { return !plausible(&a) })
	})
	return answers, err
}

// Remaining says what a key has left and whether a check of the Permits would be admitted, and
// takes nothing. With Keep it is what is left beyond that.
func (c *Client) Remaining(ctx context.Context, request api.Request) (api.RemainingResponse, error) {
	if request.Permits < 0 {
		return api.RemainingResponse{}, stint.Invalid("permits", request.Permits, "1 or more, or 0 for 1")
	}
	if request.Keep < 0 {
		return api.RemainingResponse{}, stint.Invalid("keep", request.Keep, "0 or more")
	}
	query, err := queryOf(&request)
	if err != nil {
		return api.RemainingResponse{}, err
	}
	if request.Permits > 1 {
		query.Set("permits", strconv.FormatInt(request.Permits, 10))
	}
	q := call{method: http.MethodGet, path: apipath.Remaining, query: query}
	answer, _, err := do(ctx, c, q, "a query of what remains", func(a *api.RemainingResponse, _ bool) bool {
		check := checkOfRemaining(a)
		return plausible(&check) && a.At > 0
	})
	return answer, err
}

// Reset clears the state of a key under the request's algorithm or policy, or under all of
// them if it has neither. Permits and Keep must be 0.
func (c *Client) Reset(ctx context.Context, request api.Request) (api.ResetResponse, error) {
	if request.Permits != 0 {
		return api.ResetResponse{}, stint.Invalid("permits", request.Permits, "0, as nothing is taken")
	}
	if request.Keep != 0 {
		return api.ResetResponse{}, stint.Invalid("keep", request.Keep, "0, as nothing is taken")
	}
	query, err := queryOf(&request)
	if err != nil {
		return api.ResetResponse{}, err
	}
	q := call{method: http.MethodDelete, path: apipath.Reset, query: query}
	answer, _, err := do(ctx, c, q, "a reset", func(a *api.ResetResponse, _ bool) bool { return a.Reset })
	return answer, err
}

// Settle charges Permits (above 0), refunds them (below 0) or does nothing (0) after the fact. The
// answer says how many were applied. Keep must be 0.
func (c *Client) Settle(ctx context.Context, request api.Request) (api.SettleResponse, error) {
	if err := checkKey(request.Key); err != nil {
		return api.SettleResponse{}, err
	}
	if request.Keep != 0 {
		return api.SettleResponse{}, stint.Invalid("keep", request.Keep, "0, as a settlement is never denied")
	}
	q := call{method: http.MethodPost, path: apipath.Settle, body: struct {
		api.Request
		Permits int64 `json:"permits"` // 0 too
	}{request, request.Permits}}
	answer, _, err := do(ctx, c, q, "a settlement", func(a *api.SettleResponse, _ bool) bool {
		left := checkOfRest(&a.Rest)
		return plausible(&left) && a.At > 0
	})
	return answer, err
}

// queryOf writes a request as a query, without its permits. The parameters are those that the API
// knows for GET and DELETE; permits are added by who sends them.
func queryOf(request *api.Request) (url.Values, error) {
	if err := checkKey(request.Key); err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range map[string]string{
		"key": request.Key, "algorithm": request.Algorithm, "policy": request.Policy,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if request.Keep != 0 {
		query.Set("keep", strconv.FormatInt(request.Keep, 10))
	}
	return query, nil
}
