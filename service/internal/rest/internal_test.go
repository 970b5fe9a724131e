package rest

import (
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/problem"
)

func TestFailureOf(t *testing.T) {
	for _, test := range []struct {
		err    error
		status int
	}{
		{stint.Invalid("key", "", "one"), 400},
		{inElement(3, stint.Invalid("key", "", "one")), 400},
		{stint.ErrUnavailable, 503},
		{errStoreUnreachable(stint.VerbReset), 503},
		{errors.New("something private"), 500},
	} {
		f := problem.Of(test.err)
		if f.Status != test.status || strings.Contains(f.Detail, "private") {
			t.Errorf("failureOf(%v) = %d %q, want status %d", test.err, f.Status, f.Detail, test.status)
		}
	}
}

func TestParseQueryDoesNotAllocate(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		_, _ = parseQuery("key=user:123&algorithm=TOKEN_BUCKET&permits=1&keep=40", costMembers)
	}); n != 0 {
		t.Errorf("parseQuery allocates %v times", n)
	}
}

func FuzzParseInteger(f *testing.F) {
	for _, text := range []string{"0", "-1", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "", "-", "+1", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseInteger(text)
		want, wantErr := strconv.ParseInt(text, 10, 64)
		if strings.HasPrefix(text, "+") {
			wantErr = errNotInteger
		}
		if (err == nil) != (wantErr == nil) || err == nil && got != want {
			t.Fatalf("parseInteger(%q) = %d, %v; strconv says %d, %v", text, got, err, want, wantErr)
		}
	})
}

// FuzzParseQuery holds the parser against net/url: what it accepts means the same
// there, and what it refuses is malformed, unknown or repeated there.
func FuzzParseQuery(f *testing.F) {
	f.Add("key=user:123&algorithm=TOKEN_BUCKET&permits=1&keep=40")
	f.Add("key=a%20b+c&&policy=%zz")
	f.Add("%6bey=1&key=2")
	f.Fuzz(func(t *testing.T, query string) {
		if strings.Contains(query, ";") {
			return // data here, an error there
		}
		q, err := parseQuery(query, costMembers)
		values, urlErr := url.ParseQuery(query)
		sound := urlErr == nil
		for name, list := range values {
			sound = sound && memberNamed(name)&costMembers != 0 && len(list) == 1
		}
		if (err == nil) != sound {
			t.Fatalf("parseQuery(%q): %v; net/url: %v %v", query, err, values, urlErr)
		}
		if err == nil && (q.key != values.Get("key") || q.algorithm != values.Get("algorithm") ||
			q.policy != values.Get("policy") || q.permits != values.Get("permits") || q.keep != values.Get("keep")) {
			t.Fatalf("parseQuery(%q) = %+v; net/url: %v", query, q, values)
		}
	})
}

// FuzzParseBody holds the parser against encoding/json: what it accepts is JSON
// that means the same there.
func FuzzParseBody(f *testing.F) {
	f.Add(`{"key":"user:\u00e9\ud83d\ude00\n","algorithm":"TOKEN_BUCKET","permits":-12,"keep":40}`)
	f.Add(`[{"key":"a"},{"policy":"b"} , {}]`)
	f.Add(`{"key":"\ud800"}`)
	f.Fuzz(func(t *testing.T, text string) {
		requests, batch, err := parseBody(text, costMembers)
		if err != nil {
			return
		}
		want := []map[string]any{{}}
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if batch {
			err = decoder.Decode(&want)
		} else {
			err = decoder.Decode(&want[0])
		}
		if err != nil || len(want) != len(requests) || decoder.More() {
			t.Fatalf("parseBody accepts %q as %d elements; encoding/json: %d, %v", text, len(requests), len(want), err)
		}
		for i, q := range requests {
			got := map[string]any{}
			for name, value := range map[string]any{
				"key": q.key, "algorithm": q.algorithm, "policy": q.policy, "permits": json.Number(q.permits), "keep": json.Number(q.keep),
			} {
				if q.has(memberNamed(name)) {
					got[name] = value
				}
			}
			if !slices.Equal(pairs(got), pairs(want[i])) {
				t.Fatalf("element %d of %q is %v; encoding/json: %v", i, text, got, want[i])
			}
		}
	})
}

// pairs lists a map's entries in the order of the members.
func pairs(m map[string]any) []any {
	list := []any{len(m)}
	for _, name := range []string{"key", "algorithm", "policy", "permits", "keep"} {
		list = append(list, m[name])
	}
	return list
}

// The attributes that are kept of denied requests are those that rules name; API keys are none of them.
func TestAttributesOf(t *testing.T) {
	got := attributesOf([]rules.Rule{
		{Match: rules.Match{Attributes: map[string][]string{"plan": {"free"}}}, Scope: []string{rules.PerIP, rules.Custom("tenant")}},
		{Scope: []string{rules.PerAPIKey, rules.Custom(api.AttributeAPIKey)}, Cost: rules.Cost{Attribute: "size"}, PartitionBy: "region"},
		{
			Scope: []string{rules.Custom("tenant")}, Costs: []rules.Cost{{}, {Attribute: "tokens"}},
			Classes: rules.Classes{By: rules.ClassBy{Attribute: "class"}},
		},
	})
	if want := []string{"class", "plan", "region", "size", "tenant", "tokens"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := attributesOf([]rules.Rule{{Scope: []string{rules.PerUser}}}); !slices.Equal(got, []string{api.AttributeUserID}) {
		t.Errorf("%q, want the user", got)
	}
}
