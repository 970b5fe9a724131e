// Package admin is the admin listener's handler: who may ask what of it.
//
// [Handler] finds out who asks (by the session of the dashboard, a token, a certificate, or by being on this machine),
// and has those with the role for it answered: by package rulesapi for rules, by package activity for what was decided
// lately, by package simulateapi for simulations, by package dashboard for pages, and here for sessions, domains and
// profiles. What is refused is recorded in the audit. The package knows nothing of how checks are answered.
package admin

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/listen"
	"github.com/stint-go/stint/service/internal/server/dashboard"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rulesapi"
	"github.com/stint-go/stint/service/internal/server/session"
	"github.com/stint-go/stint/service/internal/server/simulateapi"
)

// A Handler is the handler of the admin listener. On loopback it guards against the pages in the
// operator's own browser: a page may send requests there, and by binding its name to 127.0.0.1 it
// may even read the answers. Elsewhere it always has tokens.
//
// Requests are answered by role: read shows, write changes. Who asks is found in this order: the
// session's cookie, the bearer token, the certificate, and on loopback nobody in particular. What
// is refused is recorded in the audit with the caller, as far as known.
type Handler struct {
	// guarded is whether the listener is on loopback.
	guarded bool
	// tokens are those of which one is needed; none: nothing is needed.
	tokens      adminTokens
	bodyTimeout time.Duration
	// writeTimeout bounds a request, a profile excepted.
	writeTimeout time.Duration
	rules        *rulesapi.API
	readBody     func(w http.ResponseWriter, r *http.Request, most int64) (text string, release func(), err error)
	mux          problem.Mux[rulesapi.Caller]
	pages        *dashboard.Handler
	origin       *http.CrossOriginProtection
	simulator    *simulateapi.Simulator
	rateLimit    *rls.Service // nil without a gRPC listener
	ended        *session.Ended
	streams      callerStreams
	routes       map[string]*promlimit.AnswerRoute // by pattern
	draining     func() bool
	// stopping ends with Stop, and streams of events with it.
	stopping context.Context
	stop     context.CancelFunc
}

// A Config says what a [Handler] is made of. All but RateLimit and Activity are needed.
type Config struct {
	*config.Config
	// Rules answer for the rules, and record in the audit what is refused.
	Rules *rulesapi.API
	// ReadBody is as in rulesapi.Config.
	ReadBody func(w http.ResponseWriter, r *http.Request, most int64) (text string, release func(), err error)
	// InForce are the rules that decide.
	InForce func() *rules.Set
	// Store keeps which sessions have ended.
	Store stint.Store
	// RateLimit is Envoy's rate limit service. Default: nil, there is none.
	RateLimit *rls.Service
	// Activity is what was decided lately. Default: nil, nothing is known of it.
	Activity *activity.Recorder
	// Addr is where the listener is.
	Addr   net.Addr
	Logger *slog.Logger
	// Answers count what is answered.
	Answers *promlimit.Answers
	// Draining says that the service is about to stop.
	Draining func() bool
}

// New makes a handler, or reports why others than this machine must not reach it.
func New(c Config) (*Handler, error) {
	a := &Handler{
		guarded: listen.IsLoopback(c.Addr), tokens: newAdminTokens(c.Admin.Tokens),
		bodyTimeout: c.HTTP.BodyTimeout, writeTimeout: c.HTTP.WriteTimeout,
		routes: map[string]*promlimit.AnswerRoute{},
		rules:  c.Rules, readBody: c.ReadBody, draining: c.Draining, rateLimit: c.RateLimit,
		origin: http.NewCrossOriginProtection(),
	}
	if !a.guarded && len(c.Admin.Tokens) == 0 {
		return nil, prefix.Errorf("admin_listen: %w", stint.Invalid("admin.tokens_file", "",
			"a file of tokens, since others than this machine reach "+c.Addr.String()))
	}
	var err error
	if a.pages, err = dashboard.New(); err != nil {
		return nil, err
	}
	if !a.pages.Built() {
		c.Logger.Info("this program was built without its dashboard; a release has it, and make build makes it")
	}
	if a.ended, err = session.NewEnded(c.Store); err != nil {
		return nil, err
	}
	a.stopping, a.stop = context.WithCancel(context.Background())
	a.simulator = simulateapi.New(simulateapi.Config{
		Stop: a.stopping, InForce: c.InForce, Recent: c.Activity, DenyByDefault: c.DenyByDefault,
		Options: rules.Options{IPv6Prefix: c.ClientIP.IPv6Prefix}, ClientIP: clientip.Config(c.ClientIP),
	})
	a.register(c.Activity)
	a.mux.Found = a.found
	for _, pattern := range append(a.mux.Patterns(), routePages, routeOther) {
		a.routes[pattern] = c.Answers.Route(listen.Admin, pattern)
	}
	return a, nil
}

// Stop ends simulations and streams of events.
func (a *Handler) Stop() { a.stop() }

// The routes that no pattern is for, as metrics name them.
const (
	routePages = "/"
	routeOther = "other"
)

// found says by which pattern an answer is counted.
func (a *Handler) found(w http.ResponseWriter, pattern string) {
	if counted, ok := w.(*problem.CountedAnswer); ok {
		counted.Route = a.routes[pattern]
	}
}

// ServeHTTP answers a request of the admin listener.
func (a *Handler) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := new(problem.CountedAnswer)
	w.Begin(plain, a.routes[routeOther], a.draining, "")
	defer w.End()
	problem.BoundBody(w, r, a.bodyTimeout)
	// A connection that knows no deadlines, as in a test of the handler alone, has none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.writeTimeout))
	if err := a.serve(w, r); err != nil {
		problem.Write(w, err)
	}
}

// serve answers, unless it returns an error. Refused requests are recorded in the audit.
func (a *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	if a.pages.Serves(r.URL.Path) {
		a.found(w, routePages)
		// A page holds no secret, and may be linked to from anywhere.
		if a.guarded {
			if err := session.CheckHost(r); err != nil {
				return err
			}
		}
		return a.pages.Serve(w, r)
	}
	who, role, err := a.identify(r)
	caller := rulesapi.Caller{Name: who, From: r.RemoteAddr, Writes: err == nil && role >= config.RoleWrite, Fault: err}
	if err == nil {
		listen.Authorise(r.Context())
	}
	unknown := a.mux.Check(r)
	switch {
	case unknown == nil:
		return a.mux.Serve(w, r, caller)
	case err != nil:
		a.rules.Refused(r.Context(), caller, err)
		return err
	default:
		return unknown
	}
}

// register has the handler answer its paths.
func (a *Handler) register(recent *activity.Recorder) {
	a.rules.Register(&a.mux)
	a.mux.Handle(pathSession, a.session)
	a.handle("GET "+apipath.OpenAPI, config.RoleRead, describe)
	a.handle(pathProfiles, config.RoleWrite, profile) // a profile shows memory
	simulate := func(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
		return a.simulator.Serve(w, r)
	}
	a.handle("POST "+simulateapi.Path, config.RoleWrite, simulate)
	a.handle("GET "+pathDomains, config.RoleRead, a.listDomains)
	a.handle("POST "+pathExplainDomain, config.RoleRead, a.explainDomain)
	if recent == nil {
		return
	}
	for pattern, handler := range recent.Handlers(a.rules.ClientKeys) {
		a.handle(pattern, config.RoleRead, func(w http.ResponseWriter, r *http.Request, caller rulesapi.Caller) error {
			if r.URL.Path == activity.PathEvents {
				if err := a.streams.enter(caller.Name); err != nil {
					a.rules.Refused(r.Context(), caller, err)
					return err
				}
				defer a.streams.leave(caller.Name)
				stream, done := a.streaming(r)
				defer done()
				r = stream
			}
			// Holders of tokens and certificates are shown clients by name.
			return handler(w, r, len(a.tokens.hashes) > 0 || r.TLS != nil && len(r.TLS.VerifiedChains) > 0)
		})
	}
}

// handle has a handler answer what matches a pattern, if the caller has the role.
func (a *Handler) handle(pattern string, needs config.AdminRole, serve problem.Handler[rulesapi.Caller]) {
	a.mux.Handle(pattern, func(w http.ResponseWriter, r *http.Request, caller rulesapi.Caller) error {
		err := caller.Fault
		if err == nil && needs >= config.RoleWrite && !caller.Writes {
			err = problem.Forbidden("the token has role %v; allowed: role %v", config.RoleRead, needs)
		}
		if err != nil {
			a.rules.Refused(r.Context(), caller, err)
			return err
		}
		if err = serve(w, r, caller); err != nil {
			a.rules.Failed(r.Context(), caller, pattern, err)
		}
		return err
	})
}

// sessionCheck is how often it is looked whether the session of a stream goes on.
const sessionCheck = 5 * time.Second

// streaming is a request for a stream that ends when the server stops, and within two sessionChecks of its
// session, until done is called.
func (a *Handler) streaming(r *http.Request) (stream *http.Request, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
	stream, forget := r.WithContext(ctx), context.AfterFunc(a.stopping, cancel)
	if a.signedIn(r) >= 0 {
		go func() {
			for sleep.Jittered(ctx, sessionCheck) == nil {
				if a.signedIn(r) < 0 {
					cancel()
				}
			}
		}()
	}
	return stream, func() {
		forget()
		cancel()
	}
}

// maxStreamsOfOne bounds the streams of events of one caller, so that others have theirs. A browser has one for all of
// its tabs.
const maxStreamsOfOne = 32

// callerStreams count the streams of events by caller. The zero value has none. They are safe for
// concurrent use.
type callerStreams struct {
	mu sync.Mutex
	// open has no entry for callers without streams.
	open map[string]int
}

// enter counts one more stream of a caller, or refuses it.
func (s *callerStreams) enter(who string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[who] >= maxStreamsOfOne {
		return problem.ReducedCapacity(
			fmt.Sprintf("%d streams of events are open for %s; allowed: %d", s.open[who], who, maxStreamsOfOne),
		)
	}
	if s.open == nil {
		s.open = map[string]int{}
	}
	s.open[who]++
	return nil
}

// leave counts one stream less.
func (s *callerStreams) leave(who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[who]--; s.open[who] == 0 {
		delete(s.open, who)
	}
}

// identify returns the caller of a request and its role. The guard comes first, since on loopback
// there may be nothing else.
func (a *Handler) identify(r *http.Request) (who string, role config.AdminRole, err error) {
	if a.guarded {
		if err := session.CheckOrigin(r); err != nil {
			return "", 0, err
		}
	}
	index := a.signedIn(r)
	if index < 0 && len(a.tokens.hashes) > 0 {
		if index, err = a.tokens.hashes.Find(r.Header["Authorization"]); err != nil {
			return "", 0, err
		}
	}
	if index >= 0 {
		return a.tokens.tokens[index].Name, a.tokens.tokens[index].Role, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		return certificateName(r.TLS.VerifiedChains[0][0]), config.RoleWrite, nil
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "loopback " + host, config.RoleWrite, nil
}

// certificateName is the name of a certificate's holder: its common name, with unprintable characters escaped;
// without one, certificate- and the first digits of its SHA-256.
func certificateName(certificate *x509.Certificate) string {
	name := strings.TrimSpace(certificate.Subject.CommonName)
	if name == "" {
		return config.DigestName("certificate", certificate.Raw)
	}
	unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == '\\' }
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unprintable) {
		quoted := strconv.Quote(name)
		name = quoted[1 : len(quoted)-1]
	}
	return clip.To(config.MaxTokenName, name)
}

// pathProfiles is where net/http/pprof is.
const pathProfiles = "/debug/pprof/"

// profile takes as long as its caller asked it to.
func profile(w http.ResponseWriter, r *http.Request, _ rulesapi.Caller) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	switch strings.TrimPrefix(r.URL.Path, pathProfiles) {
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
	return nil
}

//go:embed openapi.yaml
var openAPI []byte

// describe answers with the description of the API.
func describe(w http.ResponseWriter, _ *http.Request, _ rulesapi.Caller) error {
	problem.AnswerYAML(w, openAPI)
	return nil
}

// pathSession is where the dashboard signs in and out.
const pathSession = "/session"

// maxSignInBytes bounds the body of a sign-in.
const maxSignInBytes = 4 << 10

// signedIn returns the index of the token by whose session a request was sent, and -1 if it was not by one. A page of
// another origin that makes a browser send the cookie changes nothing by it.
func (a *Handler) signedIn(r *http.Request) int {
	if len(a.tokens.hashes) == 0 || len(r.Header["Authorization"]) > 0 || a.origin.Check(r) != nil {
		return -1
	}
	return session.Find(r, a.tokens.hashes, time.Now(), func(id string) bool { return a.ended.Has(r.Context(), id) })
}

// A sessionAnswer is the name and the rights of the person who is signed in.
type sessionAnswer struct {
	Required bool   `json:"required"` // whether a token is needed
	Name     string `json:"name,omitempty"`
	Writes   bool   `json:"writes"`
	// Rules says what becomes of edits. Left out: nobody is signed in.
	Rules *rulesapi.Place `json:"rules,omitempty"`
}

// session tells the name of the caller (GET), signs in by a token (POST) and signs out (DELETE). A
// session is a cookie sealed under the token's hash; see package session. A sign-in that was refused is recorded.
func (a *Handler) session(w http.ResponseWriter, r *http.Request, caller rulesapi.Caller) (err error) {
	defer func() {
		if err != nil && r.Method == http.MethodPost {
			a.rules.Refused(r.Context(), rulesapi.Caller{From: r.RemoteAddr, Fault: err}, err)
		}
	}()
	if err := a.origin.Check(r); err != nil {
		return problem.Forbidden("the request comes from a page of another origin; allowed: the dashboard itself")
	}
	// A request to another name than this machine's may not even sign in: its sender reads the answer.
	var known *problem.Error
	if errors.As(caller.Fault, &known) && known.Status != http.StatusUnauthorized {
		return caller.Fault
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if caller.Fault != nil {
			return problem.Answer(w, r, http.StatusOK, sessionAnswer{Required: true})
		}
		return a.answerSession(w, r, caller.Name, caller.Writes)
	case http.MethodPost:
		index, err := a.readSignIn(w, r)
		if err != nil {
			return err
		}
		holder := a.tokens.tokens[index]
		http.SetCookie(w, session.New(a.tokens.hashes[index], time.Now(), r.TLS != nil))
		return a.answerSession(w, r, holder.Name, holder.Role >= config.RoleWrite)
	case http.MethodDelete:
		for _, s := range session.Of(r, a.tokens.hashes, time.Now()) {
			a.ended.End(r.Context(), s.ID)
		}
		http.SetCookie(w, session.End(r.TLS != nil))
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return nil
	default:
		return problem.CheckMethod(r, "GET", "HEAD", "POST", "DELETE")
	}
}

// answerSession tells who is signed in. One who signs in by a token needs one, so there are some.
func (a *Handler) answerSession(w http.ResponseWriter, r *http.Request, name string, writes bool) error {
	place := a.rules.Place()
	return problem.Answer(w, r, http.StatusOK, sessionAnswer{
		Required: len(a.tokens.hashes) > 0, Name: name, Writes: writes, Rules: &place,
	})
}

// readSignIn returns the index of the token in the body.
func (a *Handler) readSignIn(w http.ResponseWriter, r *http.Request) (index int, err error) {
	// which no form can send
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return 0, problem.New(
			http.StatusUnsupportedMediaType, "Content-Type is %q; allowed: application/json",
			problem.Short(r.Header.Get("Content-Type")),
		)
	}
	var body struct {
		Token string `json:"token"`
	}
	decoder := json.NewDecoder(problem.BoundedBody(w, r, maxSignInBytes))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&body); err != nil {
		return 0, stint.Invalid("the body", "no such JSON", `{"token": TOKEN}`)
	}
	if index = a.tokens.hashes.Index(body.Token); index < 0 {
		return 0, problem.New(http.StatusUnauthorized, "the token is not known; allowed: one of admin.tokens_file")
	}
	return index, nil
}

// adminTokens are tokens with what they stand for.
type adminTokens struct {
	hashes session.Tokens
	tokens []config.AdminToken // without the token itself
}

func newAdminTokens(tokens []config.AdminToken) adminTokens {
	var known adminTokens
	for _, token := range tokens {
		known.hashes = append(known.hashes, sha256.Sum256([]byte(token.Token)))
		known.tokens = append(known.tokens, config.AdminToken{Role: token.Role, Name: token.Holder()})
	}
	return known
}
