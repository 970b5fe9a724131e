package bench

import (
	"cmp"
	"context"
	"crypto/tls"
	"embed"
	"errors"
	"fmt"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/rueidis"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/spans"
)

// OfStore asks a store for n permits under a policy.
func OfStore(store stint.Store, policy *stint.Policy, n int64) Target {
	return func(ctx context.Context, key string) (Answer, error) {
		d, err := store.Decide(ctx, stint.Op{Verb: stint.VerbTake, Claim: stint.Claim{Key: key, Policy: policy, Permits: n}})
		return Answer{d.At, d.Allowed, d.Degraded}, err
	}
}

// Envoy asks Envoy's rate limit service at an address for n hits of the descriptor {name: key} of a domain.
func Envoy(addr string, encrypted bool, domain, name string, n uint32) (_ Target, closing func(), err error) {
	speaks := insecure.NewCredentials()
	if encrypted {
		speaks = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(speaks))
	if err != nil {
		return nil, nil, err
	}
	client := rls.NewRateLimitServiceClient(conn)
	return func(ctx context.Context, key string) (Answer, error) {
		r, err := client.ShouldRateLimit(ctx, &rls.RateLimitRequest{
			Domain: domain, HitsAddend: n,
			Descriptors: []*ratelimit.RateLimitDescriptor{
				{Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: name, Value: key}}},
			},
		})
		if err == nil && (len(r.GetStatuses()) == 0 || r.GetStatuses()[0].GetCurrentLimit() == nil) {
			err = fmt.Errorf("domain %q has no limit for the descriptor %q", domain, name)
		}
		return Answer{Allowed: r.GetOverallCode() == rls.RateLimitResponse_OK}, err
	}, func() { _ = conn.Close() }, nil
}

// OpenRedis connects to the server of the Redis protocol at a URL.
func OpenRedis(url string) (rueidis.Client, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	option.DisableCache, option.DisableRetry, option.ForceSingleClient = true, true, true
	client, err := rueidis.NewClient(option)
	if err != nil && strings.Contains(err.Error(), "unknown message type") { // it says which byte came
		err = errors.New("it does not speak the Redis protocol")
	}
	return client, err
}

// Check asks a service for n permits under a policy of it, by STINT.CHECK.
func Check(client rueidis.Client, policy string, n int64) Target {
	return func(ctx context.Context, key string) (a Answer, err error) {
		said, err := client.Do(ctx, client.B().Arbitrary("STINT.CHECK", policy, key, fmt.Sprint(n)).Build()).ToMap()
		if err != nil {
			return a, err
		}
		allowed, degraded, at := said["allowed"], said["degraded"], said["at"]
		micros, fault := at.AsInt64()
		a.At = stint.Instant(micros)
		a.Degraded, _ = degraded.AsBool() // fails with the next
		a.Allowed, err = allowed.AsBool()
		return a, errors.Join(err, fault)
	}
}

// Throttle asks for n permits of a token bucket whose period is in whole seconds, by CL.THROTTLE.
func Throttle(client rueidis.Client, l stint.Limit, n int64) Target {
	words := strings.Fields(fmt.Sprint(l.Capacity-1, l.Rate.Permits, int64(l.Rate.Period/time.Second), n))
	return func(ctx context.Context, key string) (Answer, error) {
		said, err := integers(client.Do(ctx, client.B().Arbitrary("CL.THROTTLE", key).Args(words...).Build()), 5)
		return Answer{Allowed: said[0] == 0}, err
	}
}

//go:embed scripts
var scripts embed.FS

// Scripts names the scripts that Script runs. They are ours, after what others publish.
func Scripts() []string { return []string{"redis_rate", "gcra", "fixed_window"} }

// Script asks a script for n permits of a limit.
func Script(client rueidis.Client, name string, l stint.Limit, n int64) Target {
	text, _ := scripts.ReadFile("scripts/" + name + ".lua") // embedded
	lua := rueidis.NewLuaScript(string(text))
	rate := l.Rate
	if !l.IsBucket() {
		rate = stint.Per(l.Capacity, spans.Of(l))
	}
	args := strings.Fields(fmt.Sprint(l.Capacity, rate.Permits, rate.Period.Microseconds(), n))
	return func(ctx context.Context, key string) (Answer, error) {
		said, err := integers(lua.Exec(ctx, client, []string{name + ":" + key}, args), 2)
		return Answer{At: stint.Instant(said[1]), Allowed: said[0] == 1}, err
	}
}

// integers are the n of an answer.
func integers(answer rueidis.RedisResult, n int) ([]int64, error) {
	said, err := answer.AsIntSlice()
	if err == nil && len(said) == n {
		return said, nil
	}
	return make([]int64, n), cmp.Or(err, fmt.Errorf("%d integers came; expected %d", len(said), n))
}
