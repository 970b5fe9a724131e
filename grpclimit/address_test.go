package grpclimit_test

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
)

// A call counts for its peer by default, whatever the client writes, and for whom trusted proxies name.
func TestClients(t *testing.T) {
	proxies := clientip.Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	own := proxies
	own.Headers = []string{"X-Client", "x-forwarded-for"}
	tcp := func(address string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(address)) }
	for name, c := range map[string]struct {
		config clientip.Config
		peer   net.Addr
		md     metadata.MD
		want   string
	}{
		"the peer":                        {peer: tcp("192.0.2.1:5000"), want: "192.0.2.1"},
		"an IPv6 peer":                    {peer: tcp("[2001:db8:1:2::3]:5000"), want: "2001:db8:1:2::/64"},
		"nobody is believed":              {peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-forwarded-for", "192.0.2.9"), want: "10.0.0.1"},
		"a trusted proxy":                 {config: proxies, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-forwarded-for", "192.0.2.9"), want: "192.0.2.9"},
		"a client that pretends":          {config: proxies, peer: tcp("192.0.2.1:5000"), md: metadata.Pairs("x-forwarded-for", "192.0.2.9"), want: "192.0.2.1"},
		"the right-most untrusted hop":    {config: proxies, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-forwarded-for", "1.1.1.1, 192.0.2.9", "x-forwarded-for", "10.0.0.2"), want: "192.0.2.9"},
		"a proxy that says nothing":       {config: proxies, peer: tcp("10.0.0.1:5000"), want: "10.0.0.1"},
		"names of one's own":              {config: own, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-client", "192.0.2.7", "x-forwarded-for", "192.0.2.9"), want: "192.0.2.7"},
		"the second name":                 {config: own, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-forwarded-for", "192.0.2.9"), want: "192.0.2.9"},
		"a name that is not believed":     {config: proxies, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-real-ip", "192.0.2.9"), want: "10.0.0.1"},
		"a Unix socket":                   {peer: &net.UnixAddr{Name: "@", Net: "unix"}, want: "unknown"},
		"no peer, as outside of a server": {want: "unknown"},
		"a hop that can't be read":        {config: proxies, peer: tcp("10.0.0.1:5000"), md: metadata.Pairs("x-forwarded-for", "bogus"), want: "10.0.0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			limiter := newLimiter(t, burst())
			config := grpclimit.Config{Limiter: limiter}
			if len(c.config.TrustedProxies) > 0 {
				config.Clients = resolver(t, c.config)
			}
			limits := newServer(t, config)
			ctx := metadata.NewIncomingContext(t.Context(), c.md)
			if c.peer != nil {
				ctx = peer.NewContext(ctx, &peer.Peer{Addr: c.peer})
			}
			_, err := limits.UnaryServerInterceptor()(ctx, nil, &grpc.UnaryServerInfo{FullMethod: check}, succeeds)
			expectCode(t, err, codes.OK)
			if d, err := limiter.Peek(t.Context(), c.want); err != nil || d.Remaining != 1 {
				t.Errorf("%d permits remain to %q (%v), want 1", d.Remaining, c.want, err)
			}
		})
	}
}

func resolver(t testing.TB, config clientip.Config) *clientip.Resolver {
	t.Helper()
	return must.Get(clientip.New(config))(t)
}

// succeeds is a handler that does.
func succeeds(context.Context, any) (any, error) { return "done", nil }
