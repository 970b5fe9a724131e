package listen

import (
	"context"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"
	protobuf "google.golang.org/protobuf/proto"

	"github.com/stint-go/stint/internal/prefix"
)

// reflectionCost is how much work a question about the service's messages is: the answer has them all. By default
// one for each processor is under way at most.
const reflectionCost = 1024

// mostPooled is how long an answer is whose buffer comes from grpc-go's pool: longer ones would get 1 MiB each.
const mostPooled = 32 << 10

// A guardedServer registers services so that refused calls end before their messages come, and answers count as held
// until they are sent. A refusal by the tap would be cheaper, but grpc-go keeps the timer of such a call's
// grpc-timeout until that has passed.
type guardedServer struct {
	*grpc.Server
	// enter waits until the work of a request may begin.
	enter func(ctx context.Context, cost int64) (leave func(), err error)
}

// RegisterService implements [grpc.ServiceRegistrar].
func (s guardedServer) RegisterService(d *grpc.ServiceDesc, service any) {
	guarded := *d
	guarded.Methods, guarded.Streams = nil, nil
	for _, m := range d.Methods {
		m.Handler = guardMethod(m.Handler)
		guarded.Methods = append(guarded.Methods, m)
	}
	for _, m := range d.Streams {
		var enter func(context.Context, int64) (func(), error)
		switch d.ServiceName {
		case reflectionpb.ServerReflection_ServiceDesc.ServiceName, reflectionalpha.ServerReflection_ServiceDesc.ServiceName:
			enter = s.enter
		default:
		}
		m.Handler = guardStream(m.Handler, enter)
		guarded.Streams = append(guarded.Streams, m)
	}
	s.Server.RegisterService(&guarded, service)
}

func guardMethod(handle grpc.MethodHandler) grpc.MethodHandler {
	return func(
		service any, ctx context.Context, decode func(any) error,
		around grpc.UnaryServerInterceptor,
	) (any, error) {
		c, _ := ctx.Value(callKey{}).(*call)
		c.begin()
		defer c.done()
		reply, err := handle(service, ctx, decode, around)
		if err != nil {
			return nil, c.explained(err)
		}
		c.reply = reply
		return c, nil
	}
}

func guardStream(
	handle grpc.StreamHandler, enter func(context.Context, int64) (func(), error),
) grpc.StreamHandler {
	return func(service any, stream grpc.ServerStream) error {
		c, _ := stream.Context().Value(callKey{}).(*call)
		if err := c.refused(); err != nil {
			return err
		}
		c.begin()
		defer c.done()
		guarded := &guardedStream{ServerStream: stream, call: c, enter: enter}
		defer guarded.rest()
		return c.explained(handle(service, guarded))
	}
}

// A guardedStream counts what is sent on it as held.
type guardedStream struct {
	grpc.ServerStream
	call *call
	// enter, unless it is nil, is called for each message that comes; leave ends the work for the last one.
	enter func(context.Context, int64) (leave func(), err error)
	leave func()
}

// An outgoing is a message for a stream.
type outgoing struct {
	message any
	from    *rpcAddr
}

// SendMsg implements [grpc.ServerStream].
func (s *guardedStream) SendMsg(m any) error {
	s.rest() // it may wait for the client
	return s.ServerStream.SendMsg(&outgoing{m, s.call.from})
}

// RecvMsg implements [grpc.ServerStream].
func (s *guardedStream) RecvMsg(m any) error {
	s.rest()
	err := s.ServerStream.RecvMsg(m)
	if err != nil {
		return err
	}
	s.call.ended()
	if s.enter != nil {
		if s.leave, err = s.enter(s.Context(), reflectionCost); err != nil {
			return status.Error(codes.ResourceExhausted, prefix.Trim(err.Error()))
		}
	}
	return nil
}

// rest ends the work for a message.
func (s *guardedStream) rest() {
	if s.leave != nil {
		s.leave()
		s.leave = nil
	}
}

// A message is what came for a request of the rate limit service.
type message struct {
	request pb.RateLimitRequest
	err     error // why it is none
}

// A codec is that of protobuf, but for a [message]: grpc-go would call it the server's fault, INTERNAL,
// if that is none. What it writes counts as held for its connection.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, to any) error {
	m, ok := to.(*message)
	if !ok {
		return c.CodecV2.Unmarshal(data, to)
	}
	m.err = c.CodecV2.Unmarshal(data, &m.request)
	return nil
}

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	var from *rpcAddr
	switch m := v.(type) {
	case *call:
		v, from = m.reply, m.from
		m.reply = nil // the call is kept until the answer is sent
	case *outgoing:
		v, from = m.message, m.from
	default:
	}
	m, ok := v.(protobuf.Message)
	if !ok || from == nil || from.frames == nil {
		return c.CodecV2.Marshal(v)
	}
	size := protobuf.Size(m)
	marshal := protobuf.MarshalOptions{UseCachedSize: true} // it was computed just now
	if mem.IsBelowBufferPoolingThreshold(size) || size > mostPooled {
		data, err := marshal.Marshal(m)
		from.frames.streams.answered(size)
		return mem.BufferSlice{mem.SliceBuffer(data)}, err
	}
	pool := mem.DefaultBufferPool()
	buffer := pool.Get(size)
	if _, err := marshal.MarshalAppend((*buffer)[:0], m); err != nil {
		pool.Put(buffer)
		return nil, err
	}
	from.frames.streams.answered(size)
	return mem.BufferSlice{mem.NewBuffer(buffer, pool)}, nil
}
