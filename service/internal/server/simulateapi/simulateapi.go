// Package simulateapi answers simulations over HTTP: what candidates would do to a pattern, a log or the recent
// decisions of this process, and which limits would leave clients alone.
package simulateapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/activity"
	"github.com/stint-go/stint/service/internal/capacity"
	"github.com/stint-go/stint/service/internal/server/problem"
	"github.com/stint-go/stint/service/internal/simulate"
)

// Path is where the dashboard has candidates simulated.
const Path = "/api/v1/simulate"

// Bounds of a simulation on the admin listener. The service goes on deciding meanwhile, so a
// simulation may have a minute, one at a time, and memory that a process with a small limit can
// spare. What is bounded by counts is bounded before it is allocated; the heap as a whole is looked
// at every 256 requests.
const (
	maxSimulatedEvents  = 5_000_000
	maxSimulatedClients = 200_000
	maxSimulatedLog     = 32 << 20 // bytes, as they are sent and unpacked
	maxSimulatedRequest = 4 << 20  // bytes of candidates
	maxSimulatedHeld    = 1 << 16  // requests that wait for their order
	maxCandidates       = 8
	maxSimulatedMemory  = 48 << 20 // bytes of the tables of clients, counted before they are taken
	maxSimulatedHeap    = 80 << 20 // bytes by which the heap may grow, of everything
	maxUnchecked        = 32 << 20 // bytes by which it grows until it is collected and looked at
	simulationTime      = time.Minute
)

// A Simulator simulates candidates, one request at a time. It reads what the service knows (rules,
// recent decisions) and decides on stores of its own: nothing that is simulated touches the
// service's state.
type Simulator struct {
	// busy has room for one: who is in it simulates.
	busy chan struct{}
	// most is how many events a simulation may have.
	most int
	// heap is capacity.HeapBytes, replaced by tests.
	heap func() uint64
	// before is what heap was when the simulation began.
	before uint64
	// checked is what it was after the last collection that proceed asked for.
	checked uint64
	Config
}

// A Config says what a [Simulator] knows of the service.
type Config struct {
	// Stop is done when the process is to stop.
	Stop context.Context
	// InForce are the rules that decide.
	InForce func() *rules.Set
	// Recent is what was decided lately; nil: nothing is known of it.
	Recent *activity.Recorder
	// Options are those by which rules of requests are compiled.
	Options rules.Options
	// DenyByDefault is rules_default.
	DenyByDefault bool
	// ClientIP is whose hops a log's clients are behind.
	ClientIP clientip.Config
}

// New makes a simulator, which simulates nothing yet.
func New(c Config) *Simulator {
	return &Simulator{busy: make(chan struct{}, 1), most: maxSimulatedEvents, heap: capacity.HeapBytes, Config: c}
}

// A simulationRequest says what is simulated, on what. It is the part named request of a multipart
// body; a log, if there is one, is the part behind it, named log.
type simulationRequest struct {
	// Budget is a limit such as 100/1m, for all five algorithms. Default: "", none.
	Budget string `json:"budget"`
	// InForce has the rules in force as a candidate.
	InForce bool `json:"inForce"`
	// Candidates are documents of rules, each with a name.
	Candidates []struct {
		Name  string `json:"name"`
		Rules string `json:"rules"`
	} `json:"candidates"`
	// Pattern is made-up traffic. Default: nil, the log that follows in the body, or else the recent decisions of this
	// process.
	Pattern *struct {
		Name    string  `json:"name"`
		Seed    uint64  `json:"seed"`
		Rate    float64 `json:"rate"`
		Clients int     `json:"clients"`
		Length  string  `json:"length"`
		Window  string  `json:"window"`
		// Client, Path, Method and Burst are those of a simulate.Pattern, with its defaults.
		Client string `json:"client"`
		Path   string `json:"path"`
		Method string `json:"method"`
		Burst  int    `json:"burst"`
		// Hold is for how long each request holds what it takes. Default: "", it takes.
		Hold string `json:"hold"`
	} `json:"pattern"`
	// Format is the log's. Default: "", which its first line tells.
	Format string `json:"format"`
	// Suggest looks for the least limits of rules. Default: nil, nothing is suggested.
	Suggest *suggestionRequest `json:"suggest"`
}

// A simulationAnswer is the report, and what its reader should know.
type simulationAnswer struct {
	*simulate.Report

	Notes []string `json:"notes"`
	// LeftOut are recent decisions that candidates could not be asked about, since what is known of them does not say whom
	// rules count.
	LeftOut int64 `json:"leftOut,omitempty"`
	// Suggestions are those that were asked for, of the rules with the most requests first.
	Suggestions []suggestion `json:"suggestions,omitempty"`
}

// Serve answers a simulation: a multipart body of the request (JSON) and, if it is of a log, the
// log. The parts are read in order: the request, then the log, which is read as a stream unless
// suggestions need it several times. A second request is refused rather than queued: it would find
// a browser that has given up. The deadlines of the connection are set by hand, since the
// listener's are for short requests.
func (s *Simulator) Serve(w http.ResponseWriter, r *http.Request) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2 * simulationTime))
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	default:
		return problem.ReducedCapacity("a simulation is under way; allowed: one at a time")
	}
	runtime.GC() // what the simulation before left is no part of this one's start
	s.before = s.heap()
	s.checked = s.before
	ctx, cancel := context.WithTimeout(r.Context(), simulationTime)
	defer cancel()
	defer context.AfterFunc(s.Stop, cancel)()
	defer context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Now()) })() // of the body
	err := s.simulate(ctx, w, r)
	switch {
	case s.Stop.Err() != nil && err != nil:
		return problem.ReducedCapacity("the service is stopping; the simulation was ended")
	case errors.Is(err, context.DeadlineExceeded):
		return stint.Invalid("the traffic", "one that takes more than a minute", "less, such as a shorter log")
	}
	return err
}

// simulate simulates what a request asks for, until ctx is done. The steps are in the order in
// which a fault costs least: the request, the candidates, the traffic, and then the simulation.
func (s *Simulator) simulate(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	parts, err := r.MultipartReader()
	if err != nil {
		return stint.Invalid(
			"Content-Type", problem.Short(r.Header.Get("Content-Type")), "multipart/form-data with the parts request and log",
		)
	}
	request, err := readSimulation(parts)
	if err != nil {
		return err
	}
	candidates, err := s.candidates(request)
	if err != nil {
		return err
	}
	t, err := s.traffic(ctx, request, parts)
	if err != nil {
		return err
	}
	simulation, err := simulate.New(simulate.Config{
		Candidates: candidates, MaxClients: maxSimulatedClients, MaxMemory: maxSimulatedMemory,
		DenyByDefault: s.DenyByDefault,
		Proceed:       func() error { return s.proceed(ctx) }, NoHolds: t.recent,
	})
	if err != nil {
		return err
	}
	source := s.within(ctx, t.source)
	if err = source(simulation.Add); err != nil {
		return err
	}
	answer := simulationAnswer{Notes: append([]string{}, t.notes...), LeftOut: t.leftOut}
	if answer.Report, err = simulation.Finish(); err != nil {
		return err
	}
	answer.Read(t.input, candidates)
	answer.Notes = slices.Concat(answer.Notes, t.input.Head(), answer.Report.Notes())
	if request.Suggest != nil {
		if err := s.suggest(ctx, request.Suggest, candidates, source, &answer); err != nil {
			return err
		}
	}
	return problem.Answer(w, r, http.StatusOK, answer)
}

// readSimulation reads the part with the request. An unknown member is a fault, as a misspelled
// bound would be left out in silence.
func readSimulation(parts *multipart.Reader) (*simulationRequest, error) {
	part, err := parts.NextPart()
	switch {
	case endedEarly(err):
		return nil, problem.EndedEarly()
	case err != nil || part.FormName() != "request":
		return nil, stint.Invalid("the body", "without a part request", "the part request first")
	}
	text, err := readPart(part, maxSimulatedRequest)
	if err != nil {
		return nil, err
	}
	request := new(simulationRequest)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(request); err != nil {
		return nil, problem.New(
			http.StatusBadRequest,
			"request: %s. It is JSON with budget, inForce, candidates, pattern, format and suggest",
			problem.Short(document.JSONFault(err)),
		)
	}
	return request, nil
}

// endedEarly reports whether the head of a part did not come.
func endedEarly(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, os.ErrDeadlineExceeded)
}

// readPart reads a part of at most so many bytes.
func readPart(part io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(part, most+1))
	switch {
	case err != nil:
		return nil, problem.EndedEarly()
	case int64(len(text)) > most:
		return nil, problem.TooLarge(most)
	}
	return text, nil
}

// candidates are those of a request. Each of a budget's algorithms is one. Names are those that the
// report shows. They are bounded by number, since each decides all events.
func (s *Simulator) candidates(request *simulationRequest) ([]simulate.Candidate, error) {
	var candidates []simulate.Candidate
	if request.Budget != "" {
		limits, err := simulate.Budget(request.Budget)
		if err != nil {
			return nil, err
		}
		for _, limit := range limits {
			set, err := rules.Compile([]rules.Rule{simulate.LimitRule("limit", limit)}, s.Options)
			if err != nil {
				return nil, err
			}
			candidates = append(candidates, simulate.Candidate{Name: strings.ToLower(limit.Algorithm.String()), Set: set})
		}
	}
	if request.InForce {
		candidates = append(candidates, simulate.Candidate{Name: "in force", Set: s.InForce()})
	}
	for _, candidate := range request.Candidates {
		set, _, err := rulefile.ParseSet(candidate.Name, []byte(candidate.Rules), s.Options)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, simulate.Candidate{Name: candidate.Name, Set: set})
	}
	if len(candidates) == 0 || len(candidates) > maxCandidates {
		return nil, stint.Invalid("candidates", len(candidates), "1 to 8, those of budget and inForce among them")
	}
	return candidates, nil
}

// traffic is what is simulated, and what is told of it once the source has been read.
type traffic struct {
	source  simulate.Source
	input   *simulate.Input // of a log
	notes   []string
	leftOut int64 // as in simulationAnswer
	// whether it is what was decided lately, of which nobody knows how long it held
	recent bool
}

// within is a source that ends with ctx, and refuses to be longer than a simulation may be. It
// looks at time and memory every 256 events, which is often enough for both and costs nothing.
func (s *Simulator) within(ctx context.Context, source simulate.Source) simulate.Source {
	return func(add func(*simulate.Event) error) error {
		events := 0
		return source(func(event *simulate.Event) error {
			if events++; events > s.most {
				return stint.Invalid("the traffic", "longer", fmt.Sprintf("up to %d requests", s.most))
			}
			if events%256 == 0 {
				if err := s.proceed(ctx); err != nil {
					return err
				}
			}
			return add(event)
		})
	}
}

// proceed ends a simulation whose time is over, or that takes the memory of the process. It lets
// others have the processor. A collection is asked for only when the heap has grown by
// maxUnchecked, as it costs the service's own requests processor time.
func (s *Simulator) proceed(ctx context.Context) error {
	runtime.Gosched()
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.heap() < s.checked+maxUnchecked {
		return nil
	}
	runtime.GC() // which tells garbage from what is in use, and has the process take less than twice as much
	if s.checked = s.heap(); s.checked > s.before+maxSimulatedHeap {
		return stint.Invalid(
			"the simulation", document.Verbatim(fmt.Sprintf("using more than %d MiB", maxSimulatedHeap>>20)),
			"fewer or shorter limits, clients or requests",
		)
	}
	return nil
}

// traffic is that of a request: a pattern, a log, or what this process decided lately. Suggestions read it several
// times.
func (s *Simulator) traffic(
	ctx context.Context,
	request *simulationRequest,
	parts *multipart.Reader,
) (*traffic, error) {
	t := new(traffic)
	if p := request.Pattern; p != nil {
		pattern := simulate.Pattern{
			Name: p.Name, Seed: p.Seed, Rate: p.Rate, Clients: p.Clients,
			Client: p.Client, Path: p.Path, Method: p.Method, Burst: p.Burst,
		}
		for _, d := range []struct {
			name, text string
			into       *time.Duration
		}{
			{"length", p.Length, &pattern.Length},
			{"hold", cmp.Or(p.Hold, "0s"), &pattern.Hold},
			{"window", cmp.Or(p.Window, "0s"), &pattern.Window},
		} {
			var err error
			if *d.into, err = notation.ParseDuration(d.text); err != nil {
				return nil, prefix.Errorf("pattern.%s: %w", d.name, err)
			}
		}
		t.source = pattern.Run
		return t, pattern.Validate()
	}
	switch part, err := parts.NextPart(); {
	case err == io.EOF: // wrapped, it is that of a body without its end
		return t, s.replay(t)
	case endedEarly(err):
		return nil, cmp.Or(ctx.Err(), error(problem.EndedEarly()))
	case err != nil || part.FormName() != "log":
		return nil, stint.Invalid("the body", "with an unknown part", "request and log")
	default:
		return t, s.log(ctx, t, request, part)
	}
}

const logForms = "a whole file of requests: text, gzip, zstd or bzip2"

// log makes a log the source. If it is read several times it is kept. Requests that are up to 5s
// out of order, as those of several workers are, are sorted.
func (s *Simulator) log(ctx context.Context, t *traffic, request *simulationRequest, log io.Reader) error {
	var kept []byte
	if request.Suggest != nil {
		var err error
		if kept, err = readPart(log, maxSimulatedLog); err != nil {
			return cmp.Or(ctx.Err(), err)
		}
	}
	t.source = func(add func(*simulate.Event) error) error {
		if kept != nil {
			log = bytes.NewReader(kept)
		}
		reader, err := simulate.NewReader(simulate.ReaderOptions{
			Format: request.Format, Headers: true, Address: request.Budget != "",
			ClientIP: s.ClientIP,
			MaxBytes: maxSimulatedLog, Proceed: func() error { return s.proceed(ctx) },
		})
		if err != nil {
			return err
		}
		var refused error // by add
		order := simulate.NewOrder(5*time.Second, func(event *simulate.Event) error {
			refused = add(event)
			return refused
		}).Hold(maxSimulatedHeld)
		switch err := reader.Read(log, order.Add); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && refused == nil && !errors.Is(err, stint.ErrInvalid):
			return stint.Invalid("log", problem.Short(prefix.Trim(err.Error())), logForms)
		case err != nil:
			return err
		}
		input, err := reader.Done()
		if err != nil {
			return stint.Invalid("log", problem.Short(prefix.Trim(err.Error())), logForms)
		}
		t.input = &input
		return order.Flush()
	}
	return nil
}

// replay makes what this process decided lately the source. It holds on to what was recorded up to
// now, so that all readings of it see the same.
func (s *Simulator) replay(t *traffic) error {
	if s.Recent == nil {
		return stint.Invalid("the traffic", "none", "a pattern or a log, as this process keeps no recent decisions")
	}
	set, recent := s.InForce(), s.Recent.Hold()
	t.recent = true
	t.source = func(add func(*simulate.Event) error) error {
		order := simulate.NewOrder(5*time.Second, add).Hold(maxSimulatedHeld) // recent decisions may be a second out of order
		var fault error
		t.leftOut, t.notes = 0, nil
		recent.Each(func(d activity.Decision) bool {
			event, known := eventOf(set, &d)
			if !known {
				t.leftOut++
				return true
			}
			fault = order.Add(event)
			return fault == nil
		})
		if recent.Sample.OneIn > 1 {
			t.notes = append(t.notes, fmt.Sprintf("Of the recent clients 1 of %d is recorded in full; only these are simulated.",
				recent.Sample.OneIn))
		}
		t.notes = append(t.notes, "Of recent requests the method, the path and the client of the deciding rule are known. "+
			"A client counts as one address, one user and one API key, and without header fields. "+
			"Nor is it known for how long one held: rules with a concurrency limit are left out.")
		if fault != nil {
			return fault
		}
		return order.Flush()
	}
	return nil
}

// eventOf is a recent decision as a request, if a rule that there is still counted it. Who it was
// is known by one name only. A rule with several scopes does not tell which part of a client is
// which, and so is left out.
func eventOf(set *rules.Set, d *activity.Decision) (*simulate.Event, bool) {
	rule, known := set.Rule(d.Rule)
	if !known || len(rule.Scope) != 1 {
		return nil, false
	}
	event := &simulate.Event{Time: d.At, Request: rules.Request{
		Method: d.Method, Path: d.Path, Address: addressOf(d.Client), User: d.Client, APIKey: d.Client,
	}}
	if attribute, custom := strings.CutPrefix(rule.Scope[0], rules.Custom("")); custom {
		event.Request.Attributes = map[string]string{attribute: d.Client}
	}
	return event, true
}

// addressOf is a client's address, or for one of another kind a network that no client has (RFC
// 6666), the same for the same client. 100::/64 is the discard prefix, which is not routed.
func addressOf(client string) string {
	if _, err := netip.ParseAddr(client); err == nil {
		return client
	}
	if _, err := netip.ParsePrefix(client); err == nil {
		return client
	}
	sum := sha256.Sum256([]byte(client))
	return netip.AddrFrom16([16]byte(append([]byte{0x01, 0, 0, 0, 0, 0, 0, 0}, sum[:8]...))).String()
}

// maxSuggestions bounds the rules that one simulation suggests limits for.
const maxSuggestions = 20

// A suggestionRequest says what is looked for.
type suggestionRequest struct {
	// Share is which part of the clients is to be left alone: above 0, up to 1.
	Share float64 `json:"share"`
	// Rule is the ID of the one rule whose limits are looked for. Default: "", the rules with the most
	// requests.
	Rule string `json:"rule"`
	// Rate looks for the rate of a bucket, in the place of its capacity.
	Rate bool `json:"rate"`
}

// A suggestion is of a rule of a candidate.
type suggestion struct {
	Candidate string `json:"candidate"`
	*simulate.Suggestion
}

// suggest adds to an answer what suits the clients of rules, with notes about what could not be
// found. A search replays the traffic again and again, so the rules with the most requests come
// first, and time decides how many are looked at. The most important rules come first, so that
// those for which no time is left matter least.
func (s *Simulator) suggest(
	ctx context.Context,
	request *suggestionRequest,
	candidates []simulate.Candidate,
	source simulate.Source,
	answer *simulationAnswer,
) error {
	if !(request.Share > 0 && request.Share <= 1) {
		return stint.Invalid("suggest.share", request.Share, "above 0, up to 1")
	}
	goal := simulate.Goal{
		Share:     request.Share,
		Rate:      request.Rate,
		MaxMemory: maxSimulatedMemory,
		Proceed:   func() error { return s.proceed(ctx) },
	}
	type wanted struct{ candidate, rule int }
	var list []wanted
	asked := func(w wanted) int64 { return answer.Candidates[w.candidate].Rules[w.rule].Requests }
	for i, c := range candidates {
		for j := range answer.Candidates[i].Rules {
			rule, _ := c.Set.Rule(answer.Candidates[i].Rules[j].Rule)
			if goal.Suits(&rule) && (request.Rule == "" || request.Rule == rule.ID) {
				list = append(list, wanted{i, j})
			}
		}
	}
	if len(list) == 0 {
		answer.Notes = append(answer.Notes, "No rule with limits that can be looked for holds for the traffic.")
		return nil
	}
	slices.SortStableFunc(list, func(a, b wanted) int { return cmp.Compare(asked(b), asked(a)) })
	if len(list) > maxSuggestions {
		answer.Notes = append(answer.Notes, fmt.Sprintf("Limits were looked for of the %d rules with the most requests; "+
			"%d others have some.", maxSuggestions, len(list)-maxSuggestions))
		list = list[:maxSuggestions]
	}
	for i, w := range list {
		c := candidates[w.candidate]
		rule, _ := c.Set.Rule(answer.Candidates[w.candidate].Rules[w.rule].Rule)
		// A search replays all limits once for each, and once more.
		goal.MaxClients = max(1, 2*maxSimulatedClients/(len(rule.Limits)*(len(rule.Limits)+1)))
		made, err := simulate.Suggest(source, rule, s.Options, goal)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			answer.Notes = append(answer.Notes,
				fmt.Sprintf("There was no time to look for the limits of %d rules.", len(list)-i))
			return nil
		case errors.Is(err, stint.ErrInvalid): // of this rule
			answer.Notes = append(answer.Notes, fmt.Sprintf("Of rule %s no limit was found: %v.", rule.ID, err))
		case err != nil:
			return err
		case made.Clients > 0:
			answer.Suggestions = append(answer.Suggestions, suggestion{c.Name, made})
		}
	}
	return nil
}
