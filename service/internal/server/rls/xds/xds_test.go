package xds_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	xdsserver "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	configs "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testport"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// patience is how long a test waits for what should come soon.
const patience = 5 * time.Minute

// A plane is a control plane as Envoy Gateway has one: go-control-plane's cache, by node.
type plane struct {
	t       *testing.T
	cache   cache.SnapshotCache
	server  *grpc.Server
	address string

	mu       sync.Mutex
	requests []*discovery.DiscoveryRequest
	headers  metadata.MD
}

// OnStreamRequest notes what the client says.
func (p *plane) note(_ int64, r *discovery.DiscoveryRequest) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	return nil
}

func newPlane(t *testing.T, secure *tls.Config) *plane {
	p := &plane{t: t, cache: cache.NewSnapshotCache(false, cache.IDHash{}, nil)}
	p.listen(testport.Address(t), secure)
	return p
}

// listen serves at an address until the test ends, or the server is stopped.
func (p *plane) listen(address string, secure *tls.Config) {
	p.t.Helper()
	ln := must.Get(new(net.ListenConfig).Listen(p.t.Context(), "tcp", address))(p.t)
	p.address = ln.Addr().String()
	var options []grpc.ServerOption
	if secure != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(secure)))
	}
	p.server = grpc.NewServer(options...)
	callbacks := xdsserver.CallbackFuncs{StreamRequestFunc: p.note, StreamOpenFunc: func(ctx context.Context, _ int64, _ string) error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.headers, _ = metadata.FromIncomingContext(ctx)
		return nil
	}}
	configs.RegisterRateLimitConfigDiscoveryServiceServer(p.server, xdsserver.NewServer(p.t.Context(), p.cache, callbacks))
	serve(p.t, p.server, ln)
}

// serve has a server accept connections until the test ends, or it is stopped.
func serve(t *testing.T, server *grpc.Server, ln net.Listener) {
	served := make(chan struct{})
	go func() {
		_ = server.Serve(ln) // until it is stopped
		close(served)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
}

// put has the plane offer these resources to the node n.
func (p *plane) put(version string, list ...types.Resource) {
	p.t.Helper()
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{resource.RateLimitConfigType: list})
	if err == nil {
		err = p.cache.SetSnapshot(p.t.Context(), "n", snapshot)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// last is the last request of the client for which is holds; the test fails if none comes.
func (p *plane) last(what string, is func(*discovery.DiscoveryRequest) bool) (found *discovery.DiscoveryRequest) {
	p.t.Helper()
	eventually(p.t, what, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.requests {
			if is(r) {
				found = r
			}
		}
		return found != nil
	})
	return found
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for ticks := time.NewTicker(time.Millisecond); !is(); {
		select {
		case <-ticks.C:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// limitOf is a resource with one limit.
func limitOf(domain, key string, requests uint32) *rls.RateLimitConfig {
	return &rls.RateLimitConfig{Name: domain, Domain: domain, Descriptors: []*rls.RateLimitDescriptor{{
		Key: key, RateLimit: &rls.RateLimitPolicy{Unit: rls.RateLimitUnit_MINUTE, RequestsPerUnit: requests},
	}}}
}

// A taker keeps what a client took and what it refused.
type taker struct {
	mu      sync.Mutex
	taken   [][]*domains.Domain
	refused []error
}

func (k *taker) take(list []*domains.Domain) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range list {
		if d.Name == "refused" {
			return errors.New("this domain is refused")
		}
	}
	k.taken = append(k.taken, list)
	return nil
}

func (k *taker) refuse(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = append(k.refused, err)
}

// has reports whether the last that was taken is one limit of so many requests.
func (k *taker) has(requests uint32) func() bool {
	return func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.taken) == 0 {
			return false
		}
		list := k.taken[len(k.taken)-1]
		return len(list) == 1 && list[0].Descriptors[0].RateLimit.RequestsPerUnit == requests
	}
}

// follow runs a client until the test ends.
func follow(t *testing.T, config xds.Config, k *taker, sleep func(context.Context, time.Duration) error) {
	t.Helper()
	client := must.Get(xds.New(config))(t)
	if sleep != nil {
		client.SleepBy(sleep)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		client.Follow(ctx, k.take, k.refuse)
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// The domains of a control plane are taken, and taken back by no fault: a bad configuration is refused to it, with all
// that is wrong, and the next good one is taken.
func TestFollow(t *testing.T) {
	p, k := newPlane(t, nil), &taker{}
	p.put("1", limitOf("web", "a", 5))
	follow(t, xds.Config{
		Server: p.address, NodeID: "n", NodeMetadata: map[string]string{"zone": "b"}, Headers: map[string]string{"x-tenant": "t"},
	}, k, func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	eventually(t, "the first domains are in force", k.has(5))
	p.last("the first version is acknowledged", func(r *discovery.DiscoveryRequest) bool { return r.VersionInfo == "1" && r.ErrorDetail == nil })
	p.mu.Lock()
	first, headers := p.requests[0], p.headers
	p.mu.Unlock()
	if first.TypeUrl != xds.TypeURL || first.Node.Id != "n" || first.Node.Metadata.Fields["zone"].GetStringValue() != "b" || first.VersionInfo != "" {
		t.Errorf("it asks %v", first)
	}
	if got := headers.Get("x-tenant"); len(got) != 1 || got[0] != "t" {
		t.Errorf("its headers are %v", headers)
	}

	bad := limitOf("web", "", 6)
	bad.Descriptors = append(bad.Descriptors, &rls.RateLimitDescriptor{Key: "b", RateLimit: &rls.RateLimitPolicy{RequestsPerUnit: 1}})
	p.put("2", bad)
	refusal := p.last("the second version is refused", func(r *discovery.DiscoveryRequest) bool { return r.ErrorDetail != nil })
	for _, want := range []string{"descriptors[0].key is empty", "descriptors[1].rate_limit.unit is empty"} {
		if !strings.Contains(refusal.ErrorDetail.Message, want) || refusal.VersionInfo != "1" || refusal.ErrorDetail.Code != 3 {
			t.Errorf("it refuses by %v, want %q", refusal, want)
		}
	}
	p.put("3", limitOf("refused", "a", 6))
	p.last("what takes domains may refuse, too", func(r *discovery.DiscoveryRequest) bool {
		return strings.Contains(r.ErrorDetail.GetMessage(), "this domain is refused")
	})
	if !k.has(5)() || len(k.refused) != 2 {
		t.Errorf("taken: %v, refused: %v", k.taken, k.refused)
	}
	p.put("4", limitOf("web", "a", 7))
	eventually(t, "the next good ones are in force", k.has(7))
	p.last("they are acknowledged", func(r *discovery.DiscoveryRequest) bool { return r.VersionInfo == "4" })
	p.put("5")
	eventually(t, "there are none", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.taken[len(k.taken)-1]) == 0
	})
}

// A connection that is lost is made again, after waits that grow; what is in force stays.
func TestReconnect(t *testing.T) {
	p, k := newPlane(t, nil), &taker{}
	p.put("1", limitOf("web", "a", 5))
	waits, goOn := make(chan time.Duration), make(chan struct{})
	follow(t, xds.Config{Server: p.address, NodeID: "n", Backoff: time.Second, MaxBackoff: 3 * time.Second}, k,
		func(ctx context.Context, d time.Duration) error {
			select {
			case waits <- d:
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-goOn:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	eventually(t, "the first domains are in force", k.has(5))
	p.server.Stop()
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second} {
		if got := <-waits; got != want {
			t.Errorf("it waits %v, want %v", got, want)
		}
		if want < 3*time.Second {
			goOn <- struct{}{}
		}
	}
	if !k.has(5)() {
		t.Error("the domains are gone with the connection")
	}
	p.listen(p.address, nil)
	p.put("2", limitOf("web", "a", 6))
	goOn <- struct{}{}
	eventually(t, "the new domains are in force", k.has(6))
	p.server.Stop()
	if got := <-waits; got != time.Second {
		t.Errorf("after an answer it waits %v", got)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, test := range []struct {
		config xds.Config
		want   string
	}{
		{xds.Config{}, "server"},
		{xds.Config{Server: "h:1", Jitter: 2}, "jitter"},
		{xds.Config{Server: "h:1", Backoff: -1}, "backoff"},
		{xds.Config{Server: "h:1", TLS: xds.TLS{CAFile: "/there/is/none"}}, "ca_file"},
		{xds.Config{Server: "h:1", TLS: xds.TLS{CertFile: "/there/is/none", KeyFile: "/none"}}, "cert_file"},
	} {
		if _, err := xds.New(test.config); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %s", test.config, err, test.want)
		}
	}
}
