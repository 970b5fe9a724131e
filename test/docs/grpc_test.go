package docs_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/rules"
)

const grpcPage = "docs/grpc.md"

// verify stands for the library that checks tokens: here a token is "good " and the user.
func verify(token string) (string, error) {
	user, ok := strings.CutPrefix(token, "good-")
	if !ok {
		return "", errors.New("a bad signature")
	}
	return user, nil
}

//nolint:containedctx // it is what a stream has
type userStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s userStream) Context() context.Context { return s.ctx }

type userKey struct{} // of a context

func authenticated(ctx context.Context) (context.Context, error) {
	for _, field := range metadata.ValueFromIncomingContext(ctx, "authorization") {
		if token, ok := strings.CutPrefix(field, "Bearer "); ok {
			if user, err := verify(token); err == nil {
				return context.WithValue(ctx, userKey{}, user), nil
			}
		}
	}
	return nil, status.Error(codes.Unauthenticated, "no valid token")
}

func authenticateCall(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := authenticated(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, request)
}

func authenticateStream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, err := authenticated(stream.Context())
	if err != nil {
		return err
	}
	return handler(server, userStream{stream, ctx}) // a grpc.ServerStream whose Context returns ctx
}

func certified(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return info.State.VerifiedChains[0][0].Subject.CommonName
		}
	}
	return ""
}

const lend, follow = "/library.v1.Books/Lend", "/library.v1.Books/Follow"

var followStream = grpc.StreamDesc{StreamName: "Follow", ServerStreams: true, ClientStreams: true, Handler: followBooks}

// followBooks answers each message, and takes any error for the end of the stream.
func followBooks(_ any, stream grpc.ServerStream) error {
	for {
		if err := stream.RecvMsg(new(emptypb.Empty)); err != nil {
			return nil //nolint:nilerr // as a careless handler does
		}
		if err := stream.SendMsg(new(emptypb.Empty)); err != nil {
			return err
		}
	}
}

func lendBook(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // grpc-go's order
	request := new(emptypb.Empty)
	if err := decode(request); err != nil {
		return nil, err
	}
	return interceptor(ctx, request, &grpc.UnaryServerInfo{FullMethod: lend}, func(context.Context, any) (any, error) { return new(emptypb.Empty), nil })
}

// serveBooks serves the page's service with options, and connects to it.
func serveBooks(t *testing.T, secure credentials.TransportCredentials, dial []grpc.DialOption, options ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener := must.Get(new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	server := grpc.NewServer(options...)
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "library.v1.Books", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Lend", Handler: lendBook}}, Streams: []grpc.StreamDesc{followStream},
	}, nil)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn := must.Get(grpc.NewClient(listener.Addr().String(), append(dial, grpc.WithTransportCredentials(secure))...))(t)
	t.Cleanup(func() {
		server.Stop()
		if err := errors.Join(<-served, conn.Close()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// libraryLimits are the page's options of a server.
func libraryLimits(t *testing.T) []grpc.ServerOption {
	t.Helper()
	limiter, _ := byRules(t, shownRules(t, grpcPage, 0))
	perAddress := must.Get(stint.New(stillStore(), "addresses", stint.TokenBucket(16, stint.PerMinute(1))))(t)
	limits := must.Get(grpclimit.New(grpclimit.Config{
		Rules: limiter, // an enforce.Limiter with the rules
		Describe: func(ctx context.Context, _ string, r *rules.Request) error {
			r.User, _ = ctx.Value(userKey{}).(string) // by the interceptor that authenticates
			return nil
		},
		Messages: true, // each message that a client sends on a stream is decided, too
	}))(t)
	addresses := must.Get(grpclimit.New(grpclimit.Config{Limiter: perAddress, NoMetadata: true}))(t)
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(addresses.UnaryServerInterceptor(), authenticateCall, limits.UnaryServerInterceptor()),
		grpc.ChainStreamInterceptor(addresses.StreamServerInterceptor(), authenticateStream, limits.StreamServerInterceptor()),
	}
	return options
}

// told is what a denied client can read, a fact a line.
func told(err error, trailer metadata.MD) string {
	refusal := status.Convert(err)
	lines := []string{fmt.Sprintf("code = %s desc = %s", refusal.Code(), refusal.Message())}
	for _, detail := range refusal.Details() {
		switch d := detail.(type) {
		case *errdetails.QuotaFailure:
			lines = append(lines, d.GetViolations()[0].GetSubject()+": "+d.GetViolations()[0].GetDescription())
		case *errdetails.RetryInfo:
			lines = append(lines, "try again in "+d.GetRetryDelay().AsDuration().String())
		}
	}
	for _, value := range trailer.Get("retry-after") {
		lines = append(lines, "retry-after: "+value)
	}
	return strings.Join(lines, "\n") + "\n"
}

// What the page says that clients see, by method and user.
func TestLibrary(t *testing.T) {
	conn := serveBooks(t, insecure.NewCredentials(), nil, libraryLimits(t)...)
	as := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
	}
	var header, trailer metadata.MD
	call := func(token string) error {
		header, trailer = nil, nil
		return conn.Invoke(as(token), lend, new(emptypb.Empty), new(emptypb.Empty), grpc.Header(&header), grpc.Trailer(&trailer))
	}
	for left := 2; left >= 0; left-- {
		if err := call("good-ann"); err != nil || header.Get("x-ratelimit-remaining")[0] != fmt.Sprint(left) || header.Get("x-ratelimit-limit")[0] != "3" {
			t.Errorf("%v, header %v; want %d left", err, header, left)
		}
	}
	if got, want := told(call("good-ann"), trailer), blocks(t, grpcPage, "text")[0]; got != want || len(header) > 1 || trailer.Get("x-ratelimit-remaining")[0] != "0" {
		t.Errorf("ann is told\n%s, header %v, trailer %v; want\n%s", got, header, trailer, want)
	}
	if err := call("good-bob"); err != nil {
		t.Errorf("bob: %v", err)
	}

	// A stream has five messages, its start among them; another method has limits of its own.
	stream := must.Get(conn.NewStream(as("good-ann"), &followStream, follow))(t)
	for range 4 {
		must.Do(t, errors.Join(stream.SendMsg(new(emptypb.Empty)), stream.RecvMsg(new(emptypb.Empty))))
	}
	must.Do(t, stream.SendMsg(new(emptypb.Empty)))
	if got := told(stream.RecvMsg(new(emptypb.Empty)), stream.Trailer()); !strings.Contains(got, "rule:follow/messages") || !strings.Contains(got, "retry-after: 60") {
		t.Errorf("the stream ends with\n%s", got)
	}

	// Of an address 16 calls are looked at, with wrong tokens, too: six were made.
	for range 10 {
		if err := call("forged"); status.Code(err) != codes.Unauthenticated {
			t.Error(err)
		}
	}
	if got := told(call("forged"), trailer); !strings.Contains(got, "limit:addresses") || trailer.Get("x-ratelimit-limit") != nil {
		t.Errorf("a client that guesses tokens is told\n%s, %v", got, trailer)
	}
}

// Without the interceptor that authenticates, a call without a user is UNAUTHENTICATED where the rule says so.
func TestLibraryWithoutUser(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, grpcPage, 0))
	limits := must.Get(grpclimit.New(grpclimit.Config{Rules: limiter}))(t)
	conn := serveBooks(t, insecure.NewCredentials(), nil, grpc.UnaryInterceptor(limits.UnaryServerInterceptor()), grpc.StreamInterceptor(limits.StreamServerInterceptor()))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-user", "ann")
	if got := told(conn.Invoke(ctx, lend, new(emptypb.Empty), new(emptypb.Empty)), nil); !strings.HasPrefix(got, "code = Unauthenticated") || !strings.Contains(got, "rule:lend") {
		t.Errorf("a call without a user is told\n%s", got)
	}
	stream, err := conn.NewStream(ctx, &followStream, follow)
	if err == nil {
		err = stream.RecvMsg(new(emptypb.Empty))
	}
	if got := told(err, nil); !strings.HasPrefix(got, "code = ResourceExhausted") {
		t.Errorf("a stream without a user is told\n%s", got)
	}
}

// A user is who its certificate says.
func TestLibraryByCertificate(t *testing.T) {
	authority := testredis.NewAuthority(t)
	trusted := x509.NewCertPool()
	text, err := os.ReadFile(authority.CAFile)
	if err != nil || !trusted.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	certificate := func(name string) []tls.Certificate {
		pair := must.Get(tls.LoadX509KeyPair(authority.Issue(t, name)))(t)
		return []tls.Certificate{pair}
	}
	limiter, _ := byRules(t, shownRules(t, grpcPage, 0))
	var seen []string
	limits := must.Get(grpclimit.New(grpclimit.Config{
		Rules: limiter,
		Describe: func(ctx context.Context, _ string, r *rules.Request) error {
			r.User = certified(ctx)
			seen = append(seen, r.User)
			return nil
		},
	}))(t)
	conn := serveBooks(t, credentials.NewTLS(&tls.Config{Certificates: certificate("ann"), RootCAs: trusted, MinVersion: tls.VersionTLS12}), nil,
		grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: certificate("localhost"), ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
		})), grpc.UnaryInterceptor(limits.UnaryServerInterceptor()))
	for i := range 4 {
		err := conn.Invoke(t.Context(), lend, new(emptypb.Empty), new(emptypb.Empty))
		if (err == nil) != (i < 3) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if fmt.Sprint(seen) != "[ann ann ann ann]" {
		t.Errorf("the users are %q", seen)
	}
}

// The page's client makes a denied call again when it may.
func TestClientThatWaits(t *testing.T) {
	pace := func(limit stint.Limit) *stint.Limiter {
		limiter := must.Get(stint.New(newStore(), "pace", limit))(t)
		return limiter
	}
	denied := 0
	limits := must.Get(grpclimit.New(grpclimit.Config{Limiter: pace(stint.TokenBucket(1, stint.PerSecond(20)))}))(t)
	count := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		answer, err := limits.UnaryServerInterceptor()(ctx, request, info, handler)
		if err != nil {
			denied++
		}
		return answer, err
	}
	ownPace := pace(stint.TokenBucket(1000, stint.PerSecond(1000)))
	waits := must.Get(grpclimit.NewClient(grpclimit.ClientConfig{Limiter: ownPace, Retries: 3, MaxWait: time.Minute}))(t)
	dial := []grpc.DialOption{
		grpc.WithUnaryInterceptor(waits.UnaryClientInterceptor()),
		grpc.WithStreamInterceptor(waits.StreamClientInterceptor()),
	}
	conn := serveBooks(t, insecure.NewCredentials(), dial, grpc.UnaryInterceptor(count))
	for denied == 0 { // until the client is faster than the limit
		for range 5 {
			if err := conn.Invoke(t.Context(), lend, new(emptypb.Empty), new(emptypb.Empty)); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	}
}
