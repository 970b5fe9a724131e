package grpclimit

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint/clientip"
)

// ByAddress names clients by their addresses, as clientip does: the peer's, or,
// where the peer is a trusted proxy, the one that the incoming metadata of the
// configured names tell, x-forwarded-for when none are configured. An IPv6 client
// is its network. All peers that have no address, as on a Unix socket, are the
// client "unknown".
func ByAddress(config clientip.Config) (KeyFunc, error) {
	resolver, err := clientip.New(config)
	if err != nil {
		return nil, err
	}
	if config.Headers == nil {
		config.Headers = clientip.DefaultHeaders()
	}
	a := &addresses{resolver: resolver}
	for _, name := range config.Headers {
		a.names = append(a.names, http.CanonicalHeaderKey(name))
		a.metadata = append(a.metadata, strings.ToLower(name))
	}
	return a.key, nil
}

// addresses finds the addresses of clients.
type addresses struct {
	resolver *clientip.Resolver
	names    []string // the fields as the resolver spells them
	metadata []string // the same as metadata spells them
}

func (a *addresses) key(ctx context.Context, _ string) (string, error) {
	from := peerOf(ctx)
	if !a.resolver.TrustsPeer(from) {
		return a.resolver.Key(from, nil), nil
	}
	header := make(http.Header, len(a.names))
	for i, name := range a.names {
		if lines := metadata.ValueFromIncomingContext(ctx, a.metadata[i]); lines != nil {
			header[name] = lines
		}
	}
	return a.resolver.Key(from, header), nil
}

// peerOf is the peer's host and port, "" when nothing is known of it.
func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
