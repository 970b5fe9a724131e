package api_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/must"
)

// marshal is encoding/json's answer, without HTML escaping.
func marshal(t testing.TB, v any) string {
	t.Helper()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must.Do(t, encoder.Encode(v))
	return string(bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

func TestAppendJSON(t *testing.T) {
	for _, c := range []api.CheckResponse{
		{},
		{
			Allowed: true, Key: "user:123", Algorithm: "TOKEN_BUCKET", Limit: 100, Remaining: 95,
			ResetAfterSeconds: 1, Message: "Request allowed", ResetAfterMicros: 500000, At: 1790000000123456, Source: "store",
		},
		{
			Degraded: true, Key: "<\"\\\x00\x1f\x7f\b\f\n\r\té\u2028\u2029\ufffd\xff\U0001f600&>", Policy: `p"q`,
			RetryAfterSeconds: -1, RetryAfterMicros: -1, DelayMicros: math.MaxInt64, At: math.MinInt64,
		},
	} {
		if got, want := string(c.AppendJSON(nil)), marshal(t, c); got != want {
			t.Errorf("AppendJSON:\n%s, want\n%s", got, want)
		}
	}
}

func TestAppendJSONAppends(t *testing.T) {
	c := api.CheckResponse{Key: "k"}
	if got, want := string(c.AppendJSON([]byte("["))), "["+marshal(t, c); got != want {
		t.Errorf("AppendJSON = %s, want %s", got, want)
	}
}

func TestAppendEvaluation(t *testing.T) {
	limited := api.CheckResponse{
		Allowed: true, Key: "k", Algorithm: "FIXED_WINDOW", Limit: 2, Message: "Request allowed", Source: "store",
	}
	for want, e := range map[string]api.EvaluateResponse{
		`{"allowed":true,"message":"Request allowed","matched":[]}`: {
			CheckResponse: api.CheckResponse{Allowed: true, Message: "Request allowed"},
		},
		`{"allowed":false,"retryAfterSeconds":-1,"message":"Rate limit exceeded","retryAfterMicros":-1,"rule":"r","matched":["r","s"],"shadowed":["t"]}`: {
			CheckResponse: api.CheckResponse{RetryAfterSeconds: -1, Message: "Rate limit exceeded", RetryAfterMicros: -1},
			Rule:          "r", Matched: []string{"r", "s"}, Shadowed: []string{"t"},
		},
		strings.TrimSuffix(marshal(t, limited), "}") + `,"rule":"r","matched":["r"]}`: {CheckResponse: limited, Rule: "r", Matched: []string{"r"}},
		strings.TrimSuffix(marshal(t, limited), "}") + `,"rule":"r","class":"batch","via":"borrowed","vias":{"r\"":"limits","u":"borrowed:t"},"matched":["r"]}`: {
			CheckResponse: limited, Rule: "r", Class: "batch", Via: "borrowed", Vias: map[string]string{"u": "borrowed:t", "r\"": "limits"}, Matched: []string{"r"},
		},
	} {
		if got := marshal(t, e); got != want {
			t.Errorf("MarshalJSON:\n%s, want\n%s", got, want)
		}
		var back api.EvaluateResponse
		if err := json.Unmarshal([]byte(want), &back); err != nil || string(back.AppendJSON(nil)) != want {
			t.Errorf("%s is read as %+v, %v", want, back, err)
		}
	}
}

func TestProblemReadsAsError(t *testing.T) {
	p := &api.Problem{Type: "about:blank", Title: "Bad Request", Status: 400, Detail: "key is empty"}
	if got, want := p.Error(), "400 Bad Request: key is empty"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add("user:123", "", int64(95))
	f.Add("\x00\x1f\"\\/\u2028\xc3\x28", "push-messages", int64(-1))
	f.Fuzz(func(t *testing.T, key, policy string, n int64) {
		c := api.CheckResponse{Key: key, Policy: policy, Remaining: n, Degraded: n&1 == 0}
		if got, want := string(c.AppendJSON(nil)), marshal(t, c); got != want {
			t.Fatalf("AppendJSON:\n%s, want\n%s", got, want)
		}
	})
}
