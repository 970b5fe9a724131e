package errortest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/client"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/internal/document"
	"github.com/stint-go/stint/internal/document/rulefile"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/otellimit"
	"github.com/stint-go/stint/promlimit"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/alerts"
	"github.com/stint-go/stint/service/internal/record"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/rulestore/mongo"
	redisrules "github.com/stint-go/stint/service/internal/rulestore/redis"
	"github.com/stint-go/stint/service/internal/server"
	"github.com/stint-go/stint/service/internal/simulate"
	"github.com/stint-go/stint/storetest"
)

// Every error that a public package returns begins with the name, which is nowhere else in it. A context's end is the context's error.
func TestErrorsBeginWithTheName(t *testing.T) {
	ctx, bad, nothing := t.Context(), stint.Limit{Algorithm: stint.AlgorithmTokenBucket, MaxDebt: -1}, stint.Store(plain{})
	memory := memstore.New(memstore.Config{})
	policy := must(stint.NewPolicy("p", stint.TokenBucket(1, stint.PerSecond(1))))
	empty := stint.Op{Claim: stint.Claim{Policy: policy, Permits: 1}}
	dead := must(rueidis.Dial(rueidis.Config{URL: "redis://127.0.0.1:1"}))
	t.Cleanup(dead.Close)
	deadStore := must(redisstore.New(dead, redisstore.Options{}))
	t.Cleanup(deadStore.Close)
	service := must(client.Open("http://127.0.0.1:1", client.Options{}))
	failing := must(failover.New(deadStore, failover.Config{Mode: failover.Closed, Timeout: time.Second}))
	t.Cleanup(failing.Close)
	unresettable := must(failover.New(nothing, failover.Config{}))
	t.Cleanup(unresettable.Close)
	rule := rules.Rule{ID: "r", Scope: []string{"global"}, Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(1))}}
	unsound := rules.Rule{ID: "r", Scope: []string{"moon", "sun"}, Limits: []stint.Limit{bad}, Overrides: []rules.Override{{Key: "k", Limits: []stint.Limit{bad}}}}
	set := must(rules.Compile([]rules.Rule{rule}, rules.Options{}))
	enforcer := must(enforce.New(enforce.Config{Store: deadStore, Set: set}))
	manager := must(rulestore.NewManager(rulestore.NewMemory(), rulestore.Options{}))
	deadRules := must(redisrules.New(dead, redisrules.Options{}))
	registry := prometheus.NewRegistry()
	must(promlimit.New(registry))
	must(promlimit.NewCalls(registry))
	must(promlimit.NewRules(registry))
	asked := &http.Request{Method: "GET", URL: must(http.NewRequest("GET", "http://h/", nil)).URL} //nolint:noctx // it goes nowhere
	never := must(stint.New(memory, "never", stint.TokenBucket(1, stint.PerSecond(1))))

	_, parseAlgorithm := notation.ParseAlgorithm("sand")
	_, parseDuration := notation.ParseDuration("long")
	for name, err := range map[string]error{
		"notation.ParseAlgorithm": parseAlgorithm,
		"notation.ParseCalendar":  of(notation.ParseCalendar("moon")),
		"notation.ParseDuration":  parseDuration,
		"notation.ParseRate":      of(notation.ParseRate("fast")),
		"stint.Limit":             bad.Validate(),
		"stint.Op":                empty.Validate(),
		"stint.Op and others":     (&stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}, And: []stint.Claim{{Policy: policy, Permits: 1}}}).Validate(),
		"stint.NewPolicy":         of(stint.NewPolicy("p", bad, bad)),
		"stint.New":               of(stint.New(memory, "", bad)),
		"stint.NewLimiter":        of(stint.NewLimiter(stint.Config{})),
		"stint.Allow":             of(never.Allow(ctx, "")),
		"stint.Wait":              of(never.WaitN(ctx, "k", 2)),
		"stint.With":              of(never.With(bad, bad)),

		"client.Open":      of(client.Open("ftp://h", client.Options{Token: " ", Timeout: -1, Defaults: []stint.Limit{bad, bad}})),
		"client.Check":     of(service.Check(ctx, api.Request{Key: "k"})),
		"client.CheckAll":  of(service.CheckAll(ctx, []api.Request{{Key: "\x00"}})),
		"client.Remaining": of(service.Remaining(ctx, api.Request{Key: "k", Permits: -1})),
		"client.Reset":     of(service.Reset(ctx, api.Request{Key: "k", Permits: 1})),
		"client.Decide":    of(service.Decide(ctx, empty)),
		"client.Evaluate":  of(service.Evaluate(ctx, api.EvaluateRequest{})),

		"clientip.New":           of(clientip.New(clientip.Config{IPv6Prefix: 300, Headers: []string{":"}})),
		"enforce.New":            of(enforce.New(enforce.Config{})),
		"enforce.New max_wait":   of(enforce.New(enforce.Config{Store: memory, MaxWait: -1})),
		"enforce.Decide":         enforcer.Decide(ctx, &rules.Request{Method: "GET", Path: "/"}, new(enforce.Verdict)),
		"failover.New":           of(failover.New(nil, failover.Config{Timeout: -1, Mode: 9})),
		"failover.Decide":        of(failing.Decide(ctx, empty)),
		"failover.Decide closed": of(failing.Decide(ctx, stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}})),
		"failover.ParseMode":     of(failover.ParseMode("ajar")),
		"failover.Reset":         unresettable.ResetAll(ctx, stint.Scope{All: true}),
		"failover.Reset closed":  failing.ResetAll(ctx, stint.Scope{Policy: "p"}),

		"grpclimit.New":          of(grpclimit.New(grpclimit.Config{})),
		"grpclimit.NewClient":    of(grpclimit.NewClient(grpclimit.ClientConfig{MaxWait: -1, Retries: -1})),
		"httplimit.New":          of(httplimit.New(httplimit.Config{Fields: 99})),
		"httplimit.NewTransport": of(httplimit.NewTransport(httplimit.TransportConfig{MaxWait: -1, MaxPause: -1})),
		"httplimit.RefusedError": of(must(httplimit.NewTransport(httplimit.TransportConfig{Refuse: true, Limiter: must(stint.New(deadStore, "refused", stint.TokenBucket(1, stint.PerSecond(1))))})).RoundTrip(asked.WithContext(ctx))),

		"memstore.Decide":     of(memory.Decide(ctx, empty)),
		"otellimit.Reset":     otellimit.Decisions(nothing, noop.NewTracerProvider()).ResetAll(ctx, stint.Scope{All: true}),
		"promlimit.New":       of(promlimit.New(registry)),
		"promlimit.NewCalls":  of(promlimit.NewCalls(registry)),
		"promlimit.NewRules":  of(promlimit.NewRules(registry)),
		"promlimit.WithLabel": of(promlimit.WithLabels(registry, map[string]string{"1": "", "rule": "", "x": "\xff"})),

		"redisstore.New":            of(redisstore.New(nil, redisstore.Options{})),
		"redisstore.New options":    of(redisstore.New(dead, redisstore.Options{KeyPrefix: "{", Partitions: -1})),
		"redisstore.CheckKeyPrefix": redisstore.CheckKeyPrefix("{"),
		"redisstore.Ping":           deadStore.Ping(ctx),
		"redisstore.Ready":          deadStore.Ready(ctx),
		"redisstore.Reset":          deadStore.ResetAll(ctx, stint.Scope{All: true}),
		"redisstore.Decide":         of(deadStore.Decide(ctx, stint.Op{Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}})),
		"rueidis.Open":              of(rueidis.Open(rueidis.Config{URL: "http://h", Store: redisstore.Options{KeyPrefix: "{", Partitions: -1}, Failover: failover.Config{Mode: 9}})),
		"rueidis.Dial":              of(rueidis.Dial(rueidis.Config{URL: "redis://u:p@h", Username: "u", PasswordFile: "none", TLS: rueidis.TLSFiles{CAFile: "none"}})),
		"rueidis.Dial TLS":          of(rueidis.Dial(rueidis.Config{URL: "rediss://h", TLS: rueidis.TLSFiles{CAFile: "none"}})),

		"rules.Compile":      of(rules.Compile([]rules.Rule{unsound, unsound, {}}, rules.Options{})),
		"rules.Compile bits": of(rules.Compile(nil, rules.Options{IPv6Prefix: 300})),
		"rules.Rule":         unsound.Validate(),
		"rules.Fault":        errors.Unwrap(&rules.Fault{Err: unsound.Validate()}),
		"rules.ClientKey":    of(rule.ClientKey(`\`)),
		"rules.Missing":      new(rules.Missing).UnmarshalText([]byte("ask")),

		"rulefile.Parse":        second(rulefile.Parse("f.yaml", []byte("rules: 1\nlimits: 2\n"))),
		"rulefile.ParseSet":     second(rulefile.ParseSet("f.yaml", []byte("[{id: a, scope: moon, limits: [{algorithm: token_bucket, capacity: -1}]}, {id: a}]"), rules.Options{})),
		"rulefile.ReadSet":      of(rulefile.ReadSet(t.TempDir(), rules.Options{})),
		"rulefile.Bytes":        of(rulefile.Bytes("none", 1)),
		"rulefile.Bytes folder": of(rulefile.Bytes(t.TempDir(), 1)),
		"rulefile.JSON":         of(rulefile.JSON(unsound)),
		"rulefile.OverrideJSON": of(rulefile.OverrideJSON(unsound.Overrides[0])),
		"rulefile.Source":       rulefile.Source{Interval: -1, Quiet: -1}.Follow(ctx, nil, nil),
		"document.Faults":       faults().Err(),
		"document.Fault":        faults()[0],

		"store.NewManager":  of(rulestore.NewManager(nil, rulestore.Options{Interval: -1, IPv6Prefix: 300})),
		"store.Revision":    of(manager.Revision(ctx, 7)),
		"store.History":     of(manager.History(ctx, -1, 0)),
		"store.Rollback":    of(manager.Rollback(ctx, rulestore.Author{}, -1, "", nil)),
		"store.Rollback to": of(manager.Rollback(ctx, rulestore.Author{}, 7, "", nil)),
		"store.Edit": of(manager.Edit(ctx, rulestore.Author{}, func(d *rulestore.Draft) error {
			d.Replace([]rules.Rule{unsound})
			return nil
		})),
		"store.Edit of another": of(must(rulestore.NewManager(deadRules, rulestore.Options{})).Edit(ctx, rulestore.Author{}, nil)),
		"store.Encode":          of(rulestore.Encode([]rules.Rule{unsound})),
		"store.Decode":          of(rulestore.Decode("it", []byte("["))),
		"redis.New":             of(redisrules.New(nil, redisrules.Options{})),
		"redis.New prefix":      of(redisrules.New(dead, redisrules.Options{KeyPrefix: "{"})),
		"redis.Load":            of(deadRules.Load(ctx, 0)),
		"redis.Watch":           deadRules.Watch(ctx, func() {}, func() {}),
		"mongo.New":             of(mongo.New("redis://h")),
		"mongo.Import":          second(mongo.Import(ctx, "mongodb://h/a b")),

		"simulate.Budget":         of(simulate.Budget("much")),
		"simulate.Pattern":        simulate.Pattern{}.Validate(),
		"simulate.NewReader":      of(simulate.NewReader(simulate.ReaderOptions{Format: "wax", ClientIP: clientip.Config{IPv6Prefix: 300}})),
		"simulate.NewReader form": of(simulate.NewReader(simulate.ReaderOptions{Format: "wax"})),
		"simulate.Read":           must(simulate.NewReader(simulate.ReaderOptions{})).Read(io.MultiReader(strings.NewReader("abc\n"), broken{}), nil),
		"simulate.Read gzip":      must(simulate.NewReader(simulate.ReaderOptions{})).Read(strings.NewReader("\x1f\x8b\x08"), nil),
		"simulate.New":            of(simulate.New(simulate.Config{})),
		"simulate.New set":        of(simulate.New(simulate.Config{Candidates: []simulate.Candidate{{}}})),
		"record.NewRotator":       of(record.NewRotator(filepath.Join("none", "none"), 1, 1)),
		"record.Recorder":         record.New(nothing, io.Discard, record.Options{}).ResetAll(ctx, stint.Scope{All: true}),
		"simulate.Replay":         of(simulate.Replay(strings.NewReader(`{"policy":1,"limits":[{"algorithm":"sand"}]}` + "\n"))),
		"simulate.Replay read":    of(simulate.Replay(broken{})),
		"simulate.Suggest":        of(simulate.Suggest(nil, rules.Rule{ID: "r"}, rules.Options{}, simulate.Goal{Share: 1})),
		"simulate.Suggest share":  of(simulate.Suggest(nil, rule, rules.Options{}, simulate.Goal{Share: 2})),
		"storetest.Faulty":        storetest.NewFaulty(nothing).ResetAll(ctx, stint.Scope{All: true}),
		"storetest.Replay":        storetest.Replay(ctx, deadStore, storetest.NewClock(1), storetest.Generate(1, stint.AlgorithmTokenBucket, 9)),

		"server.New": of(server.New(server.Config{})),
		"alerts.New": of(alerts.New(alerts.Config{URL: "mail:", Timeout: -1})),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "stint: ") || strings.Count(err.Error(), "stint: ") != 1 || err.Error() != "stint: "+prefix.Trim(err.Error()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func of[T any](_ T, err error) error { return err }

func second[A, B any](_ A, _ B, err error) error { return err }

func faults() (f document.Faults) {
	f.Invalid("a", document.Value{}, "b")
	f.Add(document.Position{Source: "f"}, "%v", stint.Invalid("a", 1, "2"))
	return f
}

// plain is a store that can do nothing.
type plain struct{}

func (plain) Decide(context.Context, stint.Op) (stint.Decision, error) {
	return stint.Decision{}, stint.ErrUnavailable
}

func (p plain) Take(ctx context.Context, policy *stint.Policy, key string, n int64) (stint.Decision, error) {
	return p.Decide(ctx, stint.Op{Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
}

func (plain) DecideAll(context.Context, []stint.Op, []stint.Result) {}

func (plain) ResetAll(context.Context, stint.Scope) error {
	return stint.Invalid("scope", "any", "single clients")
}

// broken is a file that can't be read.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func (plain) Watch(time.Duration, func(int, error)) stint.Shards { return stint.Shards{} }
