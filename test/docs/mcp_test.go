package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/mcplimit"
)

const mcpPage = "docs/mcp.md"

func report(ctx context.Context, _ *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	cost := mcplimit.Cost(ctx)
	cost.Set(30) // rows; cost.Cancel() if nothing ran
	return new(mcp.CallToolResult), nil, nil
}

// bearer sends a token with each request.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// What the page says that models are told, by tool and user, over HTTP.
func TestTools(t *testing.T) {
	limiter, _ := byRules(t, shownRules(t, mcpPage, 0))
	verify := func(_ context.Context, token string, _ *http.Request) (*auth.TokenInfo, error) {
		user, err := verify(token)
		return &auth.TokenInfo{UserID: user, Expiration: time.Now().Add(time.Hour)}, err
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "page"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "report"}, report)
	mcp.AddTool(server, &mcp.Tool{Name: "search"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		return new(mcp.CallToolResult), nil, nil
	})
	limits := must.Get(mcplimit.New(mcplimit.Config{
		Rules:   limiter,                       // an enforce.Limiter with the rules
		Reserve: &stint.Hold{TTL: time.Minute}, // calls hold what they cost while their tool runs
	}))(t)
	server.AddReceivingMiddleware(limits.Wrap)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	authenticated := auth.RequireBearerToken(verify, nil)(handler) // the SDK's; verify returns a TokenInfo with its UserID
	listening := httptest.NewServer(authenticated)
	t.Cleanup(listening.Close)

	for _, user := range []string{"ann", "bob"} {
		session, err := mcp.NewClient(&mcp.Implementation{Name: "page"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{
			Endpoint: listening.URL, HTTPClient: &http.Client{Transport: bearer("good-" + user)},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = session.Close() })
		said := func(tool string) string {
			result := must.Get(session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}}))(t)
			var text strings.Builder
			for _, content := range result.Content {
				fmt.Fprintln(&text, content.(*mcp.TextContent).Text)
			}
			if _, has := result.Meta["retryAfterMicros"]; has != result.IsError {
				t.Errorf("%s: isError is %v, _meta %v", tool, result.IsError, result.Meta)
			}
			return text.String()
		}
		for range 3 { // three reports of 30 rows leave 10, less than one may have
			if got := said("search") + said("report"); got != "" {
				t.Errorf("%s is told %s", user, got)
			}
		}
		if got, want := said("search"), blocks(t, mcpPage, "text")[0]; got != want {
			t.Errorf("%s is told %q, want %q", user, got, want)
		}
		if got := said("report"); !strings.HasPrefix(got, "Rate limit reached") {
			t.Errorf("%s, who has 10 rows left, is told %q", user, got)
		}
	}
}
