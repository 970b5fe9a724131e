package rls_test

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

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typed "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/status"

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
//	service reference             a new service of the domain below, or of that of the service before, in the
//	                              reference accounting or none; with keep_denied or without
//	    domain: d
//	a=1 *2 & b=1 <5/YEAR          a request: its descriptors, with the hits of their own and the limits that they bring
//	+10s                          the clock goes on
//	    over: ok 3 of 5/YEAR, ok  the code, and that of each descriptor with what remains of which limit
//	    InvalidArgument: ...      or the error
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
			var s *rls.Service
			var clock *storetest.Clock
			var document string
			var out []string
			lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
			for at := 0; at < len(lines); {
				line, number := lines[at], at+1
				var below []string
				for at++; at < len(lines) && strings.HasPrefix(lines[at], "    "); at++ {
					below = append(below, lines[at][4:])
				}
				out = append(out, line)
				switch kind, isNew := strings.CutPrefix(line, "service"); {
				case line == "" || line[0] == '#':
				case isNew:
					config := rls.Config{KeepDenied: strings.Contains(kind, "keep_denied")}
					if strings.Contains(kind, "reference") {
						config.Accounting = domains.Reference
					}
					clock = storetest.NewClock(noon)
					config.Store = memstore.New(memstore.Config{Now: clock.Now})
					if below != nil {
						document = strings.Join(below, "\n")
					}
					s = newService(t, config, document)
				case line[0] == '+':
					d, err := time.ParseDuration(line[1:])
					if err != nil {
						t.Fatalf("%s:%d: %v", path, number, err)
					}
					clock.Advance(d)
				default:
					got := []string{answer(t, s, line)}
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

// answer is what a service answers to a request that is written in a line.
func answer(t *testing.T, s *rls.Service, line string) string {
	t.Helper()
	request := &pb.RateLimitRequest{Domain: "d"}
	for text := range strings.SplitSeq(line, " & ") {
		words := strings.Split(text, " ")
		d := entries(words[0])
		for _, word := range words[1:] {
			switch word[0] {
			case '*':
				hits := must.Get(strconv.ParseInt(word[1:], 10, 64))(t)
				d = costing(words[0], hits)
			case '<':
				most, unit, _ := strings.Cut(word[1:], "/")
				n := must.Get(strconv.ParseUint(most, 10, 32))(t)
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: uint32(n), Unit: typed.RateLimitUnit(typed.RateLimitUnit_value[unit]),
				}
			}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	response, err := s.ShouldRateLimit(t.Context(), request)
	if err != nil {
		return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
	}
	var limits []string
	for _, s := range response.Statuses {
		text := code(s.Code)
		if l := s.CurrentLimit; l != nil || s.LimitRemaining > 0 {
			text += fmt.Sprint(" ", s.LimitRemaining)
		}
		if l := s.CurrentLimit; l != nil {
			text += fmt.Sprintf(" of %d", l.RequestsPerUnit)
			if l.Unit > 0 {
				text += fmt.Sprint("/", l.Unit)
			}
		}
		limits = append(limits, text)
	}
	return code(response.OverallCode) + ": " + strings.Join(limits, ", ")
}
