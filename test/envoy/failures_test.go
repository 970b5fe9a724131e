package envoy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	envoytype "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/stint-go/stint/internal/must"
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
	const fine = top + "  - key: a\n    rate_limit: {unit: year, requests_per_unit: 5}\n"
	limited := func(limit string) map[string]string {
		return map[string]string{"a.yaml": top + "  - key: a\n    rate_limit: " + limit + "\n"}
	}
	one := func(text string) map[string]string { return map[string]string{"a.yaml": text} }
	for _, c := range []struct {
		name   string
		files  map[string]string
		loaded bool
	}{
		{"a limit", one(fine), true},
		{"no files", nil, true},
		{"no descriptors", one("domain: d\n"), true},
		{"another name of a file", map[string]string{"a.txt": fine}, true},
		{"a hidden file", map[string]string{".a.yaml": fine}, true},
		{"a number as a value", one(top + "  - key: a\n    value: 1\n"), true},
		{"yes as a value", one(top + "  - key: a\n    value: true\n"), true},
		{"no value", one(top + "  - key: a\n    value:\n    rate_limit: {unit: day, requests_per_unit: 5}\n"), true},
		{"a unit in capitals", limited("{unit: YEAR, requests_per_unit: 5}"), true},
		{"a week", limited("{unit: week, requests_per_unit: 5}"), true},
		{"no requests", limited("{unit: year}"), true},
		{"unlimited", limited("{unlimited: true}"), true},
		{"unlimited, with an unknown unit", limited("{unlimited: true, unit: fortnight}"), true},
		{"unlimited false", limited("{unlimited: false, unit: year, requests_per_unit: 5}"), true},
		{"replaces an unknown one", limited("{unit: year, requests_per_unit: 5, replaces: [{name: x}]}"), true},
		{"a shared wildcard", one(top + "  - {key: a, value: \"1*\", share_threshold: true}\n"), true},
		{"a shared wildcard key", one(top + "  - {key: \"a*\", share_threshold: true}\n"), true},
		{"two domains", map[string]string{"a.yaml": fine, "b.yaml": "domain: e\n"}, true},

		{"an empty file", one(""), false},
		{"no YAML", one("domain: [\n"), false},
		{"an unknown key", one(fine + "    color: red\n"), false},
		{"a key that is no text", one("1: 2\n" + fine), false},
		{"a list of texts", one("domain: d\ndescriptors: [a]\n"), false},
		{"a fraction as a value", one(top + "  - key: a\n    value: 1.5\n"), false},
		{"an empty domain", one("domain: \"\"\ndescriptors: []\n"), false},
		{"no domain", one("descriptors: []\n"), false},
		{"an empty key", one(top + "  - key: \"\"\n"), false},
		{"no key", one(top + "  - value: a\n"), false},
		{"a descriptor twice", one(top + "  - {key: a, value: b}\n  - {key: a, value: b}\n"), false},
		{"a descriptor twice by its text", one(top + "  - {key: a, value: b_c}\n  - {key: a_b, value: c}\n"), false},
		{"a key that is another's text", one(top + "  - {key: a, value: b}\n  - {key: a_b}\n"), false},
		{"no unit", limited("{requests_per_unit: 5}"), false},
		{"an unknown unit", limited("{unit: fortnight, requests_per_unit: 5}"), false},
		{"the unit unknown", limited("{unit: unknown, requests_per_unit: 5}"), false},
		{"unlimited, with a unit", limited("{unlimited: true, unit: day}"), false},
		{"negative requests", limited("{unit: day, requests_per_unit: -1}"), false},
		{"too many requests", limited("{unit: day, requests_per_unit: 4294967296}"), false},
		{"replaces nothing", limited("{unit: day, requests_per_unit: 5, replaces: [{name: \"\"}]}"), false},
		{"replaces itself", limited("{name: x, unit: day, requests_per_unit: 5, replaces: [{name: x}]}"), false},
		{"shared without a wildcard", one(top + "  - {key: a, value: b, share_threshold: true}\n"), false},
	} {
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
