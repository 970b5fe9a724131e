package mcplimit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/enforce"
	"github.com/stint-go/stint/internal/adapt"
)

// codeLimited is HTTP's status. The protocol keeps -32020 to -32099 for itself, and asks that codes of others are
// outside of JSON-RPC's range, too (revision 2026-07-28, Error Codes).
const codeLimited = 429

// What a refused call says. Models act on it.
const (
	waitText    = "Rate limit reached: this call was not run. Wait %d s, then repeat it."
	neverText   = "This call was not run: it costs more than its rate limit ever allows. Do not repeat it. Ask for less."
	deniedText  = "This call was not run: a rule of this server denies it. Do not repeat it."
	failedText  = "This call was not run: its rate limit could not be checked. Try again later."
	invalidText = "This call was not run: its rate limit does not take what it counts by or what it costs."
)

// A refusal answers a call that is not admitted.
type refusal struct {
	result mcp.Result
	err    error
}

// refuse answers by a text, and by when the call may come again; stint.Never: no wait helps.
func refuse(c *Call, code int64, text string, wait time.Duration) *refusal {
	meta := mcp.Meta{}
	if wait != stint.Never {
		meta["retryAfterMicros"] = wait.Microseconds()
	}
	if c.Method == callTool {
		return &refusal{result: &mcp.CallToolResult{
			Meta: meta, IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: text}},
		}}
	}
	fault := &jsonrpc.Error{Code: code, Message: text}
	if len(meta) > 0 {
		fault.Data, _ = json.Marshal(meta) // a number can always be written
	}
	return &refusal{err: fault}
}

// deny answers a call that is denied.
func (m *Middleware) deny(ctx context.Context, c *Call, v *enforce.Verdict) *refusal {
	if m.config.Denied != nil {
		if result, err := m.config.Denied(ctx, c, v); result != nil || err != nil {
			return &refusal{result, err}
		}
	}
	wait, text := v.Decision.RetryAfter, deniedText
	if v.Claim.Policy != nil {
		wait = headersOf(v.Claim.Policy).RetryAfter(v.Decision, v.Each)
	}
	switch {
	case wait != stint.Never:
		text = fmt.Sprintf(waitText, adapt.Seconds(wait))
	case v.Reason() == stint.ReasonNever:
		text = neverText
	}
	return refuse(c, codeLimited, text, wait)
}

// fail tells of a call that was not decided, and answers it.
func (m *Middleware) fail(ctx context.Context, c *Call, err error) *refusal {
	if m.config.Failed != nil {
		m.config.Failed(ctx, c, err)
	}
	if fault, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return &refusal{err: fault}
	}
	if errors.Is(err, stint.ErrInvalid) { // what came may be a secret
		return refuse(c, jsonrpc.CodeInvalidParams, invalidText, stint.Never)
	}
	return refuse(c, jsonrpc.CodeInternalError, failedText, stint.Never)
}
