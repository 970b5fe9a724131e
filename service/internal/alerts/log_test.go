package alerts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/service/internal/alerts"
)

// secretURL is a receiver's address of which only https://hooks.example.com may be logged.
const secretURL = "https://ann:hunter2@hooks.example.com/services/T0/hush?token=quiet"

// logged are the lines of a log without their times, after a look for the secrets of secretURL.
func logged(t *testing.T, log *bytes.Buffer) []string {
	t.Helper()
	text := regexp.MustCompile(`(?m)^time=\S+ `).ReplaceAllString(log.String(), "")
	if secret := regexp.MustCompile(`ann|hunter2|services|T0|hush|quiet`).FindString(text); secret != "" {
		t.Errorf("the log shows %q:\n%s", secret, text)
	}
	return strings.Split(strings.TrimSpace(text), "\n")
}

func expectLines(t *testing.T, log *bytes.Buffer, want ...string) {
	t.Helper()
	if got := logged(t, log); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

const (
	startLine = `level=INFO msg="alerts are sent" receiver=https://hooks.example.com`
	againLine = `level=INFO msg="alerts are sent again" receiver=https://hooks.example.com`
	failLine  = `level=WARN msg="alerts can't be sent: they are tried again" receiver=https://hooks.example.com err=`
)

// TestFailureIsLogged: the first failed attempt after a success is logged with its cause, and the first success after it.
func TestFailureIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		config := alerts.Config{URL: secretURL, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		r, sender, stop := receiving(t, config, 403, 403, 500, 204, 204, 0, 204)
		for _, client := range []string{"a", "b", "c"} {
			sender.Observe(t.Context(), denied(client))
			<-time.After(time.Minute)
		}
		stop()
		if len(r.attempts) != 7 {
			t.Errorf("%d attempts", len(r.attempts))
		}
		expectLines(t, &log, startLine, failLine+`"the receiver answered 403 Forbidden"`, againLine, failLine+`"no answer within 5s"`, againLine)
	})
}

// A failing transport fails each request for its own reason.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// A redirecting transport answers by an address that is none and that repeats the request's.
type redirecting struct{}

func (redirecting) RoundTrip(request *http.Request) (*http.Response, error) {
	header := http.Header{"Location": {"https://hooks.example.com:x" + request.URL.RequestURI()}}
	return &http.Response{StatusCode: http.StatusFound, Status: "302 " + request.URL.Path, Header: header, Body: io.NopCloser(strings.NewReader("")), Request: request}, nil
}

// TestFailureWithoutSecrets: whatever the cause of a failure says, the log has nothing of the address but its scheme and host.
func TestFailureWithoutSecrets(t *testing.T) {
	for _, test := range []struct {
		transport http.RoundTripper
		cause     string
	}{
		{failing{errors.New("connection refused")}, `"connection refused"`},
		{failing{errors.New("no route to " + secretURL)}, `"the request failed"`},
		{failing{errors.New("bad token=quiet")}, `"the request failed"`},
		{redirecting{}, `"the request failed"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			sender, stop := start(t, alerts.Config{URL: secretURL, Client: &http.Client{Transport: test.transport}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			sender.Observe(t.Context(), denied("a"))
			<-time.After(2 * time.Second)
			stop()
			expectLines(t, &log, startLine, failLine+test.cause, `level=WARN msg="alerts were lost: the receiver did not confirm them" events=1 err=`+test.cause)
		})
	}
}

// TestLostAreLogged: alerts that found the queue full are logged at once, then each minute, then at the end, and no line counts
// what another one did.
func TestLostAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		_, sender, stop := receiving(t, alerts.Config{
			URL: secretURL, MaxQueue: 3, MaxBatch: 1, MaxTries: 100, Linger: 2 * time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
		}, 403)
		clients := 0
		notify := func(n int) {
			for range n {
				clients++
				sender.Observe(t.Context(), denied(fmt.Sprint(clients)))
			}
		}
		notify(1)
		synctest.Wait() // it is under way
		notify(3 + 19)
		<-time.After(time.Minute + time.Second)
		notify(5)
		<-time.After(3 * time.Minute)
		notify(2)
		stop()
		const lost = `level=WARN msg="alerts are lost: too many wait for their receiver" kind=denied lost=%d waiting=3`
		const unconfirmed = `level=WARN msg="alerts were lost: the receiver did not confirm them" events=%d err="the receiver answered 403 Forbidden"`
		expectLines(
			t, &log, startLine, failLine+`"the receiver answered 403 Forbidden"`, fmt.Sprintf(lost, 1), fmt.Sprintf(lost, 18), fmt.Sprintf(lost, 5),
			fmt.Sprintf(lost, 1), fmt.Sprintf(unconfirmed, 1), fmt.Sprintf(unconfirmed, 3), fmt.Sprintf(lost, 1),
		)
		if s := sender.Stats(); s.OverflowedDenied != 26 || s.Failed != 4 {
			t.Errorf("stats %+v", s)
		}
	})
}

// TestEndIsLogged: what the end drops has a cause, even if the receiver has not failed.
func TestEndIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		config := alerts.Config{URL: secretURL, MaxBatch: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		_, sender, stop := receiving(t, config, 0)
		sender.Observe(t.Context(), denied("a"))
		sender.Observe(t.Context(), denied("b"))
		synctest.Wait()
		stop()
		const line = `level=WARN msg="alerts were lost: the receiver did not confirm them" events=1 err="stopped before the receiver answered"`
		expectLines(t, &log, startLine, line, line)
	})
	var log bytes.Buffer
	sender := must.Get(alerts.New(alerts.Config{URL: secretURL, Logger: slog.New(slog.NewTextHandler(&log, nil))}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	sender.Run(ctx)
	expectLines(t, &log, startLine)
}
