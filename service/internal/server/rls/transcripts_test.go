package rls_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/service/internal/server/rls"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/storetest"
)

var rewrite = flag.Bool("rewrite", false, "write what the service answers into the transcripts")

// A transcript is a text of requests of the domain d, each followed by its answer, four blanks in:
//
//	# a comment
//	service reference             a new service of the domain below, or of those of the service before, with --- between
//	    domain: d                 several: in the reference accounting or none; keep_denied, in shadow, with metadata,
//	                              merge of domains; observed or resets add lines to answers
//	a=1 *2 & b=1 <5/YEAR          a request: its descriptors, with the hits of their own and the limits that they bring
//	*3 & a="\x00<v*9>"            hits of the request; a value in quotes, with so many v
//	e: a=1                        a request of another domain
//	+10s                          the clock goes on
//	metrics total_hits            the metrics whose names begin so
//	warnings                      what the service says of its domains
//	    over: ok 3 of 5/YEAR, ok  the code, and that of each descriptor with what remains of which limit
//	    InvalidArgument: ...      or the error
//	    metadata {...}            what Envoy is handed
//	    told: ...                 what the observer is told, if the service is observed
//
// -rewrite puts what the service answers in place.
func TestTranscripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text := must.Get(os.ReadFile(path))(t)
			s := &transcript{T: t}
			var out []string
			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			for at := 0; at < len(lines); {
				line, number := lines[at], at+1
				var below []string
				for at++; at < len(lines) && strings.HasPrefix(lines[at], "    "); at++ {
					below = append(below, lines[at][4:])
				}
				out = append(out, line)
				if kind, isNew := strings.CutPrefix(line, "service"); isNew {
					s.start(kind, below)
				} else if line != "" && line[0] != '#' {
					got := s.step(line)
					if !*rewrite && !slices.Equal(got, below) {
						t.Errorf("%s:%d: %s is answered %q, want %q", path, number, line, got, below)
					}
					below = got
				}
				for _, line := range below {
					out = append(out, "    "+line)
				}
			}
			if *rewrite {
				must.Do(t, os.WriteFile(path, []byte(strings.Join(out, "\n")+"\n"), 0o600))
			}
		})
	}
}

// transcript is a transcript that is being read.
type transcript struct {
	*testing.T
	kind      string
	documents []string // of the service's domains
	service   *rls.Service
	clock     *storetest.Clock
	told      []string
}

// start makes a service.
func (s *transcript) start(kind string, below []string) {
	s.kind = kind
	is := func(word string) bool { return strings.Contains(kind, word) }
	config := rls.Config{
		KeepDenied: is("keep_denied"), Shadow: is("shadow"), Metadata: is("metadata"), MergeDomains: is("merge"),
	}
	if is("reference") {
		config.Accounting = domains.Reference
	}
	if is("observed") {
		config.Observe = func(_ context.Context, e *stint.Event) {
			s.told = append(s.told, fmt.Sprintf("told: rule %q, key %q, allowed %t, shadow %t, reason %q",
				e.Rule, e.Claim.Key, e.Decision.Allowed, e.Shadow, e.Reason))
		}
	}
	s.clock = storetest.NewClock(noon)
	config.Store = memstore.New(memstore.Config{Now: s.clock.Now})
	if below != nil {
		s.documents = strings.Split(strings.Join(below, "\n"), "\n---\n")
	}
	s.service = newService(s, config, s.documents...)
}

// step makes one step, and returns what is answered.
func (s *transcript) step(line string) (answers []string) {
	switch word, prefix, _ := strings.Cut(line, " "); {
	case line[0] == '+':
		s.clock.Advance(must.Get(time.ParseDuration(line[1:]))(s))
	case word == "metrics":
		for text := range strings.Lines(lines(gathered(s, s.service))) {
			if strings.HasPrefix(text, prefix) {
				answers = append(answers, strings.TrimSpace(text))
			}
		}
	case word == "warnings":
		return s.service.Warnings(parsed(s, s.documents...))
	default:
		s.told = nil
		return append(s.answers(line), s.told...)
	}
	return answers
}

// written is a text that may stand in quotes, with so many characters as <x*3>.
func (s *transcript) written(text string) string {
	if quoted, err := strconv.Unquote(text); err == nil {
		text = quoted
	}
	return repeated.ReplaceAllStringFunc(text, func(short string) string {
		parts := repeated.FindStringSubmatch(short)
		return strings.Repeat(parts[1], must.Get(strconv.Atoi(parts[2]))(s))
	})
}

var repeated = regexp.MustCompile(`<(.+?)\*(\d+)>`)

// request is one that is written in a line.
func (s *transcript) request(line string) *pb.RateLimitRequest {
	request := &pb.RateLimitRequest{Domain: "d"}
	if domain, rest, found := strings.Cut(line, ": "); found {
		request.Domain, line = s.written(domain), rest
	}
	for text := range strings.SplitSeq(line, " & ") {
		words := strings.Split(text, " ")
		if words[0][0] == '*' {
			request.HitsAddend = uint32(must.Get(strconv.ParseUint(words[0][1:], 10, 32))(s))
			continue
		}
		d := entries(words[0])
		for _, entry := range d.Entries {
			entry.Value = s.written(entry.Value)
		}
		for _, word := range words[1:] {
			switch word[0] {
			case '*':
				hits, back := strings.CutPrefix(word[1:], "-")
				d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(must.Get(strconv.ParseUint(hits, 10, 64))(s)), back
			case '<':
				most, unit, _ := strings.Cut(word[1:], "/")
				n := must.Get(strconv.ParseUint(most, 10, 32))(s)
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(n), Unit: typed.RateLimitUnit(typed.RateLimitUnit_value[unit]),
				}
			}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// answers are what the service answers to a request.
func (s *transcript) answers(line string) []string {
	response, err := s.service.ShouldRateLimit(s.Context(), s.request(line))
	if err != nil {
		return []string{fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())}
	}
	var limits []string
	for _, one := range response.Statuses {
		text := code(one.Code)
		if l := one.CurrentLimit; l != nil || one.LimitRemaining > 0 {
			text += fmt.Sprint(" ", one.LimitRemaining)
		}
		if l := one.CurrentLimit; l != nil {
			text += fmt.Sprintf(" of %d", l.RequestsPerUnit)
			if l.Unit > 0 {
				text += fmt.Sprint("/", l.Unit)
			}
		}
		if d := one.DurationUntilReset; d != nil && strings.Contains(s.kind, "resets") {
			text += fmt.Sprint(" reset ", d.AsDuration())
		}
		limits = append(limits, text)
	}
	answers := []string{code(response.OverallCode) + ": " + strings.Join(limits, ", ")}
	if response.DynamicMetadata != nil {
		answers = append(answers, "metadata "+string(must.Get(json.Marshal(response.DynamicMetadata.AsMap()))(s)))
	}
	return answers
}
