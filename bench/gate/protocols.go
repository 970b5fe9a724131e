package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	entry "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// serviceRows are the rows of the service, and of a handler that decides nothing.
func serviceRows() []row {
	return []row{
		{"floor/bare-handler", bareHandler},
		{"rest/check/admitted", check(plenty, 200)},
		{"rest/check/denied", check(none, 429)},
		{"rest/evaluate", evaluate},
		{"envoy/callers=64", envoy},
		{"resp/throttle/pipeline=64", throttle},
	}
}

// domains is a configuration of Envoy's rate limit service. Its limit never denies.
const domains = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
`

// envoy is calls of Envoy's rate limit service, on memory.
func envoy(r *rig) (*work, error) {
	server, err := start(
		r.ctx, map[string]string{"domains.yaml": domains}, r.stint, "serve", "--store", "memory://",
		"--listen", "127.0.0.1:0", "--admin-listen", "off", "--grpc-listen", procAddr, "--envoy-config", "domains.yaml",
	)
	if err != nil {
		return nil, err
	}
	client, err := grpc.NewClient(server.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		server.stop()
		return nil, err
	}
	service := pb.NewRateLimitServiceClient(client)
	requests := make([]*pb.RateLimitRequest, 64)
	for i := range requests {
		requests[i] = &pb.RateLimitRequest{Domain: "bench", Descriptors: []*entry.RateLimitDescriptor{{
			Entries: []*entry.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(i)}},
		}}}
	}
	op := func(caller, _ int) error {
		answer, err := service.ShouldRateLimit(r.ctx, requests[caller])
		if err == nil && answer.GetOverallCode() != pb.RateLimitResponse_OK {
			err = errOtherwise
		}
		return err
	}
	stop := func() { _ = client.Close(); server.stop() }
	return &work{callers: len(requests), op: op, server: server.id(), close: stop}, nil
}

// throttle is CL.THROTTLE in pipelines of 64 commands, on memory, each of another client. An answer
// is an array of five integers: six lines.
func throttle(r *rig) (*work, error) {
	const pipeline, answerLines = 64, 6
	server, err := start(
		r.ctx, nil, r.stint, "serve", "--store", "memory://", "--listen", "127.0.0.1:0", "--admin-listen", "off",
		"--resp-listen", procAddr,
	)
	if err != nil {
		return nil, err
	}
	conns, err := dial(r, server.addr, 8)
	if err != nil {
		server.stop()
		return nil, err
	}
	var commands strings.Builder
	for i := range pipeline {
		commands.WriteString("*6\r\n$11\r\nCL.THROTTLE\r\n")
		for _, word := range []string{fmt.Sprint("user:", i), "1000000", "30", "60", "1"} {
			fmt.Fprintf(&commands, "$%d\r\n%s\r\n", len(word), word)
		}
	}
	op := func(caller, _ int) error {
		if _, err := io.WriteString(conns[caller], commands.String()); err != nil {
			return err
		}
		for range pipeline * answerLines {
			line, err := conns[caller].reader.ReadSlice('\n')
			if err != nil {
				return err
			}
			if bytes.HasPrefix(line, []byte("-")) {
				return fmt.Errorf("answered %q", line)
			}
		}
		return nil
	}
	stop := func() { conns.close(); server.stop() }
	return &work{callers: len(conns), counts: pipeline, op: op, server: server.id(), close: stop}, nil
}
