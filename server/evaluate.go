package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/server/problem"
)

// evaluate decides a request that the body describes by the rules that match it.
func (s *service) evaluate(w http.ResponseWriter, r *http.Request) error {
	if err := s.authority.mayManage(r); err != nil {
		return err
	}
	details, err := detailsOf(r.URL.RawQuery, detailsMember)
	if err != nil {
		return err
	}
	text, err := s.readText(w, r)
	if err != nil {
		return err
	}
	defer text.release()
	e, _ := s.evaluations.Get().(*evaluation)
	if r, e.work, err = s.enter(r, costOf(1, len(text.text))); err != nil {
		return err
	}
	kept := false
	defer func() { e.leaveUnless(kept) }()
	if err := e.read(text.text, s.clients); err != nil {
		return err
	}
	if err := s.enforce(w, r, e); err != nil {
		return err
	}
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	s.describe(header, e)
	e.answer()
	if v := &e.verdict; details && v.Claim.Policy != nil && !v.Decision.Degraded {
		e.response.Details = limitDetails(v.Claim.Policy, v.Each, v.Decision.At)
	}
	e.body = e.response.AppendJSON(e.body[:0])
	e.work.leave()
	if !e.verdict.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(e.body) // a client that is gone has no use for the error
	kept = true
	s.keep(e)
	return nil
}

// leaveUnless ends the work of an evaluation that was not kept: one that was is another request's by now.
func (e *evaluation) leaveUnless(kept bool) {
	if !kept {
		e.work.leave()
	}
}

// keep gives an evaluation back whose request has been answered.
func (s *service) keep(e *evaluation) {
	e.work.leave()
	if e.clear() {
		s.evaluations.Put(e)
	}
}

// enforce decides and counts.
func (s *service) enforce(w http.ResponseWriter, r *http.Request, e *evaluation) error {
	v := &e.verdict
	if s.rulesState() == RulesUnknown {
		if s.config.RulesRequired {
			return errRulesUnknown()
		}
		*v = enforce.Verdict{Allowed: true, OnHold: v.OnHold, Matched: v.Matched[:0]}
		v.Decision.Degraded, v.Decision.Source = true, stint.SourceFailurePolicy
		return nil
	}
	start := time.Now()
	decide := s.rules.Decide
	if e.now {
		decide = s.rules.DecideNow
	}
	err := decide(r.Context(), &e.request, v)
	elapsed := time.Since(start) - v.Held
	if err != nil || v.Decision.Degraded {
		if err = s.judge(r.Context(), stint.Take, err); err != nil {
			s.undecided(v.Undecided, err)
			return err
		}
	}
	if v.Claim.Policy != nil {
		limit := v.Claim.Policy.Limit(int(v.Decision.Index))
		s.metrics.Checked(limit.Algorithm, v.Decision, elapsed)
	}
	s.ruleMetrics.Decided(v)
	s.observeVerdict(w, r, &e.request, v, start, elapsed)
	return nil
}

// undecided counts an evaluation that the store did not decide and no failure policy answered:
// for each rule that was to decide it, and, as a check would be, as a denial by the limit that
// admits least.
func (s *service) undecided(claims []enforce.Claimed, err error) {
	if !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) || len(claims) == 0 {
		return
	}
	s.ruleMetrics.Undecided(claims)
	least := claims[0].Claim.Policy.Limit(0)
	for i := range claims {
		for _, limit := range claims[i].Claim.Policy.Limits() {
			if limit.Capacity < least.Capacity {
				least = limit
			}
		}
	}
	s.metrics.Checked(least.Algorithm, stint.Decision{Degraded: !errors.Is(err, stint.ErrOverloaded)}, 0)
}

// describe writes the rate limit fields of the deciding rule, if its limits were asked.
func (s *service) describe(header http.Header, e *evaluation) {
	v := &e.verdict
	if policy := v.Claim.Policy; policy != nil {
		httplimit.HeadersOf(policy, s.config.Headers).Write(header, v.Decision, v.Each)
	}
}

// answer makes the response of the verdict.
func (e *evaluation) answer() {
	v, c := &e.verdict, &e.response
	*c = api.EvaluateResponse{Matched: v.Matched, Shadowed: v.Shadowed}
	if v.Rule != nil {
		c.Rule = v.Rule.ID
	}
	if v.Claim.Policy != nil {
		c.CheckResponse = checkResponse(v.Claim.Key, v.Limit(), &v.Decision, v.Reason())
		return
	}
	c.Allowed, c.Message = v.Allowed, api.MessageAllowed
	if v.Decision.Degraded {
		c.Degraded, c.Source = true, v.Decision.Source.String()
	}
	if !v.Allowed {
		c.Message = api.MessageDenied
		c.RetryAfterSeconds, c.RetryAfterMicros = httplimit.Seconds(stint.Never), -1
		c.Reason, c.Missing = string(v.Reason()), v.Missing()
	}
}

// swapRules puts rules in force, of which nil are none.
func (s *service) swapRules(set *rules.Set) rules.Changes {
	if set == nil {
		set = new(rules.Set)
	}
	s.swapping.Lock()
	defer s.swapping.Unlock()
	// The metrics know a rule before it decides, and forget one after.
	s.ruleMetrics.Set(set, s.rules.Set())
	old := s.rules.Swap(set)
	s.ruleMetrics.Set(set)
	s.warnOfWaits(set, old)
	changes := set.ChangesFrom(old)
	s.observeRules(set, changes)
	return changes
}

// warnOfWaits says which rules that have come into force hold no request as long as they may, as
// it has to be answered in time.
func (s *service) warnOfWaits(set, old *rules.Set) {
	most := s.config.longestWait()
	for _, rule := range set.Rules() {
		if !waits(&rule) || rule.MaxWait <= most {
			continue
		}
		if was, known := old.Rule(rule.ID); known && waits(&was) && was.MaxWait == rule.MaxWait {
			continue // it was said then
		}
		s.logger.Warn("a rule holds requests for less than its max_wait; http.write_timeout bounds it", "rule", rule.ID,
			"max_wait", rule.MaxWait, "bound", most, "http.write_timeout", s.config.WriteTimeout,
			"needed", min(rule.MaxWait+s.config.BodyTimeout, 2*rule.MaxWait))
	}
}

// waits reports whether the rule may hold requests.
func waits(rule *rules.Rule) bool { return !rule.Disabled && rule.OnExceed == rules.Wait }

// An evaluation is what deciding one request by rules needs for a moment. The zero value is
// ready to use, and one that is used again saves its allocations.
type evaluation struct {
	request    rules.Request
	verdict    enforce.Verdict
	header     http.Header
	lines      []string // of the header
	attributes map[string]string
	now        bool // whether the request is denied rather than held
	response   api.EvaluateResponse
	body       []byte
	work       ticket
}

// newEvaluation makes an evaluation, whose work is over when the request begins to be held.
func newEvaluation() *evaluation {
	e := new(evaluation)
	e.verdict.OnHold = e.work.leave
	return e
}

// fewRules is how many rules and members an evaluation may have had whose room is kept.
const fewRules = 256

// clear forgets the request. It reports whether the evaluation is worth keeping.
func (e *evaluation) clear() bool {
	few := len(e.header)+len(e.attributes)+len(e.verdict.Matched) <= fewRules
	e.request, e.response, e.now = rules.Request{}, api.EvaluateResponse{}, false
	clear(e.header)
	clear(e.attributes)
	clear(e.lines)
	e.lines = e.lines[:0]
	return few
}

const evaluationMembers = "method, path, host, ip, headers, attributes, wait"

// A reader reads an evaluation's body.
type reader struct {
	scanner
	*evaluation
	clients *clientip.Resolver
	seen    uint8 // of the members, a bit each

	settles bool   // whether it is the body of a settlement, which has permits as well
	permits string // of a settlement
}

// read reads a body that describes a request.
func (e *evaluation) read(text string, clients *clientip.Resolver) error {
	if !utf8.ValidString(text) {
		return badRequest("the body is not UTF-8; allowed: JSON in UTF-8")
	}
	r := reader{scanner: scanner{text: text}, evaluation: e, clients: clients}
	return r.body()
}

// errKeyed says that a settlement names a key, or what it decides by.
var errKeyed = errors.New("a settlement of a key")

const (
	permitsBit = 1 << 6
	waitBit    = 1 << 7
)

// readSettlement reads the body of a settlement, and reports whether it describes a request.
func (e *evaluation) readSettlement(text string, clients *clientip.Resolver) (permits string, described bool, err error) {
	r := reader{scanner: scanner{text: text}, evaluation: e, clients: clients, settles: true}
	err = r.body()
	described = r.seen&^permitsBit != 0 && !errors.Is(err, errKeyed)
	return r.permits, described, err
}

func (r *reader) body() error {
	if r.next() != '{' {
		return r.malformed("a JSON object with any of " + evaluationMembers)
	}
	if err := r.members(r.member); err != nil {
		return err
	}
	if r.next() != 0 {
		return r.malformed("the end of the body")
	}
	return nil
}

// member reads a member's value.
func (r *reader) member(name string) (err error) {
	q := &r.request
	switch name {
	case "method":
		if err = r.once(name, 1<<0); err == nil {
			q.Method, err = r.textOf(name)
		}
	case "path":
		if err = r.once(name, 1<<1); err == nil {
			q.Path, err = r.path()
		}
	case "host":
		if err = r.once(name, 1<<2); err == nil {
			q.Host, err = r.textOf(name)
		}
	case "ip":
		if err = r.once(name, 1<<3); err == nil {
			q.Address, err = r.address()
		}
	case "headers":
		if err = r.once(name, 1<<4); err == nil {
			err = r.object(name, r.headerField)
		}
	case "attributes":
		if err = r.once(name, 1<<5); err == nil {
			err = r.object(name, r.attribute)
		}
	case "wait":
		if err = r.once(name, waitBit); err == nil {
			err = r.wait()
		}
	case "permits":
		if err = r.once(name, permitsBit); err == nil && r.settles {
			r.next()
			r.permits, err = r.integer(name)
		} else if err == nil {
			err = stint.Invalid("parameter", name, evaluationMembers)
		}
	case "key", "algorithm", "policy":
		if err = stint.Invalid("parameter", name, evaluationMembers); r.settles {
			err = errKeyed
		}
	default:
		err = stint.Invalid("parameter", problem.Short(name), evaluationMembers)
	}
	return err
}

// wait reads whether rules that wait may hold the request.
func (r *reader) wait() error {
	r.next()
	switch rest := r.text[r.at:]; {
	case r.settles:
		return stint.Invalid("parameter", "wait", "none in a settlement, which waits for nothing")
	case strings.HasPrefix(rest, "true"):
		r.at += len("true")
	case strings.HasPrefix(rest, "false"):
		r.at += len("false")
		r.now = true
	default:
		return r.mistyped("wait", "true or false")
	}
	return nil
}

// once notes that a member is there, which must not have been.
func (r *reader) once(name string, bit uint8) error {
	if r.seen&bit != 0 {
		return errRepeated(name)
	}
	r.seen |= bit
	return nil
}

func errRepeated(name string) error {
	return badRequest(fmt.Sprintf("%s is repeated; allowed: once", problem.Short(name)))
}

// textOf reads a string.
func (r *reader) textOf(name string) (string, error) {
	if r.next() != '"' {
		return "", r.mistyped(problem.Short(name), "a string")
	}
	return r.string()
}

// object reads a member that is an object.
func (r *reader) object(name string, read func(string) error) error {
	if r.next() != '{' {
		return r.mistyped(name, "an object")
	}
	return r.members(read)
}

func (r *reader) path() (string, error) {
	path, err := r.textOf("path")
	if err == nil {
		err = checkPath("path", path)
	}
	return path, err
}

// checkPath reports what is wrong with a request's path.
func checkPath(param, path string) error {
	if path == "*" || strings.HasPrefix(path, "/") {
		return nil
	}
	return stint.Invalid(param, problem.Short(path), "a path that begins with a slash, or * alone")
}

// address reads the client's address and makes a key of it.
func (r *reader) address() (string, error) {
	text, err := r.textOf("ip")
	if err != nil {
		return "", err
	}
	addr, ok := clientip.Parse(text)
	if !ok {
		return "", stint.Invalid("ip", problem.Short(text), "an IPv4 or IPv6 address")
	}
	return r.clients.KeyOf(addr), nil
}

// headerField reads one member of headers.
func (r *reader) headerField(name string) error {
	value, err := r.textOf("headers." + name)
	if err != nil {
		return err
	}
	field := http.CanonicalHeaderKey(name)
	if _, twice := r.header[field]; twice {
		return errRepeated("headers." + name)
	}
	if r.header == nil {
		r.header = http.Header{}
	}
	r.request.Header = r.header
	r.lines = append(r.lines, value)
	n := len(r.lines)
	r.header[field] = r.lines[n-1 : n : n]
	return nil
}

// attribute reads one member of attributes: a string, or an integer as its decimal text.
func (r *reader) attribute(name string) (err error) {
	if _, twice := r.attributes[name]; twice {
		return errRepeated("attributes." + name)
	}
	var value string
	switch c := r.next(); {
	case c == '"':
		value, err = r.string()
	case isNumber(c):
		if value, err = r.integer(problem.Short("attributes." + name)); err == nil {
			_, err = parseInteger(value)
		}
		if errors.Is(err, errNotInteger) {
			err = stint.Invalid(problem.Short("attributes."+name), problem.Short(value), "a string, or an integer of 64 bits")
		}
	default:
		err = r.mistyped(problem.Short("attributes."+name), "a string or an integer")
	}
	if err != nil {
		return err
	}
	if r.attributes == nil {
		r.attributes = map[string]string{}
	}
	r.attributes[name] = value
	switch name {
	case api.AttributeUserID:
		r.request.User = value
	case api.AttributeAPIKey:
		r.request.APIKey = value
	}
	r.request.Attributes = r.attributes
	return nil
}
