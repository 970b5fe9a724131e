package main

import (
	"context"
	"fmt"
	"io"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// call has words translated until the service refuses, one by one and then on a stream, and tells
// what it says.
func call(ctx context.Context, address, user string, out io.Writer) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "user", user))
	defer cancel()
	err = repeat(out, func(text, answer *wrapperspb.StringValue) error {
		return conn.Invoke(ctx, methodTranslate, text, answer)
	})
	if err != nil {
		return err
	}
	stream, err := conn.NewStream(ctx, &dictateStream, methodDictate)
	if err != nil {
		return err
	}
	return repeat(out, func(text, answer *wrapperspb.StringValue) error {
		if err := stream.SendMsg(text); err != nil {
			return stream.RecvMsg(answer) // which says why
		}
		return stream.RecvMsg(answer)
	})
}

// repeat asks until it is refused. Another failure is returned.
func repeat(out io.Writer, ask func(text, answer *wrapperspb.StringValue) error) error {
	for i := 1; ; i++ {
		answer := new(wrapperspb.StringValue)
		err := ask(wrapperspb.String(fmt.Sprintf("word %d", i)), answer)
		if err == nil {
			if _, err := fmt.Fprintln(out, answer.GetValue()); err != nil {
				return err
			}
			continue
		}
		refusal := status.Convert(err)
		if len(refusal.Details()) == 0 {
			return err
		}
		if _, err := fmt.Fprintln(out, refusal.Code()); err != nil {
			return err
		}
		return explain(out, refusal)
	}
}

// explain prints the details of a refusal: which limit it was, and how long to wait.
func explain(out io.Writer, refusal *status.Status) (err error) {
	for _, detail := range refusal.Details() {
		switch d := detail.(type) {
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				_, err = fmt.Fprintf(out, "  %s: %s\n", v.GetSubject(), v.GetDescription())
			}
		case *errdetails.RetryInfo:
			_, err = fmt.Fprintf(out, "  try again in %s\n", d.GetRetryDelay().AsDuration().Round(1e9))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
