package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testtable"
)

// entries makes a descriptor of keys and values in turn.
func entries(keysAndValues ...string) *common.RateLimitDescriptor {
	made := &common.RateLimitDescriptor{}
	for i := 0; i+1 < len(keysAndValues); i += 2 {
		made.Entries = append(made.Entries, &common.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return made
}

func requestFor(domain string, descriptors ...*common.RateLimitDescriptor) *rls.RateLimitRequest {
	return &rls.RateLimitRequest{Domain: domain, Descriptors: descriptors}
}

// agree sends one request to both sides and compares, with the differences that are meant unless the reference is on
// both sides. It returns the names of those, and the reference's answer.
func agree(t *testing.T, reference, subject *side, request *rls.RateLimitRequest) (names []string, answered answer) {
	t.Helper()
	e := exchange{request: request}
	for {
		avoidEnd(t.Context(), time.Minute)
		e.before = time.Now()
		answered = reference.ask(t.Context(), request)
		got := subject.ask(t.Context(), request)
		e.after = time.Now()
		if e.straddles(time.Minute) {
			continue // the requests that are sent here count little
		}
		want, names := e.expect(answered)
		if programs.same {
			want = answered
		}
		for _, differing := range e.compare(want, got) {
			t.Errorf("%s%s", differing, describe(names))
		}
		return names, answered
	}
}

// TestFiles: both sides load the same files, and refuse the same.
func TestFiles(t *testing.T) {
	const top = "domain: d\ndescriptors:\n"
	const limit = top + "  - key: a\n    rate_limit:"
	const fine = limit + " {unit: year, requests_per_unit: 5}\n"
	type configured struct {
		name   string
		files  map[string]string
		loaded bool
	}
	cases := []configured{
		{"no files", nil, true},
		{"another name of a file", map[string]string{"a.txt": fine}, true},
		{"a hidden file", map[string]string{".a.yaml": fine}, true},
		{"two domains", map[string]string{"a.yaml": fine, "b.yaml": "domain: e\n"}, true},
	}
	words := strings.NewReplacer("$top", top, "$limit", limit, "$fine", fine)
	for _, row := range testtable.Rows[struct {
		Name   string
		Loaded bool
		Text   string
	}](t, "testdata/files.txt") {
		cases = append(cases, configured{row.Name, map[string]string{"a.yaml": words.Replace(row.Text)}, row.Loaded})
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			reference, subject := pair(t, files(t, c.files), "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
			if c.loaded {
				// With this variable the first requests may come before the configuration.
				for _, s := range []*side{reference, subject} {
					until(t, s.name+" has the configuration", func() error {
						return s.ask(t.Context(), requestFor("e", entries("z", ""))).err
					})
				}
			}
			for _, value := range []string{"", "1", "true"} {
				_, answered := agree(t, reference, subject, requestFor("d", entries("a", value)))
				if (answered.err == nil) != c.loaded {
					t.Fatalf("the reference answers %v", show(answered))
				}
			}
		})
	}
}

// TestOneBadFile: of two files, one of which is refused, the reference loads none, and the subject the good one.
func TestOneBadFile(t *testing.T) {
	const fine = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: year, requests_per_unit: 5}\n"
	for name, other := range map[string]string{"a fault": "domain: e\ncolor: red\n", "a domain twice": fine} {
		root := files(t, map[string]string{"a.yaml": fine, "b.yaml": other})
		reference, subject := pair(t, root, "FORCE_START_WITHOUT_INITIAL_CONFIG=true")
		request := requestFor("d", entries("a", "1"))
		if got := reference.ask(t.Context(), request); status.Convert(got.err).Message() != noConfiguration {
			t.Errorf("%s: the reference answers %s", name, show(got))
		}
		until(t, "the good file is served", func() error { return subject.ask(t.Context(), request).err })
		if got := verdict(t, subject, request).GetStatuses()[0]; got.GetCurrentLimit().GetRequestsPerUnit() != 5 {
			t.Errorf("%s: the subject answers %v", name, got)
		}
	}
}

// TestRedisUnreachable: both sides answer with an error while Redis is away.
func TestRedisUnreachable(t *testing.T) {
	root := files(t, map[string]string{
		"a.yaml": "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: year, requests_per_unit: 5}\n" +
			"  - key: b\n    rate_limit: {unlimited: true}\n",
	})
	reference, subject := pair(t, root)
	agree(t, reference, subject, requestFor("d", entries("a", "1")))
	must.Do(t, errors.Join(reference.redis.Kill(), subject.redis.Kill()))
	for range 3 {
		if names, answered := agree(t, reference, subject, requestFor("d", entries("a", "1"))); len(names) != 1 {
			t.Errorf("the reference answers %v", show(answered))
		}
		// What needs no Redis is answered.
		agree(t, reference, subject, requestFor("d", entries("b", "1")))
		agree(t, reference, subject, requestFor("d", entries("c", "1")))
		agree(t, reference, subject, requestFor("nowhere", entries("a", "1")))
	}
	for _, s := range []*side{reference, subject} { // a probe that failed would end the process
		if err := s.ready(); err != nil {
			t.Errorf("%s is not healthy without Redis: %v", s.name, err)
		}
	}
}

// TestReload: a file that changes is loaded again, and one that can't be loaded changes nothing.
func TestReload(t *testing.T) {
	configured := func(requests int) string {
		const text = "domain: d\ndescriptors:\n  - key: a\n    rate_limit: {unit: year, requests_per_unit: %d}\n"
		return fmt.Sprintf(text, requests)
	}
	root := files(t, map[string]string{"a.yaml": configured(100)})
	reference, subject := pair(t, root)
	request := requestFor("d", entries("a", "1"))
	limit := func(s *side) (uint32, error) {
		got := s.ask(t.Context(), request)
		if got.err != nil {
			return 0, permanent{got.err}
		}
		if limit := got.response.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); limit != 0 {
			return limit, nil
		}
		return 0, permanent{errors.New("the limit is gone")}
	}
	for i, text := range []string{configured(200), "domain: d\ncolor: red\n", configured(300)} {
		// As one step, as a file of Kubernetes changes.
		draft := filepath.Join(t.TempDir(), "draft")
		must.Do(t, errors.Join(
			os.WriteFile(draft, []byte(text), 0o600), os.Rename(draft, filepath.Join(root, "ratelimit", "config", "a.yaml")),
		))
		if i == 1 {
			continue // the next one is loaded nevertheless, and none is lost before
		}
		for _, s := range []*side{reference, subject} {
			until(t, s.name+" has the new file", func() error {
				got, err := limit(s)
				if err == nil && got != uint32(200+50*i) {
					err = fmt.Errorf("the limit is %d", got)
				}
				return err
			})
		}
	}
}

// TestOverrideWithoutUnit: the reference ends at such a request, so that only the subject gets it.
func TestOverrideWithoutUnit(t *testing.T) {
	subject := alone(t, files(t, map[string]string{"a.yaml": "domain: d\n"}))
	for _, unit := range []envoytype.RateLimitUnit{envoytype.RateLimitUnit_UNKNOWN, 99} {
		overridden := entries("a", "1")
		overridden.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: unit}
		got := subject.ask(t.Context(), requestFor("d", entries("b", "1"), overridden))
		if status.Code(got.err) != codes.InvalidArgument {
			t.Errorf("unit %d: %v, want %v", unit, show(got), codes.InvalidArgument)
		}
	}
	if got := subject.ask(context.WithoutCancel(t.Context()), requestFor("d", entries("b", "1"))); got.err != nil {
		t.Errorf("afterwards: %v", got.err)
	}
}
