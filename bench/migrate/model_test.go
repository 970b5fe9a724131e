package migrate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
)

var errBusy = errors.New("over the limit")

// complete is a model that always uses 1,050 tokens.
func complete(context.Context, string) (string, int, error) { return "yes", 1050, nil }

// A model answers a prompt, and says how many tokens it used, also if it fails.
type model func(ctx context.Context, prompt string) (answer string, tokens int, err error)

// asker has a model answer users, at 1,000 tokens a minute each.
func asker(t *testing.T, complete model) (*stint.Limiter, func(ctx context.Context, user, prompt string) (string, error)) {
	t.Helper()
	estimate := int64(200)
	limiter := must.Get(stint.New(newStore(), "tokens", stint.TokenBucket(1000, stint.PerMinute(1000))))(t)
	ask := func(ctx context.Context, user, prompt string) (string, error) {
		decision, err := limiter.AllowN(ctx, user, estimate)
		if err != nil || !decision.Allowed {
			return "", errors.Join(err, errBusy)
		}
		answer, tokens, err := complete(ctx, prompt) // also if it fails, tokens is what was used
		// The context of a request ends when the client hangs up. It is settled then, too.
		_, failed := limiter.Settle(context.WithoutCancel(ctx), user, int64(tokens)-estimate) // refunds what is negative
		return answer, errors.Join(err, failed)
	}
	return limiter, ask
}

// left fails unless ann has so many tokens left.
func left(t *testing.T, limiter *stint.Limiter, want int64) {
	t.Helper()
	if d, err := limiter.Peek(t.Context(), "ann"); err != nil || d.Remaining != want {
		t.Errorf("%v, %v; want %d left", d, err, want)
	}
}

func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ask := asker(t, complete)
		if answer, err := ask(t.Context(), "ann", "is it?"); answer != "yes" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		if _, err := ask(t.Context(), "ann", "is it?"); !errors.Is(err, errBusy) {
			t.Errorf("%v; want %v", err, errBusy)
		}
		//nolint:forbidigo // in a synctest bubble
		time.Sleep(15 * time.Second) // 50 tokens of debt and 200 to spend, at 1,000 a minute
		if _, err := ask(t.Context(), "ann", "is it?"); err != nil {
			t.Error(err)
		}
	})
}

// A model that fails before it uses any token is free.
func TestModelFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errModel := errors.New("no such model")
		limiter, ask := asker(t, func(context.Context, string) (string, int, error) { return "", 0, errModel })
		if _, err := ask(t.Context(), "ann", "is it?"); !errors.Is(err, errModel) {
			t.Errorf("%v; want %v", err, errModel)
		}
		left(t, limiter, 1000)
	})
}

// A client that hangs up pays for what the model had used by then.
func TestModelHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, hangUp := context.WithCancel(t.Context())
		limiter, ask := asker(t, func(ctx context.Context, _ string) (string, int, error) {
			hangUp()
			return "", 300, ctx.Err()
		})
		if _, err := ask(ctx, "ann", "is it?"); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want %v", err, context.Canceled)
		}
		left(t, limiter, 700)
	})
}
