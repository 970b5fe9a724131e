package mongo_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
)

// doc is a document of FluxGate, written as mongosh shows it.
func doc(t *testing.T, text string) bson.D {
	t.Helper()
	var d bson.D
	must.Do(t, bson.UnmarshalExtJSON([]byte(text), false, &d))
	return d
}

func TestImport(t *testing.T) {
	const band = `"bands":[{"windowSeconds":{"$numberLong":"60"},"capacity":{"$numberLong":"100"},"label":"per minute"}]`
	minute := []stint.Limit{stint.TokenBucket(100, stint.Per(100, time.Minute)).Named("per minute")}
	for name, c := range map[string]struct {
		doc   string
		want  *rules.Rule
		notes []string
	}{
		"version 0.1": {
			`{"id":"api-limit","name":"API","enabled":true,"scope":"PER_API_KEY","keyStrategyId":"apiKey","onLimitExceedPolicy":"REJECT_REQUEST","ruleSetId":"api-rules","attributes":{"team":"billing","tier":1},"tags":["x","y"],` + band + `}`,
			&rules.Rule{
				ID: "api-limit", Name: "API", Set: "api-rules", Labels: map[string]string{"team": "billing", "tier": "1", "tags": "x,y"},
				Scope: []string{rules.PerAPIKey}, Missing: rules.MissingIP, Limits: minute,
			},
			nil,
		},
		"several bands": {
			`{"id":"a","enabled":false,"scope":"GLOBAL","onLimitExceedPolicy":"WAIT_FOR_REFILL","bands":[{"windowSeconds":1,"capacity":10,"label":"초당 10회"},{"windowMs":500,"capacity":10}]}`,
			&rules.Rule{
				ID: "a", Disabled: true, Scope: []string{rules.Global}, OnExceed: rules.Wait, MaxWait: 5 * time.Second,
				Limits: []stint.Limit{
					stint.TokenBucket(10, stint.Per(10, time.Second)).Named("10-per-1s"),
					stint.TokenBucket(10, stint.Per(10, 500*time.Millisecond)).Named("10-per-500ms"),
				},
			},
			[]string{`rule "a": the label "초당 10회" is not kept`, `rule "a": max_wait is set to 5s`},
		},
		"version 0.4": {
			`{"id":"q","scope":"CUSTOM","keyStrategyId":"tenant","priority":7,"methods":["GET"],"pathPatterns":["/api/**","/v2/*/x"],"excludePathPatterns":["/api/health"],
				"headerEquals":{"x-tier":"free"},"headerPresent":["x-id"],"deniedIps":["10.0.0.0/8"],"bands":[{"windowSeconds":60,"capacity":5,"algorithm":"SLIDING_WINDOW","slidingWindowBuckets":12},
				{"windowSeconds":86400,"capacity":50,"algorithm":"FIXED_WINDOW","quotaPeriod":"DAILY","zoneId":"Europe/Berlin"}]}`,
			&rules.Rule{
				ID: "q", Priority: 7, Scope: []string{rules.Custom("tenant")}, Missing: rules.MissingIP,
				Match: rules.Match{
					Methods: []string{"GET"}, Paths: []string{"/api/**", "/v2/*/x"}, Except: []string{"/api/health"},
					Headers: map[string]string{"x-tier": "free", "x-id": "*"},
				},
				Limits: []stint.Limit{
					stint.SlidingWindowCounter(5, time.Minute).Named("5-per-1m"),
					stint.CalendarWindow(50, stint.CalendarDay, "Europe/Berlin").Named("50-per-1d"),
				},
			},
			[]string{`rule "q": deniedIps is not kept`},
		},
		"odd ID":      {`{"id":"a b/ü","scope":"PER_IP",` + band + `}`, &rules.Rule{ID: "a-b--", Scope: []string{rules.PerIP}, Limits: minute}, []string{`"a b/ü"`}},
		"no strategy": {`{"id":"a","scope":"CUSTOM",` + band + `}`, &rules.Rule{ID: "a", Scope: []string{rules.PerIP}, Limits: minute}, []string{"CUSTOM without keyStrategyId"}},
		"pattern":     {`{"id":"a","scope":"PER_IP","pathPatterns":["/a*","/b"],` + band + `}`, nil, []string{`rule "a" is not imported: the pattern is "/a*"`}},
		"scope":       {`{"id":"a","scope":"PER_MOON","onLimitExceedPolicy":"CRY"}`, nil, []string{`scope is "PER_MOON"`, `onLimitExceedPolicy is "CRY"`}},
		"no bands":    {`{"id":"a","scope":"PER_IP"}`, nil, []string{`rule "a" is not imported: rule "a": limits is missing`}},
		"no rule":     {`{"_id":"x","id":5}`, nil, []string{`the document with _id "x" is not imported`}},
	} {
		t.Run(name, func(t *testing.T) {
			url := newURL()
			must.Get(raw(t, url).Collection("rate_limit_rules").InsertOne(t.Context(), doc(t, c.doc)))(t)
			list, notes := must.Two(mongo.Import(t.Context(), url))(t)
			switch {
			case c.want == nil && len(list) > 0:
				t.Errorf("imported is\n%+v, want nothing", list)
			case c.want != nil && (len(list) != 1 || !list[0].Equal(c.want)):
				t.Errorf("imported is\n%+v, want\n%+v", list, *c.want)
			}
			all := strings.Join(notes, "\n")
			for _, want := range c.notes {
				if !strings.Contains(all, want) {
					t.Errorf("the notes lack %q:\n%s", want, all)
				}
			}
			if len(c.notes) == 0 && len(notes) > 0 {
				t.Errorf("notes:\n%s", all)
			}
		})
	}
}

// Rules of one ID are both kept, in a collection of another name.
func TestImportTwice(t *testing.T) {
	url := newURL()
	for range 2 {
		d := doc(t, `{"id":"a","scope":"PER_IP","bands":[{"windowSeconds":60,"capacity":1}]}`)
		must.Get(raw(t, url).Collection("others").InsertOne(t.Context(), d))(t)
	}
	list, notes, err := mongo.Import(t.Context(), url+"?collection=others")
	if err != nil || len(list) != 2 || !reflect.DeepEqual([]string{list[0].ID, list[1].ID}, []string{"a", "a-2"}) || len(notes) != 1 {
		t.Errorf("%+v, %q, %v", list, notes, err)
	}
	if list, notes, err := mongo.Import(t.Context(), url); err != nil || len(list) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "empty") {
		t.Errorf("%+v, %q, %v", list, notes, err)
	}
	if _, _, err := mongo.Import(t.Context(), "redis://localhost"); !errors.Is(err, stint.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
}
