package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// call calls each tool until it is denied, and prints what a model reads.
func call(ctx context.Context, address, user string, out io.Writer) (err error) {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "caller", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{
			Endpoint: "http://" + address, HTTPClient: &http.Client{Transport: bearer("good-" + user)},
		}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for _, tool := range []string{"search", "report"} {
		for denied := false; !denied; {
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: words{"stint"}})
			if err != nil {
				return err
			}
			denied = result.IsError
			for _, content := range result.Content {
				if text, ok := content.(*mcp.TextContent); ok {
					if _, err := fmt.Fprintln(out, text.Text); err != nil {
						return err
					}
				}
			}
			if wait, ok := result.Meta["retryAfterMicros"]; ok {
				if _, err := fmt.Fprintf(out, "  retryAfterMicros: %.0f\n", wait); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
