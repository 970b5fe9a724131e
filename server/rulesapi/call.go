package rulesapi

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/stint-go/stint/api"
)

// A Caller is who sent a request.
type Caller struct {
	// Name is who it is, such as a token's name.
	Name string
	// From is the address that the request came from.
	From string
	// SeesKeys says that API keys in overrides are shown as they are. Default: false, they appear as
	// their SHA-256, as in the keys of states.
	SeesKeys bool
}

// Serve carries the call out and answers the request, unless it returns an error: a
// [*Refusal], or one that wraps stint.ErrInvalid or stint.ErrUnavailable. A call that
// changes something is recorded, whatever came of it; of others the log says what went wrong inside.
func (c *Call) Serve(w http.ResponseWriter, r *http.Request, caller Caller) error {
	c.w, c.r, c.caller = w, r, caller
	var err error
	if c.query, err = parseQuery(r.URL.RawQuery); err == nil {
		err = c.serve(c)
	}
	if c.release != nil {
		c.release()
	}
	if c.Changes {
		c.note(err)
	} else if cause := hidden(err); cause != nil {
		c.report(err, cause)
	}
	return err
}

// report writes to the log why a call failed that changes nothing, but not each time where the rules
// could not be asked for.
func (c *Call) report(err, cause error) {
	attributes := []slog.Attr{
		slog.String("who", c.caller.Name), slog.String("action", c.Action), slog.String("rule", clip(c.Rule)), errorAttr(cause),
	}
	if statusOf(err) == http.StatusServiceUnavailable {
		leftOut, ok := c.api.absence.Admit()
		if !ok {
			return
		}
		if leftOut > 0 {
			attributes = append(attributes, slog.Int64("left_out", leftOut))
		}
	}
	c.api.config.Logger.LogAttrs(c.r.Context(), slog.LevelError, "a request failed", attributes...)
}

// answer writes a document, with the status 200.
func (c *Call) answer(v any) error {
	text, err := marshal(v)
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, text)
}

// write writes a document that is JSON already.
func (c *Call) write(status int, text []byte) error {
	header := c.w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(text)))
	c.w.WriteHeader(status)
	if c.r.Method != http.MethodHead {
		_, _ = c.w.Write(text) // a client that is gone has no use for the error
	}
	return nil
}

// empty answers without a body.
func (c *Call) empty(status int) error {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(status)
	return nil
}

// show answers with something that has an ETag, unless the caller has it already.
func (c *Call) show(version int64, tag string, text func() ([]byte, error)) error {
	header := c.w.Header()
	header.Set("Etag", tag)
	header.Set(api.HeaderVersion, strconv.FormatInt(version, 10))
	known, err := tagsOf(c.r.Header, ifNoneMatch)
	if err != nil {
		return err
	}
	if known.has(tag) {
		return c.empty(http.StatusNotModified)
	}
	body, err := text()
	if err != nil {
		return err
	}
	return c.write(http.StatusOK, body)
}

// statusOf is the status of a refusal, 0 of another error.
func statusOf(err error) int {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Status
	}
	return 0
}
