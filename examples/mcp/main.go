// Command mcp is a server of the Model Context Protocol with limits by rules: by tool, by session and by user. Run it
// from the module's root:
//
//	go run ./examples/mcp
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/mcplimit"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "mcp:", err)
		os.Exit(1)
	}
}

// run serves until ctx is done, or calls a server that runs.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("mcp", flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:8083", "`HOST:PORT` to listen on, or to call")
	path := flags.String("rules", "examples/mcp/rules.yaml", "`PATH` of the rules")
	user := flags.String("call", "", "call the tools as this `USER` until they are denied")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *user != "" {
		return call(ctx, *address, *user, out)
	}
	return serve(ctx, *address, *path, out)
}

// serve puts the rules of a file before the tools, by a receiving middleware.
func serve(ctx context.Context, address, path string, out io.Writer) error {
	set, err := file.ReadSet(path, rules.Options{})
	if err != nil {
		return err
	}
	limiter, err := enforce.New(enforce.Config{Store: memstore.New(memstore.Config{}), Set: set})
	if err != nil {
		return err
	}
	limits, err := mcplimit.New(mcplimit.Config{Rules: limiter, Reserve: &stint.Hold{TTL: time.Minute}})
	if err != nil {
		return err
	}
	tools := mcp.NewServer(&mcp.Implementation{Name: "examples/mcp", Version: "1"}, nil)
	mcp.AddTool(tools, &mcp.Tool{Name: "search", Description: "find a word"}, search)
	mcp.AddTool(tools, &mcp.Tool{Name: "report", Description: "make a report"}, report)
	tools.AddReceivingMiddleware(limits.Wrap)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return tools }, nil)

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "listening on %s, %d rules\n", listener.Addr(), set.Len()); err != nil {
		return err
	}
	server := &http.Server{
		Handler:           auth.RequireBearerToken(verify, nil)(handler),
		ReadHeaderTimeout: time.Minute,
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return limits.Drain(ending)
}

// verify stands for what checks tokens, such as a library for JWT: here a token is "good-" and the user.
func verify(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
	user, ok := strings.CutPrefix(token, "good-")
	if !ok {
		return nil, auth.ErrInvalidToken
	}
	return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour)}, nil
}

type words struct {
	Word string `json:"word"`
}

// search is a tool that answers at once.
func search(_ context.Context, _ *mcp.CallToolRequest, in words) (*mcp.CallToolResult, any, error) {
	return text("found " + in.Word), nil, nil
}

// report is a tool whose cost is known when it is done.
func report(ctx context.Context, _ *mcp.CallToolRequest, _ words) (*mcp.CallToolResult, any, error) {
	const rows = 30
	mcplimit.Cost(ctx).Set(rows)
	return text(fmt.Sprintf("a report of %d rows", rows)), nil, nil
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
