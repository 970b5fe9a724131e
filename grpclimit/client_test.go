package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/grpclimit"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/memstore"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/storetest"
)

func newClient(t testing.TB, config grpclimit.ClientConfig) *grpclimit.Client {
	t.Helper()
	return must.Get(grpclimit.NewClient(config))(t)
}

// bubbled makes a client whose limiter goes by the clock of the bubble. Its calls
// are charged by method, since there is no connection.
func bubbled(t testing.TB, config grpclimit.ClientConfig, limits ...stint.Limit) *grpclimit.Client {
	t.Helper()
	config.Limiter = limiterOn(t, memstore.New(memstore.Config{}), limits...)
	config.Key = func(_ context.Context, _, method string) (string, error) { return method, nil }
	return newClient(t, config)
}

// call makes a unary call that is answered by errs, one after the other and then
// with success. It returns how often it left.
func call(ctx context.Context, client *grpclimit.Client, method string, errs ...error) (left int, err error) {
	err = client.UnaryClientInterceptor()(ctx, method, nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			left++
			if left <= len(errs) {
				return errs[left-1]
			}
			return nil
		})
	return left, err
}

// refusal is an error that carries RetryInfo.
func refusal(t testing.TB, code codes.Code, delay time.Duration) error {
	t.Helper()
	refused := must.Get(status.New(code, "later").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}))(t)
	return refused.Err()
}

func expectElapsed(t *testing.T, start time.Time, want time.Duration) {
	t.Helper()
	if elapsed := time.Since(start); elapsed != want {
		t.Errorf("%v have passed, want %v", elapsed, want)
	}
}

func plenty() stint.Limit { return stint.TokenBucket(1000, stint.PerSecond(1000)) }

// A call that would wait too long fails at once and does not leave; its error says
// when it might.
func TestClientDoesNotWaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubbled(t, grpclimit.ClientConfig{MaxWait: 10 * time.Second}, stint.TokenBucket(1, stint.PerMinute(1)).Named("slow"))
		start := time.Now()
		must.Get(call(t.Context(), client, check))(t)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), short} {
			left, err := call(ctx, client, check)
			expectCode(t, err, codes.ResourceExhausted)
			if retry, subject, _ := details(t, err); left != 0 || retry != time.Minute || subject != "limit:test/slow" {
				t.Errorf("it left %d times; RetryInfo %v, QuotaFailure of %q", left, retry, subject)
			}
		}
		expectElapsed(t, start, 0)
	})
}

// A call ends with its context while it waits, for the limiter or for the server.
func TestClientWaitIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubbled(t, grpclimit.ClientConfig{}, stint.TokenBucket(1, stint.PerMinute(2)))
		_, err := call(t.Context(), client, check)
		expectCode(t, err, codes.OK)
		_, err = call(t.Context(), client, echo, refusal(t, codes.ResourceExhausted, 30*time.Second))
		expectCode(t, err, codes.ResourceExhausted)
		for _, method := range []string{check, echo} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { _, err := call(ctx, client, method); ended <- err }()
			synctest.Wait()
			cancel()
			expectCode(t, <-ended, codes.Canceled)
		}
	})
}

// What a server asks of one call the calls of its key heed, and no others.
func TestClientHeedsRetryInfo(t *testing.T) {
	for _, code := range []codes.Code{codes.ResourceExhausted, codes.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			client := bubbled(t, grpclimit.ClientConfig{MaxWait: 10 * time.Second}, plenty())
			start := time.Now()
			refused := refusal(t, code, 3*time.Second)
			left, err := call(t.Context(), client, check, refused)
			if left != 1 || !errors.Is(err, refused) {
				t.Errorf("it left %d times: %v", left, err)
			}
			_, err = call(t.Context(), client, echo)
			expectCode(t, err, codes.OK)
			expectElapsed(t, start, 0)
			_, err = call(t.Context(), client, check, refusal(t, code, 1000*24*time.Hour))
			expectCode(t, err, code)
			expectElapsed(t, start, 3*time.Second)
			left, err = call(t.Context(), client, check)
			expectCode(t, err, codes.ResourceExhausted)
			if retry, _, _ := details(t, err); left != 0 || retry != 24*time.Hour {
				t.Errorf("it left %d times; RetryInfo %v, want a day: no server is believed for longer", left, retry)
			}
			expectElapsed(t, start, 3*time.Second)
		})
	}
}

// A call waits for a store that is away, as long as it may wait at all.
func TestClientOutlastsAnOutage(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Second, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := storetest.NewFaulty(memstore.New(memstore.Config{}))
				away := fmt.Errorf("%w: away", stint.ErrUnavailable)
				store.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Err: away} })
				time.AfterFunc(outage, func() { store.Inject(nil) })
				client := newClient(t, grpclimit.ClientConfig{
					Limiter: limiterOn(t, store, burst()), MaxWait: 10 * time.Second,
					Key: func(context.Context, string, string) (string, error) { return "k", nil },
				})
				start := time.Now()
				left, err := call(t.Context(), client, check)
				if outage < 10*time.Second {
					expectCode(t, err, codes.OK)
					return
				}
				expectCode(t, err, codes.Unavailable)
				expectElapsed(t, start, 10*time.Second)
				if left != 0 || !errors.Is(err, stint.ErrUnavailable) || !strings.Contains(err.Error(), "away") {
					t.Errorf("it left %d times; %v, want the cause", left, err)
				}
			})
		})
	}
}

// Calls that wait for the limiter heed RetryInfo that comes meanwhile, and leave at the limit's pace after it.
func TestClientPaceAfterAPause(t *testing.T) {
	for name, config := range map[string]func() grpclimit.ClientConfig{
		"by a limiter": func() grpclimit.ClientConfig {
			return grpclimit.ClientConfig{Limiter: limiterOn(t, memstore.New(memstore.Config{}), stint.TokenBucket(1, stint.PerSecond(2)))}
		},
		"by rules": func() grpclimit.ClientConfig {
			return grpclimit.ClientConfig{Rules: enforced(t, memstore.New(memstore.Config{}), rules.Rule{
				ID: "pace", Scope: []string{rules.Global}, OnExceed: rules.Wait, MaxWait: time.Minute,
				Limits: []stint.Limit{stint.TokenBucket(1, stint.PerSecond(2))},
			})}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := config()
				config.Key = func(context.Context, string, string) (string, error) { return "k", nil }
				client := newClient(t, config)
				start := time.Now()
				refused := refusal(t, codes.ResourceExhausted, 10*time.Second)
				var mu sync.Mutex
				var left []time.Duration
				leave := func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
					mu.Lock()
					left = append(left, time.Since(start))
					first := len(left) == 1
					mu.Unlock()
					if first {
						<-time.After(100 * time.Millisecond) // the others wait for the limiter by now
						return refused
					}
					return nil
				}
				var calls sync.WaitGroup
				for range 40 {
					calls.Go(func() {
						_ = client.UnaryClientInterceptor()(t.Context(), check, nil, nil, nil, leave)
					})
				}
				calls.Wait()
				if len(left) != 40 || left[1] < 10*time.Second || left[39] > 31*time.Second {
					t.Fatalf("calls left at %v", left)
				}
				for i := 2; i < len(left); i++ {
					if left[i]-left[i-1] < 500*time.Millisecond {
						t.Fatalf("call %d left %v after the one before: %v", i, left[i]-left[i-1], left)
					}
				}
			})
		})
	}
}

// Retries makes refused calls again once the time has passed, each at its cost.
func TestClientRetries(t *testing.T) {
	refused := func(delay time.Duration) error { return refusal(t, codes.ResourceExhausted, delay) }
	for name, c := range map[string]struct {
		errs     []error
		maxPause time.Duration
		left     int
		elapsed  time.Duration
		want     codes.Code
	}{
		"once":             {errs: []error{refused(2 * time.Second)}, left: 2, elapsed: 2 * time.Second},
		"twice":            {errs: []error{refused(time.Second), refused(4 * time.Second)}, left: 3, elapsed: 5 * time.Second},
		"too often":        {errs: []error{refused(1), refused(1), refused(1)}, left: 3, elapsed: 2, want: codes.ResourceExhausted},
		"a wait too long":  {errs: []error{refused(11 * time.Second)}, left: 1, want: codes.ResourceExhausted},
		"a longer pause":   {errs: []error{refused(time.Hour)}, maxPause: 3 * time.Second, left: 2, elapsed: 3 * time.Second},
		"no RetryInfo":     {errs: []error{status.Error(codes.ResourceExhausted, "no")}, left: 1, want: codes.ResourceExhausted},
		"another code":     {errs: []error{refusal(t, codes.Internal, time.Second)}, left: 1, want: codes.Internal},
		"another, no info": {errs: []error{status.Error(codes.NotFound, "no")}, left: 1, want: codes.NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := bubbled(t, grpclimit.ClientConfig{MaxWait: 10 * time.Second, MaxPause: c.maxPause, Retries: 2}, plenty())
				start := time.Now()
				left, err := call(t.Context(), client, check, c.errs...)
				expectCode(t, err, c.want)
				if left != c.left {
					t.Errorf("it left %d times, want %d", left, c.left)
				}
				if c.want != codes.OK && !errors.Is(err, c.errs[left-1]) {
					t.Errorf("%v, want the server's own error", err)
				}
				expectElapsed(t, start, c.elapsed)
			})
		})
	}
}

func TestClientFailures(t *testing.T) {
	limiter := newLimiter(t, burst())
	silent := storetest.NewFaulty(memstore.New(memstore.Config{}))
	silent.Inject(func(storetest.Call) storetest.Fault { return storetest.Fault{Block: true} })
	for name, c := range map[string]struct {
		config grpclimit.ClientConfig
		want   codes.Code
	}{
		"a store that is silent": {
			config: grpclimit.ClientConfig{Limiter: limiterOn(t, silent, burst()), MaxWait: time.Microsecond},
			want:   codes.Unavailable,
		},
		"a cost above the limit": {
			config: grpclimit.ClientConfig{
				Limiter: limiter,
				Cost:    func(context.Context, string, string, any) (int64, error) { return 3, nil },
			},
			want: codes.ResourceExhausted,
		},
		"no key": {
			config: grpclimit.ClientConfig{
				Limiter: limiter,
				Key:     func(context.Context, string, string) (string, error) { return "", nil },
			},
			want: codes.InvalidArgument,
		},
		"a cost that fails": {
			config: grpclimit.ClientConfig{
				Limiter: limiter,
				Cost:    func(context.Context, string, string, any) (int64, error) { return 0, errors.New("no") },
			},
			want: codes.Internal,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.config.Key == nil {
				c.config.Key = func(context.Context, string, string) (string, error) { return "k", nil }
			}
			left, err := call(t.Context(), newClient(t, c.config), check)
			expectCode(t, err, c.want)
			if left != 0 {
				t.Errorf("it left %d times", left)
			}
		})
	}
}

// The real thing: a server that limits, a client that heeds it. The server's clock
// is ahead by what it asked for after each denial, so the client is admitted when it
// comes again, and not before.
func TestClientAndServer(t *testing.T) {
	clock := storetest.NewClock(at)
	const gap = 30 * time.Millisecond
	limits := newServer(t, grpclimit.Config{
		Limiter: limiterOn(t, memstore.New(memstore.Config{Now: clock.Now}), stint.TokenBucket(1, stint.Every(gap))),
	})
	var came atomic.Int64
	advancing := func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		came.Add(1)
		answer, err := limits.UnaryServerInterceptor()(ctx, request, info, handler)
		if err != nil {
			clock.Advance(gap)
		}
		return answer, err
	}
	server := serve(t, grpc.UnaryInterceptor(advancing), grpc.StreamInterceptor(limits.StreamServerInterceptor()))

	calls := newLimiter(t, stint.FixedWindow(10, time.Hour))
	client := newClient(t, grpclimit.ClientConfig{Limiter: calls, Retries: 1})
	conn := connect(t, server.Target(),
		grpc.WithUnaryInterceptor(client.UnaryClientInterceptor()), grpc.WithStreamInterceptor(client.StreamClientInterceptor()))
	start := time.Now()
	for range 2 {
		_, _, err := invoke(bounded(t), conn)
		expectCode(t, err, codes.OK)
	}
	if took := time.Since(start); took < gap || came.Load() != 3 {
		t.Errorf("two calls came %d times within %v, want 3 in %v or more", came.Load(), took, gap)
	}

	// A stream that the server refuses is charged and heeded as well.
	start = time.Now()
	_, err := watch(bounded(t), t, conn)
	expectCode(t, err, codes.ResourceExhausted)
	clock.Advance(gap)
	if _, err := healthpb.NewHealthClient(conn).Check(bounded(t), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < gap {
		t.Errorf("the call after the stream left within %v, want %v or more", took, gap)
	}
	if d, err := calls.Peek(t.Context(), server.Target()); err != nil || d.Remaining != 5 {
		t.Errorf("%d permits remain, want 5 (%v)", d.Remaining, err)
	}
}

// A stream that may not leave is not started.
func TestClientStreamIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := bubbled(t, grpclimit.ClientConfig{MaxWait: time.Second}, stint.FixedWindow(1, time.Hour))
		opened := 0
		open := func() error {
			_, err := client.StreamClientInterceptor()(t.Context(), &grpc.StreamDesc{}, nil, echo,
				func(context.Context, *grpc.StreamDesc, *grpc.ClientConn, string, ...grpc.CallOption) (grpc.ClientStream, error) {
					opened++
					return nil, nil
				})
			return err
		}
		expectCode(t, open(), codes.OK)
		expectCode(t, open(), codes.ResourceExhausted)
		if opened != 1 {
			t.Errorf("%d streams were started, want 1", opened)
		}
	})
}
