// Package xds has domains from a control plane, such as Envoy Gateway: the resources
// RateLimitConfig of the service ratelimit.service.ratelimit.v3.RateLimitConfigDiscoveryService, as
// the state of the world.
//
//	client, err := xds.New(xds.Config{Server: "envoy-gateway:18001", NodeID: "envoy-ratelimit"})
//	...
//	client.Follow(ctx, service.Swap)
package xds

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	configs "github.com/envoyproxy/go-control-plane/ratelimit/service/ratelimit/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/clip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/server/rls/domains"
)

// TypeURL is the type of the resources.
const TypeURL = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// A Config says where a [Client] has domains from. Server has no default.
type Config struct {
	// Server is the control plane's address, HOST:PORT.
	Server string
	// NodeID and NodeMetadata say who asks. Default: "", none.
	NodeID       string
	NodeMetadata map[string]string
	// Headers are sent with the request. Default: none.
	Headers map[string]string
	// TLS is what the connection speaks. Default: the zero value, plain gRPC.
	TLS TLS
	// MergeDomains lets several resources have descriptors of one domain. Default: false, that is
	// refused.
	MergeDomains bool
	// Backoff is how long to wait before a lost connection is made again. Default: 0, which is 10
	// seconds.
	Backoff time.Duration
	// MaxBackoff is how long at most, as each attempt waits twice as long. Default: 0, which is 60
	// seconds.
	MaxBackoff time.Duration
	// Jitter is the part of each wait that is random, 0 to 1. Default: 0, none.
	Jitter float64
	// MaxMessageBytes bounds an answer. Default: 0, which is 4 MiB, as in gRPC.
	MaxMessageBytes int
	// Logger is told when the control plane can't be reached, and when it can be again. Default: nil,
	// no log.
	Logger *slog.Logger

	// sleep waits between attempts. Tests replace it.
	sleep func(context.Context, time.Duration) error
}

// A Client follows the resources of a control plane. Make it with [New].
type Client struct {
	config      Config
	credentials credentials.TransportCredentials
}

// New makes a client, or reports what is wrong with its configuration. It connects to nothing.
func New(config Config) (*Client, error) {
	if !strings.Contains(config.Server, ":") {
		return nil, stint.Invalid("server", config.Server, "HOST:PORT of a control plane")
	}
	if config.Jitter < 0 || config.Jitter > 1 {
		return nil, stint.Invalid("jitter", config.Jitter, "0 to 1")
	}
	if config.Backoff < 0 || config.MaxBackoff < 0 || config.MaxMessageBytes < 0 {
		return nil, stint.Invalid("backoff", config.Backoff, "0 or more")
	}
	if config.Backoff == 0 {
		config.Backoff = 10 * time.Second
	}
	if config.MaxBackoff == 0 {
		config.MaxBackoff = time.Minute
	}
	if config.MaxMessageBytes == 0 {
		config.MaxMessageBytes = 4 << 20
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.sleep == nil {
		config.sleep = sleep.For
	}
	c := &Client{config: config, credentials: insecure.NewCredentials()}
	if config.TLS != (TLS{}) {
		secure, err := config.TLS.load()
		if err != nil {
			return nil, err
		}
		c.credentials = credentials.NewTLS(secure)
	}
	return c, nil
}

// Follow has take take over the domains of the control plane, and again whenever they change, until ctx
// is done. What take refuses, or what makes no sense, is refused to the control plane, and told to
// refused; what was taken before stays. A connection that is lost is made again.
func (c *Client) Follow(ctx context.Context, take func([]*domains.Domain) error, refused func(error)) {
	wait, down := c.config.Backoff, false
	for ctx.Err() == nil {
		answered, err := c.stream(ctx, take, refused, func() {
			if down {
				c.config.Logger.Info("the control plane of the domains answers again", "server", c.config.Server)
			}
			down = false
		})
		if ctx.Err() != nil {
			return
		}
		if !down {
			c.config.Logger.Warn("the control plane of the domains is unreachable; what is in force stays so",
				"server", c.config.Server, "err", err)
		}
		down = true
		if answered {
			wait = c.config.Backoff
		}
		jittered := wait - time.Duration(c.config.Jitter*rand.Float64()*float64(wait)) //nolint:gosec // no secret
		if c.config.sleep(ctx, jittered) != nil {
			return
		}
		wait = min(2*wait, c.config.MaxBackoff)
	}
}

// stream follows one stream to its end. It reports whether anything was answered on it, at which
// answers is called.
func (c *Client) stream(
	ctx context.Context,
	take func([]*domains.Domain) error,
	refused func(error),
	answers func(),
) (answered bool, err error) {
	conn, err := grpc.NewClient(
		c.config.Server, grpc.WithTransportCredentials(c.credentials),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(c.config.MaxMessageBytes)),
	)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, text := range c.config.Headers {
		ctx = metadata.AppendToOutgoingContext(ctx, name, text)
	}
	stream, err := configs.NewRateLimitConfigDiscoveryServiceClient(conn).StreamRlsConfigs(ctx)
	if err != nil {
		return false, err
	}
	if err := stream.Send(&discovery.DiscoveryRequest{Node: c.node(), TypeUrl: TypeURL}); err != nil &&
		!errors.Is(err, io.EOF) {
		return false, err
	}
	version, refusal := "", ""             // that was taken last, and why the last one was not
	var taken *discovery.DiscoveryResponse // nil where the last one was not taken
	for {
		response, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		if answered && c.config.sleep(ctx, answerGap) != nil {
			return answered, ctx.Err()
		}
		answered = true
		answers()
		reply := &discovery.DiscoveryRequest{Node: c.node(), TypeUrl: TypeURL, ResponseNonce: response.Nonce}
		if taken != nil && sameResources(taken, response) {
			version = response.VersionInfo
		} else if err := c.take(response, take); err != nil {
			const most = 4 << 10
			// What is refused may be sent again at once, and again.
			if again := refusal == err.Error(); again && c.config.sleep(ctx, refusalGap) != nil {
				return answered, ctx.Err()
			} else if !again {
				refused(err)
			}
			taken, refusal = nil, err.Error()
			reply.ErrorDetail = &rpcstatus.Status{
				Code: int32(codes.InvalidArgument), Message: clip.To(most, prefix.Trim(err.Error())),
			}
		} else {
			taken, version, refusal = response, response.VersionInfo, ""
		}
		reply.VersionInfo = version
		if err := stream.Send(reply); err != nil {
			return answered, err
		}
	}
}

// take takes an answer over.
func (c *Client) take(response *discovery.DiscoveryResponse, take func([]*domains.Domain) error) error {
	if response.TypeUrl != TypeURL {
		return stint.Invalid("type_url", clip.To(maxName, response.TypeUrl), TypeURL)
	}
	var list []*domains.Domain
	var faults []string
	for i, resource := range response.Resources {
		domain, err := decode(resource)
		if err != nil {
			faults = append(faults, fmt.Sprintf("resource %d: %s", i, prefix.Trim(err.Error())))
			continue
		}
		for _, fault := range domains.CheckAll("descriptors", domain.Descriptors) {
			faults = append(faults, domain.From+": "+fault)
		}
		list = append(list, domain)
	}
	if faults = append(faults, domains.Validate(list, c.config.MergeDomains)...); len(faults) > 0 {
		return fmt.Errorf("%w: %s", stint.ErrInvalid, strings.Join(faults, "\n"))
	}
	return take(list)
}

const (
	// answerGap is the least time between two answers: a control plane that does not wait to be heard
	// keeps nobody busy. What it has sent meanwhile waits in its connection's window.
	answerGap = 100 * time.Millisecond
	// refusalGap is the time between two refusals of the same.
	refusalGap = time.Second
)

// sameResources reports whether two answers have the same resources, as one that is repeated has.
func sameResources(a, b *discovery.DiscoveryResponse) bool {
	return a.TypeUrl == b.TypeUrl && slices.EqualFunc(a.Resources, b.Resources, func(x, y *anypb.Any) bool {
		return x.TypeUrl == y.TypeUrl && bytes.Equal(x.Value, y.Value)
	})
}

// maxName bounds what of others' names is repeated.
const maxName = 128

// node tells the management server who asks: an ID, and what it may choose the configuration by.
func (c *Client) node() *core.Node {
	node := &core.Node{Id: c.config.NodeID}
	if len(c.config.NodeMetadata) > 0 {
		node.Metadata = &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for name, text := range c.config.NodeMetadata {
			node.Metadata.Fields[name] = structpb.NewStringValue(text)
		}
	}
	return node
}
