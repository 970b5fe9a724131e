package rest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/adapt"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/server/resp"
)

// The messages of an answer.
const (
	messageAllowed = "Request allowed"
	messageDenied  = "Rate limit exceeded"
)

// checkOne answers a check, by a query or by a body, which may be a batch. The cost of a query is
// that of one operation and of reading it. A check by GET serves programs that can do no more than
// fetch a URL, such as those in proxies.
func (s *Service) checkOne(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		return s.checkBody(w, r)
	}
	r, work, err := s.enter(r, capacity.CostOf(1, len(r.URL.RawQuery)))
	if err != nil {
		return err
	}
	defer work.Leave()
	q, err := parseQuery(r.URL.RawQuery, costMembers|detailsMember)
	if err != nil {
		return err
	}
	return s.check(w, r, &work, &q)
}

// checkBody answers a check whose members stand in a body. Its braces bound how many operations it
// may have, so that it waits for its turn before it is parsed.
func (s *Service) checkBody(w http.ResponseWriter, r *http.Request) error {
	text, details, err := s.readMembers(w, r, detailsMember)
	if err != nil {
		return err
	}
	defer text.Release()
	r, work, err := s.enter(r, capacity.CostOf(strings.Count(text.Text, "{"), len(text.Text)))
	if err != nil {
		return err
	}
	defer work.Leave()
	requests, batch, err := parseBody(text.Text, costMembers)
	if err != nil {
		return err
	}
	for i := range requests {
		requests[i].details = details
	}
	if batch {
		return s.checkAll(w, r, &work, requests)
	}
	return s.check(w, r, &work, &requests[0])
}

// claim is what the request asks for, if it may. It is found before anything is asked: whatever is
// wrong with a request consumes nothing.
func (s *Service) claim(r *http.Request, q *request) (*target, stint.Claim, error) {
	t, fallback, err := s.targets.Load().find(q)
	if err != nil {
		return nil, stint.Claim{}, err
	}
	if fallback {
		s.noteUnknownAlgorithm(r, q.algorithm)
	}
	claim := stint.Claim{Policy: t.Policy}
	if claim.Key, err = s.keyOf(r, q); err == nil {
		claim.Permits, err = t.cost(q)
	}
	if err == nil {
		claim.Keep, err = t.keep(q)
	}
	return t, claim, err
}

// keyOf is the key that the request names, if it may, else the client's address. To name a key is
// to choose whom one counts as, and so needs a token unless the API is open; without a name, a
// client counts as its address.
func (s *Service) keyOf(r *http.Request, q *request) (string, error) {
	if !q.has(keyMember) {
		return s.clients.Key(r.RemoteAddr, r.Header), nil
	}
	if err := s.authority.mayNameKeys(s.authority.mayManage(r)); err != nil {
		return "", err
	}
	return q.key, checkKey(q.key)
}

// check decides one request. The work is over before the answer is sent, since a client may read it
// slowly. All that it needs beside the decision is in an evaluation, which the next check uses again,
// so that checks do not allocate for each answer.
func (s *Service) check(w http.ResponseWriter, r *http.Request, work *capacity.Ticket, q *request) error {
	t, claim, err := s.claim(r, q)
	if err != nil {
		return err
	}
	x, _ := s.evaluations.Get().(*evaluation)
	op := stint.Op{Verb: stint.VerbTake, Claim: claim}
	if t.headers.NeedsEach() || q.details {
		x.each = slices.Grow(x.each[:0], t.Policy.Len())
		op.Each = x.each[:t.Policy.Len()]
	}
	if q.details {
		clear(op.Each) // a failure policy may leave them as they are
	}
	start := time.Now()
	d, err := s.decide(r.Context(), op)
	elapsed := time.Since(start)
	if err != nil {
		return s.refused(t.Least, err)
	}
	s.observeCheck(w, r, &x.event, t, &claim, &d, start, elapsed)

	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	t.headers.Write(header, d, op.Each)
	c := &x.response.CheckResponse
	t.fill(c, &claim, &d)
	if q.details {
		c.Details = limitDetails(&claim, op.Each, d.At)
	}
	x.body = c.AppendJSON(x.body[:0])
	work.Leave()
	if !d.Allowed {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(x.body) // a client that is gone has no use for the error
	s.evaluations.Put(x)
	return nil
}

// limitsAtOnce is how many limits of a batch go to the store in one call, which has the time of a
// call: all of a batch, up to 64,000 by the bounds of its elements and of a policy, would not be
// decided in it.
const limitsAtOnce = 1024

// checkAll decides a batch in order, each element alone. All elements are judged
// before the first is decided. The batch is as much work as it has limits: what it is more than it seemed,
// it waits for once more.
func (s *Service) checkAll(w http.ResponseWriter, r *http.Request, work *capacity.Ticket, requests []request) error {
	found := make([]*target, len(requests))
	ops := make([]stint.Op, len(requests))
	limits := 0
	for i := range requests {
		t, claim, err := s.claim(r, &requests[i])
		if err != nil {
			return inElement(i, err)
		}
		found[i], ops[i] = t, stint.Op{Verb: stint.VerbTake, Claim: claim}
		if requests[i].details {
			ops[i].Each = make([]stint.Outcome, t.Policy.Len())
		}
		limits += t.Policy.Len()
	}
	if work.Lacks(int64(limits)) {
		work.Leave()
		var err error
		if r, *work, err = s.enter(r, int64(limits)); err != nil {
			return err
		}
	}
	results := make([]stint.Result, len(ops))
	start := time.Now()
	s.decideAll(r.Context(), ops, results)
	elapsed := time.Since(start)

	body := []byte{'['}
	var response api.CheckResponse
	var event stint.Event
	for i := range results {
		t, d := found[i], results[i].Decision
		if err := results[i].Err; err != nil {
			return inElement(i, s.refused(t.Least, err))
		}
		s.observeCheck(w, r, &event, t, &ops[i].Claim, &d, start, elapsed)
		if i > 0 {
			body = append(body, ',')
		}
		t.fill(&response, &ops[i].Claim, &d)
		response.Details = limitDetails(&ops[i].Claim, ops[i].Each, d.At)
		body = response.AppendJSON(body)
	}
	body = append(body, ']')
	work.Leave()
	header := w.Header()
	header["Content-Type"] = jsonType
	header["Cache-Control"] = noStore
	header["Content-Length"] = []string{strconv.Itoa(len(body))}
	_, _ = w.Write(body)
	return nil
}

// decide carries out one operation. An error is the caller's fault (ErrInvalid), this process's
// (ErrOverloaded), problem.ClientGone, or errStoreUnreachable's.
func (s *Service) decide(ctx context.Context, op stint.Op) (stint.Decision, error) {
	d, err := s.config.Store.Decide(ctx, op)
	if err == nil && !d.Degraded {
		return d, nil
	}
	return d, s.storeError(ctx, op.Verb, err)
}

// decideAll carries out the operations in order, each alone, in calls of limitsAtOnce. The results'
// errors are as decide's. The chunks go to the store one after another. A failure within a chunk is
// the failure of all that follow, which are not asked any more.
func (s *Service) decideAll(ctx context.Context, ops []stint.Op, results []stint.Result) {
	for from := 0; from < len(ops); {
		to, limits := from, 0
		for to < len(ops) && (to == from || limits+ops[to].Limits() <= limitsAtOnce) {
			limits += ops[to].Limits()
			to++
		}
		s.config.Store.DecideAll(ctx, ops[from:to], results[from:to])
		for i := from; i < to; i++ {
			if err := results[i].Err; err != nil { // which the whole request is answered with: no more is consumed
				for ; to < len(ops); to++ {
					results[to].Err = err
				}
			}
		}
		from = to
	}
	for i := range results {
		if results[i].Err != nil || results[i].Decision.Degraded {
			results[i].Err = s.storeError(ctx, ops[i].Verb, results[i].Err)
		}
	}
}

// storeError turns what the store returned, an error or a decision that it could not make
// itself, into one of decide's errors. ctx is the request's.
func (s *Service) storeError(ctx context.Context, verb stint.Verb, err error) error {
	switch {
	case errors.Is(err, stint.ErrInvalid):
		return err
	case errors.Is(err, stint.ErrOverloaded):
		return err
	case err != nil && ctx.Err() != nil:
		return problem.ClientGone
	}
	if held := holdError(err); held != nil {
		return held
	}
	if err == nil && (verb <= stint.VerbTry || verb == stint.VerbReserve) {
		return nil // a check by a failure policy is counted with its event
	}
	s.metrics.StoreFailed()
	if err != nil {
		return errStoreUnreachable(verb)
	}
	return nil
}

// errStoreUnreachable answers what the store did not, by what may have come of it. It wraps
// stint.ErrUnavailable. What a caller needs to know is whether repeating would count twice: a peek
// and the end of a hold can be repeated, a take can't be told.
func errStoreUnreachable(verb stint.Verb) error {
	detail := problem.Unknown
	switch verb {
	default: // it may have been taken
	case stint.VerbPeek:
		detail = "the store could not answer; nothing was consumed"
	case stint.VerbReset:
		detail = "the store did not confirm the reset; whether it was made is not known"
	case stint.VerbCommit, stint.VerbCancel:
		detail = "the store did not confirm the end of the hold; send it again, it counts once"
	case stint.VerbSettle:
		detail = "the store did not confirm the settlement; whether it was made is not known"
	}
	return &problem.Error{Status: http.StatusServiceUnavailable, Detail: detail, Cause: stint.ErrUnavailable}
}

// refused counts a check that the store did not decide and no failure policy answered, as a denial
// by the limit that admits least, which has an algorithm. It returns the error. Dashboards show it
// as a denial, which it is for the client.
func (s *Service) refused(by stint.Algorithm, err error) error {
	switch {
	case errors.Is(err, stint.ErrOverloaded):
		s.metrics.Checked(by, stint.Decision{}, 0)
	case errors.Is(err, stint.ErrUnavailable):
		s.metrics.Checked(by, stint.Decision{Degraded: true}, 0)
	}
	return err
}

// fill describes a decision of the target.
func (t *target) fill(c *api.CheckResponse, claim *stint.Claim, d *stint.Decision) {
	limit := t.Policy.Limit(int(d.Index))
	*c = checkResponse(claim.Key, limit, d, stint.ReasonOf(limit, d, claim.Permits))
	c.Policy = t.name
}

// checkResponse describes a decision, of which limit is the deciding one. Waits come in seconds,
// rounded up, for headers and people, and in microseconds for programs.
func checkResponse(key string, limit stint.Limit, d *stint.Decision, reason stint.Reason) api.CheckResponse {
	c := api.CheckResponse{
		Allowed:           d.Allowed,
		Degraded:          d.Degraded,
		Key:               key,
		Algorithm:         limit.Algorithm.String(),
		Limit:             d.Limit,
		Remaining:         d.Remaining,
		ResetAfterSeconds: adapt.Seconds(d.ResetAfter),
		RetryAfterSeconds: adapt.Seconds(d.RetryAfter),
		Message:           messageAllowed,
		ResetAfterMicros:  d.ResetAfter.Microseconds(),
		RetryAfterMicros:  adapt.Micros(d.RetryAfter),
		DelayMicros:       d.Delay.Microseconds(),
		At:                int64(d.At),
		Source:            d.Source.String(),
	}
	if !d.Allowed {
		c.Message, c.Reason, c.LimitName = messageDenied, string(reason), limit.Name
	}
	return c
}

// limitDetails describes what each limit of a claim's policy says by itself, at an instant. Without
// outcomes, as of a failure policy that asks no limit, it is nil. Used is what the limit lacks of
// its capacity; where the window of a sliding log begins it is a window before the decision.
func limitDetails(claim *stint.Claim, each []stint.Outcome, at stint.Instant) []api.LimitDetails {
	if len(each) == 0 || each[0].Limit == 0 {
		return nil
	}
	policy := claim.Policy
	details := make([]api.LimitDetails, policy.Len())
	for i := range details {
		limit, o := policy.Limit(i), &each[i]
		d := &details[i]
		*d = api.LimitDetails{
			Name:             limit.Name,
			Algorithm:        limit.Algorithm.String(),
			Allowed:          o.Allowed,
			Limit:            o.Limit,
			Remaining:        o.Remaining,
			Used:             o.Limit - o.Remaining,
			ResetAfterMicros: o.ResetAfter.Microseconds(),
			RetryAfterMicros: adapt.Micros(o.RetryAfter),
			GrowsAfterMicros: o.GrowsAfter.Microseconds(),
			DelayMicros:      o.Delay.Microseconds(),
		}
		switch limit.Algorithm {
		case stint.AlgorithmLeakyBucket:
			if claim.Keep == 0 { // else what is kept counts as used
				d.QueueSize = &d.Used
			}
		case stint.AlgorithmFixedWindow:
			window := algorithm.NewMachine(limit)
			start, _ := window.Window(at)
			if limit.FirstRequest && o.ResetAfter > 0 {
				start = at.Add(o.ResetAfter - limit.Window)
			}
			d.WindowStart = int64(start)
		case stint.AlgorithmSlidingWindowCounter:
			d.WindowStart = int64(at) - int64(at)%limit.Window.Microseconds()
		case stint.AlgorithmSlidingWindowLog:
			d.WindowStart = int64(at) - limit.Window.Microseconds()
		default: // a token bucket's state has no more to tell
		}
	}
	return details
}

// A target is what an algorithm's or a policy's name stands for, with everything
// that can be known about it before a request comes.
type target struct {
	name string // the policy's name; "" for an algorithm's default
	// Target has in Rule what activity has in the place of a rule, and in Most the least capacity of its limits, which is
	// the highest cost that can ever be admitted.
	resp.Target
	headers *httplimit.Headers
	// the least capacity of all limits, also of those with a cost of their own
	keepable int64
}

// policyPrefix begins the names under which the state of configured policies is kept, apart from that of the
// defaults, which have none, of rules and of programs' limiters.
const policyPrefix = "policy/"

// newTarget prepares what a check of a policy, or of an algorithm's default, needs each time: the
// policy, its headers, and the bounds of what a check may ask for. Most is the least capacity
// of the limits without a cost of their own, above which no cost can be admitted; keepable is the
// least of all.
func newTarget(name string, fields httplimit.Fields, limits ...stint.Limit) (*target, error) {
	kept := ""
	if name != "" {
		kept = policyPrefix + name
	}
	policy, err := stint.NewPolicy(kept, limits...)
	if err != nil {
		return nil, err
	}
	first := limits[0].Algorithm
	t := &target{
		name: name, headers: httplimit.HeadersOf(policy, fields), keepable: bounds.MaxPermits,
		Target: resp.Target{
			Policy: policy, Rule: cmp.Or(kept, "algorithm/"+first.String()), Most: bounds.MaxPermits + 1, Least: first,
		},
	}
	for _, limit := range limits {
		t.keepable = min(t.keepable, limit.Capacity)
		if limit.Cost == 0 && limit.Capacity < t.Most {
			t.Most, t.Least = limit.Capacity, limit.Algorithm
		}
	}
	t.Most, t.Fill = min(t.Most, bounds.MaxPermits), t.fill
	return t, nil
}

// targets finds what a request is about. It is immutable.
type targets struct {
	defaults [stint.AlgorithmSlidingWindowCounter + 1]*target
	policies map[string]*target
	all      []*target // the defaults and the policies, in a fixed order
	names    string    // of the policies, for error messages
	fallback bool      // whether TOKEN_BUCKET decides for an algorithm that does not exist
}

// newTargets makes all targets of a configuration, or reports everything that is wrong with them, sorted by name, so
// that the same configuration has the same error. Names are listed once, for the errors of checks that name another
// one, and cut after twenty.
func newTargets(c *Config, limits Limits) (*targets, error) {
	ts := &targets{policies: map[string]*target{}, names: "none is configured", fallback: c.API.UnknownFallsBack}
	defaults := config.DefaultLimits()
	maps.Copy(defaults, limits.Defaults)
	var faults []error
	for _, algorithm := range slices.Sorted(maps.Keys(defaults)) {
		limit := defaults[algorithm]
		t, err := newTarget("", c.Headers.Fields(), limit)
		switch {
		case limit.Algorithm != algorithm:
			faults = append(faults, stint.Invalid("defaults", limit.Algorithm, "a limit of algorithm "+algorithm.String()))
		case err != nil:
			faults = append(faults, prefix.Errorf("defaults: %s: %w", algorithm, err))
		case int(algorithm) < len(ts.defaults):
			ts.defaults[algorithm] = t
			ts.all = append(ts.all, t)
		}
	}
	names := slices.Sorted(maps.Keys(limits.Policies))
	for _, name := range names {
		t, err := newTarget(name, c.Headers.Fields(), limits.Policies[name]...)
		switch {
		case name == "":
			faults = append(faults, stint.Invalid("policies", name, "a name of at least one character"))
		case err != nil:
			faults = append(faults, prefix.Errorf("policies: %s: %w", name, err))
		default:
			ts.policies[name] = t
			ts.all = append(ts.all, t)
		}
	}
	const most = 20
	if n := len(names); n > most {
		names = append(names[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	if len(names) > 0 {
		ts.names = strings.Join(names, ", ")
	}
	return ts, prefix.Join(faults...)
}

// SwapLimits puts limits in the place of those by which checks are decided, or reports everything that
// is wrong with them and changes nothing. What clients have used counts on under a limit of the same
// name and algorithm. Requests that have begun are decided by the limits that they began with. It is
// safe for concurrent use.
func (s *Service) SwapLimits(limits Limits) error {
	ts, err := newTargets(s.config, limits)
	if err == nil {
		s.targets.Store(ts)
	}
	return err
}

// find returns what the request names: its policy, its algorithm, or TOKEN_BUCKET. fallback says that TOKEN_BUCKET
// stands for an algorithm that does not exist.
func (ts *targets) find(q *request) (found *target, fallback bool, err error) {
	switch {
	case q.has(policyMember) && q.has(algorithmMember):
		return nil, false, problem.BadRequest("policy is %q beside algorithm %q; allowed: one of the two",
			problem.Short(q.policy), problem.Short(q.algorithm))
	case q.has(policyMember):
		found, err = ts.policy(q.policy)
		return found, false, err
	case !q.has(algorithmMember) || q.algorithm == "TOKEN_BUCKET":
		return ts.defaults[stint.AlgorithmTokenBucket], false, nil
	default:
		algorithm, err := notation.ParseAlgorithm(q.algorithm)
		switch {
		case err == nil:
			return ts.defaults[algorithm], false, nil
		case ts.fallback:
			return ts.defaults[stint.AlgorithmTokenBucket], true, nil
		}
		_, err = notation.ParseAlgorithm(problem.Short(q.algorithm))
		return nil, false, err
	}
}

// policy returns the configured policy of a name.
func (ts *targets) policy(name string) (*target, error) {
	if t := ts.policies[name]; t != nil {
		return t, nil
	}
	return nil, stint.Invalid("policy", problem.Short(name), ts.names)
}

// cost is the permits that a check asks for, which its limits must be able to grant.
func (t *target) cost(q *request) (int64, error) {
	if !q.has(permitsMember) {
		return 1, nil
	}
	return amount("permits", q.permits, 1, t.Most)
}

// keep is how many permits of each limit a check leaves to others: up to all of the lowest limit.
func (t *target) keep(q *request) (int64, error) {
	if !q.has(keepMember) {
		return 0, nil
	}
	return amount("keep", q.keep, 0, t.keepable)
}

// amount is a parameter that is a number of permits.
func amount(param, text string, least, most int64) (int64, error) {
	n, err := parseInteger(text)
	if err != nil || n < least || n > most {
		return 0, stint.Invalid(param, problem.Short(text), fmt.Sprintf("an integer from %d to %d", least, most))
	}
	return n, nil
}

// Policies are those by which keys are decided that callers name, with their names: the defaults by
// their algorithms, and those of the configuration.
func (s *Service) Policies() iter.Seq2[string, *stint.Policy] {
	return func(yield func(string, *stint.Policy) bool) {
		for _, t := range s.targets.Load().all {
			if !yield(cmp.Or(t.name, t.Policy.Limit(0).Algorithm.String()), t.Policy) {
				return
			}
		}
	}
}
