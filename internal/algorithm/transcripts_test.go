package algorithm_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/algorithm"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/oracle"
)

var rewrite = flag.Bool("rewrite", false, "write what the algorithms answer into the transcripts")

// A transcript is a text of commands, each followed by the answer it expects:
//
//	# a comment
//	limit TOKEN_BUCKET capacity=10 rate=7/m   the limit that reads the state from here on
//	new                                       an untouched state, the limits so far forgotten but the last
//	at 2026-01-01T00:00:00Z                   sets the time
//	+1.5s take 2                              later (or -1.5s: earlier) than the step before; "now" at the same time
//	now take 1 keep 3                         so that 3 more are left
//	    allowed, 8 left, reset 17.142858s, grows 8.571429s
//
// The actions are take, peek, deny, charge and refund. An answer says whether the
// request is allowed (of a settlement, what was applied), retry, the delay, the
// permits left, and how long until the state is untouched and until more permits are
// left; what is 0 is left out.
//
// Both twins and the exact model must give the answers; -rewrite puts those of Go in place.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, a := range notation.Algorithms() {
		folder := "testdata/" + strings.ToLower(a.String()) + "/"
		if !slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path, folder) }) {
			t.Errorf("there is no transcript in %s", folder)
		}
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(path, "testdata/"), ".txt"), func(t *testing.T) {
			text := must.Get(os.ReadFile(path))(t)
			script := &transcript{t: t, vm: newVM(t), path: path, model: oracle.New(0), now: stint.Instant(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro())}
			for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
				script.line = i + 1
				script.read(line)
			}
			script.finish()
			if *rewrite {
				must.Do(t, os.WriteFile(path, []byte(strings.Join(script.out, "\n")+"\n"), 0o600))
			}
		})
	}
}

// transcript is a transcript being read.
type transcript struct {
	t    *testing.T
	vm   *vm
	path string
	line int
	out  []string // the transcript with the answers given

	limits  []stint.Limit
	model   *oracle.Oracle
	twin    *twin
	steps   []step
	results []result
	now     stint.Instant
	answer  string // to the last step, until the line that expects it
}

func (s *transcript) fatalf(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("%s:%d: %s", s.path, s.line, fmt.Sprintf(format, args...))
}

// read takes one line.
func (s *transcript) read(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	if strings.HasPrefix(line, "    ") {
		if got, want := s.answer, strings.TrimSpace(line); got != want && !*rewrite {
			s.t.Errorf("%s:%d: got  %s\nwant %s", s.path, s.line, got, want)
		}
		s.answer = ""
		return // the answer stands in the output already
	}
	s.expected()
	s.out = append(s.out, line)
	switch {
	case len(words) == 0 || words[0][0] == '#':
	case words[0] == "limit":
		s.limit(words[1:])
	case words[0] == "new":
		s.finish()
		s.limits = s.limits[len(s.limits)-1:]
	case words[0] == "at" && len(words) == 2:
		at, err := time.Parse(time.RFC3339Nano, words[1])
		if err != nil {
			s.fatalf("%v", err)
		}
		s.now = stint.Instant(at.UnixMicro())
	default:
		s.step(words)
	}
}

// expected complains of a step whose answer is not in the transcript.
func (s *transcript) expected() {
	s.t.Helper()
	if s.answer != "" && !*rewrite {
		s.t.Errorf("%s:%d: no answer is expected, got %s", s.path, s.line-1, s.answer)
	}
	s.answer = ""
}

func (s *transcript) step(words []string) {
	s.t.Helper()
	if len(words) != 3 && (len(words) != 5 || words[3] != "keep") {
		s.fatalf("want a time, an action and a number, and perhaps keep and a number")
	}
	if words[0] != "now" {
		wait, err := notation.ParseDuration(strings.TrimPrefix(words[0], "+"))
		if err != nil {
			s.fatalf("%v", err)
		}
		s.now = s.now.Add(wait)
	}
	n, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		s.fatalf("%v", err)
	}
	st := step{limit: len(s.limits) - 1, now: s.now, n: n}
	if len(words) == 5 {
		if st.keep, err = strconv.ParseInt(words[4], 10, 64); err != nil {
			s.fatalf("%v", err)
		}
	}
	switch words[1] {
	case "take":
		st.action = algorithm.Take
	case "peek":
		st.action = algorithm.Peek
	case "deny":
		st.action = algorithm.Deny
	case "charge":
		st.action = algorithm.Settle
	case "refund":
		st.action, st.n = algorithm.Settle, -n
	default:
		s.fatalf("no action %s", words[1])
	}
	// The Go twin starts anew when a limit is added: it gets its limits at once.
	if s.twin == nil {
		s.twin = newTwin(s.limits)
		for _, before := range s.steps {
			s.twin.step(before)
		}
	}
	r := s.twin.step(st)
	s.steps, s.results = append(s.steps, st), append(s.results, r)
	s.answer = answer(st, r)
	if said := s.modelled(st); said != s.answer {
		s.t.Errorf("%s:%d: the model says %s\nGo says         %s", s.path, s.line, said, s.answer)
	}
	s.out = append(s.out, "    "+s.answer)
}

// finish ends the run on one state, and puts it to the Lua twin.
func (s *transcript) finish() {
	s.t.Helper()
	s.expected()
	if len(s.steps) > 0 {
		if difference := compare(s.vm, s.limits, s.steps, s.results, s.twin.entries()); difference != "" {
			s.fatalf("%s", difference)
		}
	}
	s.twin, s.steps, s.results, s.model = nil, nil, nil, oracle.New(0)
}

// modelled is the answer of the exact model. A denied take records nothing, so it is a try there; what others
// deny is a take with a claim that nothing admits.
func (s *transcript) modelled(st step) string {
	s.t.Helper()
	policy := must.Get(stint.NewPolicy("", s.limits[st.limit]))(s.t)
	op := stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: st.n, Keep: st.keep}}
	switch st.action {
	case algorithm.Take:
		op.Verb = stint.VerbTry
	case algorithm.Peek:
		op.Verb = stint.VerbPeek
	case algorithm.Settle:
		op.Verb = stint.VerbSettle
	case algorithm.Deny:
		denies := must.Get(stint.NewPolicy("denies", stint.FixedWindow(1, time.Hour)))(s.t)
		op.Verb, op.And = stint.VerbTake, []stint.Claim{{Key: "k", Policy: denies, Permits: 2}}
	}
	return answer(st, resultOf(s.model.Decide(op, st.now).Each[0]))
}

// answer writes a result as transcripts do.
func answer(s step, r result) string {
	text := "denied"
	switch {
	case s.action == algorithm.Settle:
		text = fmt.Sprintf("applied %d", r.applied)
	case r.allowed:
		text = "allowed"
	}
	wait := func(name string, us int64) {
		if us != 0 {
			text += fmt.Sprintf(", %s %v", name, time.Duration(us)*time.Microsecond)
		}
	}
	if r.retry == never {
		text += ", retry never"
	} else {
		wait("retry", r.retry)
	}
	wait("delay", r.delay)
	text += fmt.Sprintf(", %d left", r.remaining)
	wait("reset", r.reset)
	wait("grows", r.grows)
	return text
}

// limit reads an algorithm and its parameters.
func (s *transcript) limit(words []string) {
	s.t.Helper()
	var l stint.Limit
	var err error
	if l.Algorithm, err = notation.ParseAlgorithm(words[0]); err != nil {
		s.fatalf("%v", err)
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if err := set(&l, name, value); err != nil {
			s.fatalf("%s: %v", word, err)
		}
	}
	if err := l.Validate(); err != nil {
		s.fatalf("%v", err)
	}
	s.limits, s.twin = append(s.limits, l), nil
}

// set reads one parameter.
func set(l *stint.Limit, name, value string) (err error) {
	switch name {
	case "capacity", "limit":
		l.Capacity, err = strconv.ParseInt(value, 10, 64)
	case "rate":
		l.Rate, err = notation.ParseRate(value)
	case "window":
		l.Window, err = notation.ParseDuration(value)
	case "calendar":
		l.Calendar, err = notation.ParseCalendar(value)
	case "zone":
		l.TimeZone = value
	case "interval":
		l.MinInterval, err = notation.ParseDuration(value)
	case "count_denied":
		l.CountDenied, err = strconv.ParseBool(value)
	case "denials":
		l.Denials, err = strconv.ParseBool(value)
		l.FirstRequest = l.Denials
	case "first_request":
		l.FirstRequest, err = strconv.ParseBool(value)
	case "debt":
		if l.MaxDebt, err = strconv.ParseInt(value, 10, 64); l.MaxDebt == 0 {
			l.MaxDebt = stint.NoDebt
		}
	default:
		err = fmt.Errorf("no such parameter")
	}
	return err
}
