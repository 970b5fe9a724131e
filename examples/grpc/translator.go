package main

import (
	"context"
	"errors"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The translator's methods, one unary and one a stream in both directions. It is described by hand
// rather than by generated code, since its messages are protobuf's own strings.
const (
	translatorName  = "examples.Translator"
	methodTranslate = "/" + translatorName + "/Translate"
	methodDictate   = "/" + translatorName + "/Dictate"
)

var dictateStream = grpc.StreamDesc{StreamName: "Dictate", ServerStreams: true, ClientStreams: true, Handler: dictate}

// translator describes the service, as protoc-gen-go-grpc would generate it from a .proto file.
func translator() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: translatorName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Translate", Handler: translate}},
		Streams:     []grpc.StreamDesc{dictateStream},
	}
}

// upper is the only language that the translator knows.
func upper(text *wrapperspb.StringValue) *wrapperspb.StringValue {
	return wrapperspb.String(strings.ToUpper(text.GetValue()))
}

func translate(
	_ any, ctx context.Context, decode func(any) error, //nolint:revive // grpc-go's order
	interceptor grpc.UnaryServerInterceptor,
) (any, error) {
	text := new(wrapperspb.StringValue)
	if err := decode(text); err != nil {
		return nil, err
	}
	handle := func(_ context.Context, request any) (any, error) {
		text, ok := request.(*wrapperspb.StringValue)
		if !ok {
			return nil, errors.ErrUnsupported
		}
		return upper(text), nil
	}
	if interceptor == nil {
		return handle(ctx, text)
	}
	return interceptor(ctx, text, &grpc.UnaryServerInfo{FullMethod: methodTranslate}, handle)
}

// dictate translates each message until the client ends the stream.
func dictate(_ any, stream grpc.ServerStream) error {
	for {
		text := new(wrapperspb.StringValue)
		if err := stream.RecvMsg(text); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := stream.SendMsg(upper(text)); err != nil {
			return err
		}
	}
}
