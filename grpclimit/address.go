package grpclimit

import (
	"context"
	"net/http"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/stint-go/stint/clientip"
)

// ByAddress names clients by their addresses, as clientip does: the peer's, or, where the peer is a
// trusted proxy, the one that the incoming metadata of the configured names tell, x-forwarded-for
// when none are configured. An IPv6 client is its network. All peers that have no address, as on a
// Unix socket, are the client "unknown". Metadata is read only behind a trusted peer, so that a
// client that is its own peer can't choose its name.
func ByAddress(config clientip.Config) (KeyFunc, error) {
	resolver, err := clientip.New(config)
	if err != nil {
		return nil, err
	}
	names := config.Headers
	if names == nil {
		names = clientip.DefaultHeaders()
	}
	return func(ctx context.Context, _ string) (string, error) {
		from := "" // nothing is known of the peer
		if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
			from = p.Addr.String()
		}
		var header http.Header
		if resolver.TrustsPeer(from) {
			header = make(http.Header, len(names))
			for _, name := range names {
				if lines := metadata.ValueFromIncomingContext(ctx, name); lines != nil {
					header[http.CanonicalHeaderKey(name)] = lines
				}
			}
		}
		return resolver.Key(from, header), nil
	}, nil
}
