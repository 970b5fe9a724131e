package migrate_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/memstore"
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
	limiter, err := stint.New(memstore.New(memstore.Config{}), "tokens", stint.TokenBucket(1000, stint.PerMinute(1000)))
	if err != nil {
		t.Fatal(err)
	}
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

// pipes is a network of one server.
type pipes struct{ conns chan net.Conn }

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	p.conns <- server
	return client, nil
}

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p.conns)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// A client that hangs up pays for what the model had used by then.
func TestModelHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, ask := asker(t, func(ctx context.Context, _ string) (string, int, error) {
			<-ctx.Done() // until the client hangs up
			return "", 300, ctx.Err()
		})
		network := pipes{make(chan net.Conn)}
		var asked error
		server := http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, asked = ask(r.Context(), "ann", r.FormValue("prompt"))
			}),
		}
		go func() { _ = server.Serve(network) }()
		defer func() { _ = server.Close() }()
		transport := &http.Transport{DialContext: network.dial}
		defer transport.CloseIdleConnections()

		ctx, hangUp := context.WithCancel(t.Context())
		go func() {
			synctest.Wait() // until the model is at work
			hangUp()
		}()
		target := url.URL{Scheme: "http", Host: "model", RawQuery: "prompt=is+it"}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := transport.RoundTrip(request); !errors.Is(err, context.Canceled) {
			t.Errorf("%v; want %v", err, context.Canceled)
		}
		synctest.Wait() // until the server has noticed
		if !errors.Is(asked, context.Canceled) {
			t.Errorf("the server: %v; want %v", asked, context.Canceled)
		}
		left(t, limiter, 700)
	})
}
