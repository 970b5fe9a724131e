package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server"
)

// serviceOf is a service by the settings of a case.
func serviceOf(t *testing.T, s *store, settings *config.Config) *fixture {
	t.Helper()
	f := newFixture(t, func(c *server.Config) {
		c.Store, c.InProcess = s, true
		c.Policies, c.Rules, c.DenyByDefault = settings.Policies, compile(t, settings.Rules), settings.DenyByDefault
	})
	f.store = s
	return f
}

// told is what an answer of the service says. Of a check it names the policy.
func told(r *api.EvaluateResponse) said {
	by := r.Rule
	if r.Policy != "" {
		by = r.Policy
	}
	s := verdict(r.Allowed, by, r.LimitName)
	if r.Algorithm != "" {
		s["left"] = fmt.Sprintf("%d of %d", r.Remaining, r.Limit)
		s["reset"] = micros(r.ResetAfterMicros)
		s["turn"] = micros(r.DelayMicros)
	}
	if !r.Allowed {
		s["retry"], s["since"] = micros(r.RetryAfterMicros), r.Reason
	}
	var marks []string
	for _, e := range r.Exceeded {
		marks = append(marks, e.Rule)
	}
	s["matched"], s["shadowed"] = strings.Join(r.Matched, " "), strings.Join(r.Shadowed, " ")
	s["exceeded"] = strings.Join(slices.Compact(marks), " ")
	s["class"], s["via"], s["lacks"] = r.Class, r.Via, strings.Join(r.Missing, " ")
	return s
}

// verdict begins an answer. A limit is named by denials alone.
func verdict(allowed bool, by, limit string) said {
	text := "admitted"
	if !allowed {
		if text = "denied"; limit != "" {
			by += "/" + limit
		}
	}
	if by != "" {
		text += " by " + by
	}
	return said{"verdict": text}
}

// unauthenticated is the verdict of a denial that asks who the client is.
func unauthenticated(s said) string {
	return strings.Replace(s["verdict"], "denied", "unauthenticated", 1)
}

// micros are a time in words; "" is none.
func micros(n int64) string {
	if n == 0 {
		return ""
	}
	if n < 0 {
		return "never"
	}
	return (time.Duration(n) * time.Microsecond).String()
}

// rounded is a time of an answer, rounded up to so much; 0 is none, and -1 never.
func (s said) rounded(name string, to time.Duration) time.Duration {
	if s[name] == "" {
		return 0
	}
	d, err := time.ParseDuration(s[name])
	if err != nil { // never
		return -1
	}
	if rest := d % to; rest > 0 {
		d += to - rest
	}
	return d
}

// fields are the header fields that tell an answer, of the store's time; "" is none.
func (s said) fields(now stint.Instant) map[string]string {
	f := map[string]string{
		"X-Ratelimit-Limit": "", "X-Ratelimit-Remaining": "", "X-Ratelimit-Reset": "", "Retry-After": "", "Ratelimit": "", "Ratelimit-Policy": "",
	}
	left, of, limited := strings.Cut(s["left"], " of ")
	if !limited {
		return f
	}
	f["X-Ratelimit-Limit"], f["X-Ratelimit-Remaining"] = of, left
	end := now.Add(s.rounded("reset", time.Microsecond))
	f["X-Ratelimit-Reset"] = fmt.Sprint((int64(end) + 999_999) / 1_000_000)
	if d := s.rounded("retry", time.Second); d > 0 {
		f["Retry-After"] = fmt.Sprint(int64(d / time.Second))
	}
	delete(f, "Ratelimit")
	delete(f, "Ratelimit-Policy") // which are of all limits
	return f
}

// compare compares the fields of an answer.
func compare(t testing.TB, s said, now stint.Instant, field func(string) string) {
	t.Helper()
	for name, want := range s.fields(now) {
		if got := field(name); got != want {
			t.Errorf("%s: the field %s is %q, want %q", s, name, got, want)
		}
	}
}

// A restDriver asks over HTTP, and holds body and header of an answer against each other.
type restDriver struct{ *fixture }

func newRESTDriver(t *testing.T, s *store, settings *config.Config) driver {
	t.Helper()
	return restDriver{serviceOf(t, s, settings)}
}

func (d restDriver) tells(all said) said { return all }

func (d restDriver) evaluate(w question) said {
	request := api.EvaluateRequest{Method: w[0], Path: w[1], Host: w.named("host")[""], IP: w.named("ip")[""]}
	request.Headers, request.Attributes = w.named("headers."), w.named("attributes.")
	if w.named("wait")[""] == "false" {
		request.Wait = new(bool)
	}
	return d.told(d.post(evaluate, string(must.Get(json.Marshal(request))(d.t))))
}

func (d restDriver) check(policy, key string, permits int64) said {
	query := url.Values{"policy": {policy}, "key": {key}, "permits": {fmt.Sprint(permits)}}
	return d.told(d.get(check + "?" + query.Encode()))
}

func (d restDriver) told(r reply) said {
	d.t.Helper()
	switch r.status {
	case http.StatusBadRequest:
		return said{"verdict": "invalid"}
	case http.StatusServiceUnavailable:
		if r.header.Get("Retry-After") != "" {
			return said{"verdict": "overloaded"}
		}
		return said{"verdict": "unavailable"}
	}
	var e api.EvaluateResponse
	r.into(&e)
	s := told(&e)
	want := http.StatusOK
	if !e.Allowed {
		want = http.StatusTooManyRequests
	}
	if r.status == http.StatusUnauthorized {
		want, s["verdict"] = r.status, unauthenticated(s)
	}
	if r.status != want {
		d.t.Errorf("%s: status %d", s, r.status)
	}
	compare(d.t, s, stint.Instant(d.store.now.Load()), r.header.Get)
	return s
}

// A redisDriver asks by the Redis protocol.
type redisDriver struct{ *talk }

func newRedisDriver(t *testing.T, s *store, settings *config.Config) driver {
	t.Helper()
	return redisDriver{serviceOf(t, s, settings).talk(true)}
}

// tells leaves out what a check does not answer: its policy; and that a request is not authenticated.
func (d redisDriver) tells(all said) said {
	all["verdict"] = strings.Replace(all["verdict"], "unauthenticated", "denied", 1)
	if all["matched"] == "" {
		verdict, by, _ := strings.Cut(all["verdict"], " by ")
		if _, limit, named := strings.Cut(by, "/"); named {
			verdict += " by /" + limit
		}
		all["verdict"] = verdict
	}
	if verdict := all["verdict"]; verdict == "overloaded" {
		all["verdict"] = "unavailable"
	}
	return all
}

func (d redisDriver) evaluate(w question) said {
	return d.told(append([]string{"STINT.EVALUATE"}, w...))
}

func (d redisDriver) check(policy, key string, permits int64) said {
	return d.told([]string{"STINT.CHECK", policy, key, fmt.Sprint(permits)})
}

func (d redisDriver) told(words []string) said {
	d.t.Helper()
	go func() { _, _ = io.WriteString(d, testredis.Command(words...)) }()
	answer := must.Get(testredis.ReadReply(d.answers))(d.t)
	if answer.Kind == '-' {
		code, _, _ := strings.Cut(answer.Text, " ")
		return said{"verdict": map[string]string{"ERR": "invalid", "UNAVAILABLE": "unavailable"}[code]}
	}
	members := map[string]any{}
	for pair := range slices.Chunk(answer.Items, 2) {
		switch name, value := pair[0].Text, pair[1]; name {
		case "allowed", "degraded":
			members[name] = value.Text == "1"
		case "missing", "matched", "shadowed":
			members[name] = value.Words()
		case "exceeded":
			list := []api.Exceeded{}
			for _, id := range value.Words() {
				list = append(list, api.Exceeded{Rule: id})
			}
			members[name] = list
		case "vias":
			vias := map[string]string{}
			for via := range slices.Chunk(value.Words(), 2) {
				vias[via[0]] = via[1]
			}
			members[name] = vias
		default:
			if members[name] = value.Text; value.Kind == ':' {
				members[name] = json.Number(value.Text)
			}
		}
	}
	var e api.EvaluateResponse
	must.Do(d.t, json.Unmarshal(must.Get(json.Marshal(members))(d.t), &e))
	return told(&e)
}

// library is what the library's two drivers share: rules and policies on a store.
type library struct {
	t       *testing.T
	store   *store
	rules   *enforce.Limiter
	limiter map[string]*stint.Limiter
	verdict *said // of the last request
}

func newLibrary(t *testing.T, s *store, settings *config.Config) library {
	t.Helper()
	l := library{t: t, store: s, limiter: map[string]*stint.Limiter{}, verdict: new(said)}
	l.rules = must.Get(enforce.New(enforce.Config{Store: s, Set: compile(t, settings.Rules), DenyByDefault: settings.DenyByDefault}))(t)
	for name, limits := range settings.Policies {
		l.limiter[name] = must.Get(stint.New(s, name, limits...))(t)
	}
	return l
}

func (l library) tells(all said) said { return all }

// note keeps what a verdict says.
func (l library) note(v *enforce.Verdict) {
	by := ""
	switch {
	case v.Rule != nil:
		by = v.Rule.ID
	case v.Claim.Policy != nil:
		by = v.Claim.Policy.Name()
	}
	d := v.Decision
	s := verdict(v.Allowed, by, v.Limit().Name)
	if v.Claim.Policy != nil {
		s["left"] = fmt.Sprintf("%d of %d", d.Remaining, d.Limit)
		s["reset"], s["turn"] = micros(d.ResetAfter.Microseconds()), micros(d.Delay.Microseconds())
	}
	if !v.Allowed {
		if s["since"], s["retry"] = string(v.Reason()), micros(d.RetryAfter.Microseconds()); d.RetryAfter == stint.Never {
			s["retry"] = "never"
		}
	}
	if v.Unauthenticated() {
		s["verdict"] = unauthenticated(s)
	}
	var marks []string
	for _, e := range v.Exceeded {
		marks = append(marks, e.Rule)
	}
	s["matched"], s["shadowed"] = strings.Join(v.Matched, " "), strings.Join(v.Shadowed, " ")
	s["exceeded"] = strings.Join(slices.Compact(marks), " ")
	s["class"], s["via"], s["lacks"] = v.Class, v.Via, strings.Join(v.Missing(), " ")
	*l.verdict = s
}

// describe is a request in words as rules know it.
func describe(w question, r *rules.Request) {
	*r = rules.Request{Method: w[0], Path: w[1], Host: w.named("host")[""], Address: w.named("ip")[""], Header: http.Header{}}
	for name, value := range w.named("headers.") {
		r.Header.Set(name, value)
	}
	r.Attributes = w.named("attributes.")
	r.User, r.APIKey = r.Attributes[api.AttributeUserID], r.Attributes[api.AttributeAPIKey]
}

// An httpDriver asks a middleware of the library, and holds what it answers against its verdict.
type httpDriver struct{ library }

func newHTTPDriver(t *testing.T, s *store, settings *config.Config) driver {
	t.Helper()
	return httpDriver{newLibrary(t, s, settings)}
}

func (d httpDriver) evaluate(w question) said {
	return d.ask(httplimit.Config{Rules: d.rules, Describe: func(_ *http.Request, r *rules.Request) error {
		describe(w, r)
		return nil
	}})
}

func (d httpDriver) check(policy, key string, permits int64) said {
	return d.ask(httplimit.Config{
		LimiterOf: func(*http.Request) (*stint.Limiter, error) { return d.limiter[policy], nil },
		Key:       func(*http.Request) (string, error) { return key, nil },
		Cost:      func(*http.Request) (int64, error) { return permits, nil },
	})
}

// ask sends a request through a middleware.
func (d httpDriver) ask(c httplimit.Config) said {
	d.t.Helper()
	*d.verdict = nil
	var failed error
	c.Decided = func(_ *http.Request, v *enforce.Verdict) { d.note(v) }
	c.Failed = func(_ *http.Request, err error) { failed = err }
	reached := false
	m := must.Get(httplimit.New(c))(d.t)
	w := httptest.NewRecorder()
	m.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })).ServeHTTP(w, newRequest(http.MethodGet, "/", ""))
	s := *d.verdict
	if failed != nil {
		s = refused(failed)
	}
	word, _, _ := strings.Cut(s["verdict"], " ")
	want := map[string]int{"admitted": 200, "denied": 429, "unauthenticated": 401, "invalid": 400, "unavailable": 503, "overloaded": 503}[word]
	if w.Code != want || reached != (want == http.StatusOK) {
		d.t.Errorf("%s: status %d, and the handler is called: %t", s, w.Code, reached)
	}
	if want != http.StatusServiceUnavailable {
		compare(d.t, s, stint.Instant(d.store.now.Load()), w.Header().Get)
	}
	if got := strings.ReplaceAll(w.Header().Get("X-Ratelimit-Exceeded"), ", ", " "); got != s["exceeded"] {
		d.t.Errorf("%s: marked by %q", s, got)
	}
	return s
}

// A grpcDriver makes calls of a server whose interceptor the library's is, and holds what they end with against its
// verdict.
type grpcDriver struct {
	library
}

func newGRPCDriver(t *testing.T, s *store, settings *config.Config) driver {
	t.Helper()
	return grpcDriver{newLibrary(t, s, settings)}
}

func (d grpcDriver) evaluate(w question) said {
	return d.ask(grpclimit.Config{Rules: d.rules, Describe: func(_ context.Context, _ string, r *rules.Request) error {
		describe(w, r)
		return nil
	}})
}

func (d grpcDriver) check(policy, key string, permits int64) said {
	return d.ask(grpclimit.Config{
		LimiterOf: func(context.Context, string) (*stint.Limiter, error) { return d.limiter[policy], nil },
		Key:       func(context.Context, string) (string, error) { return key, nil },
		Cost:      func(context.Context, string, any) (int64, error) { return permits, nil },
	})
}

// ask makes a unary call.
func (d grpcDriver) ask(c grpclimit.Config) said {
	d.t.Helper()
	*d.verdict = nil
	var failed error
	c.Decided = func(_ context.Context, _ string, v *enforce.Verdict) { d.note(v) }
	c.Failed = func(_ context.Context, _ string, err error) { failed = err }
	limits := must.Get(grpclimit.New(c))(d.t)
	stream := &callStream{}
	reached := false
	ctx := grpc.NewContextWithServerTransportStream(d.t.Context(), stream)
	_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) {
		reached = true
		return nil, nil
	})
	s := *d.verdict
	if failed != nil {
		s = refused(failed)
	}
	word, by, _ := strings.Cut(s["verdict"], " by ")
	want := map[string]codes.Code{
		"admitted": codes.OK, "denied": codes.ResourceExhausted, "unauthenticated": codes.Unauthenticated,
		"invalid": codes.InvalidArgument, "unavailable": codes.Unavailable, "overloaded": codes.Unavailable,
	}[word]
	if status.Code(err) != want || reached != (want == codes.OK) {
		d.t.Errorf("%s: status %v, and the handler is called: %t", s, err, reached)
	}
	tell := stream.trailer
	if want == codes.OK {
		tell = stream.header
	}
	compare(d.t, s, stint.Instant(d.store.now.Load()), func(name string) string { return strings.Join(tell.Get(name), ", ") })
	if want == codes.ResourceExhausted || want == codes.Unauthenticated {
		d.compareDetails(s, by, err)
	}
	return s
}

// compareDetails holds the details of a denial against the verdict: who denied, why, and until when.
func (d grpcDriver) compareDetails(s said, by string, err error) {
	d.t.Helper()
	var wait time.Duration
	var subject, why string
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.RetryInfo:
			wait = detail.GetRetryDelay().AsDuration()
		case *errdetails.QuotaFailure:
			subject, why = detail.GetViolations()[0].GetSubject(), detail.GetViolations()[0].GetDescription()
		}
	}
	want := "rules"
	switch {
	case s["matched"] == "" && by != "":
		want = "limit:" + by
	case by != "":
		want = "rule:" + by
	}
	_, limit, _ := strings.Cut(s["left"], " of ")
	reason := map[string]string{
		"limit": "the limit of " + limit + " permits is reached", "min_interval": "the limit of " + limit + " permits is reached",
		"never": "the cost is above the limit of " + limit + " permits", "blocked": "the client was denied " + limit + " times",
		"banned": "the client is banned", "missing": "the call lacks what the rule asks for", "default": "no rule holds for the call",
	}[s["since"]]
	if subject != want || why != reason || wait != max(s.rounded("retry", time.Millisecond), 0) {
		d.t.Errorf("%s: the details are %q, %q and %v; want %q and %q", s, subject, why, wait, want, reason)
	}
}

// callStream keeps the metadata of a call without a connection.
type callStream struct {
	grpc.ServerTransportStream
	header, trailer metadata.MD
}

func (s *callStream) SetHeader(md metadata.MD) error {
	s.header = metadata.Join(s.header, md)
	return nil
}

func (s *callStream) SetTrailer(md metadata.MD) error {
	s.trailer = metadata.Join(s.trailer, md)
	return nil
}
