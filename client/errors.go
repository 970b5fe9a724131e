package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/internal/apipath"
	"github.com/stint-go/stint/internal/clip"
)

// refused makes an error of what the service says against a request. Only what the service says
// itself, as a problem document (RFC 9457), is told apart:
//
//   - a hold's fault by the problem's type;
//   - 400 and 413 are the caller's fault, stint.ErrInvalid;
//   - 503 for reduced capacity is stint.ErrOverloaded: nothing was taken;
//   - all else, such as 401 or 500, is stint.ErrUnavailable, with the problem.
func (c *Client) refused(status int, problem *api.Problem) error {
	problem.Status = status // which is what the problem travelled with
	problem.Title, problem.Detail = clip.To(maxClip, problem.Title), clip.To(maxClip, problem.Detail)
	switch {
	case holdErrors[problem.Type] != nil:
		return fmt.Errorf("%w: %w", holdErrors[problem.Type], problem)
	case status == http.StatusBadRequest, status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", stint.ErrInvalid, problem)
	case status == http.StatusServiceUnavailable && problem.Type == apipath.ProblemReducedCapacity:
		return fmt.Errorf("%w: asking %s: %w", stint.ErrOverloaded, c.base.Redacted(), problem)
	default:
		return c.unavailable(problem)
	}
}

// noAnswer is the error of a request that was not answered: the caller's context has ended, or the
// service is unreachable or silent. bounded is the context with the client's own timeout.
func (c *Client) noAnswer(ctx, bounded context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done() // a dialler's own timer may be a moment ahead
	}
	ended := ctx.Err()
	switch {
	case ended != nil && errors.Is(context.Cause(ctx), errSilent): // an operation's Timeout
		return c.unavailable(errSilent)
	case ended != nil:
		return fmt.Errorf("stint: asking %s: %w", c.base.Redacted(), ended)
	case bounded.Err() != nil:
		return c.unavailable(fmt.Errorf("%w, %s", errSilent, c.timeout))
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// A transport's own context is none that the caller knows.
		return c.unavailable(errors.New(withoutURL(err).Error()))
	default:
		return c.unavailable(withoutURL(err))
	}
}

// notStint is the error of an answer that no stint service gives.
func (c *Client) notStint(what string) error {
	return c.unavailable(fmt.Errorf("it does not answer like stint: %s", what))
}

// unavailable names the service, without the password that its URL may have.
func (c *Client) unavailable(err error) error {
	return fmt.Errorf("%w: asking %s: %w", stint.ErrUnavailable, c.base.Redacted(), err)
}

// withoutURL takes off what repeats the URL, which holds the key.
func withoutURL(err error) error {
	var known *url.Error
	if errors.As(err, &known) {
		return known.Err
	}
	return err
}
