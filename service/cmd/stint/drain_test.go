//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/testredis"
)

// A caller asks once over a connection, which ends says was the last time that it can be asked over.
type caller func(conn net.Conn, reader *bufio.Reader) (ends bool, err error)

// callHTTP asks for a path. The answer says whether the connection ends.
func callHTTP(path string) caller {
	return func(conn net.Conn, reader *bufio.Reader) (ends bool, err error) {
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path); err != nil {
			return true, err
		}
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return true, err
		}
		_, err = io.Copy(io.Discard, response.Body)
		if err = errors.Join(err, response.Body.Close()); err == nil && response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return response.Close, err
	}
}

// errEnded is that a connection of the Redis protocol was closed before a command, and not within one.
var errEnded = errors.New("the connection has ended")

// callRESP asks by a command. Nothing tells that the connection ends but its end.
func callRESP(conn net.Conn, reader *bufio.Reader) (ends bool, err error) {
	if _, err := io.WriteString(conn, "STINT.CHECK load resp 1\r\n"); err != nil {
		return true, errEnded
	}
	head, err := reader.ReadString('\n')
	if err != nil {
		return true, errEnded // what was carried out without an answer is missing in the store
	}
	elements, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(head, "*")))
	if err != nil {
		return true, errors.New(head)
	}
	for ; elements > 0; elements-- {
		line, err := reader.ReadString('\n')
		if err == nil && line[0] == '$' {
			_, err = reader.ReadString('\n')
		}
		if err != nil {
			return true, err
		}
	}
	return false, nil
}

// SIGTERM under load on all four listeners: each request is answered, until no connection can be made. What the store
// has counted is what was answered, so that nothing was decided for nobody.
func TestSIGTERMUnderLoadLosesNothing(t *testing.T) {
	t.Parallel()
	const callers, before = 4, 100
	redis := testredis.Start(t)
	config := writeFile(t, "policies: {load: [{algorithm: fixed_window, limit: 1000000000, window: 365d}]}\n")
	domain := writeFile(t, "domain: load\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1000000}}]\n")
	p := startProgram(t, "--config", config, "--store", redis.URL(), "--store-timeout=1m", "--admin-listen=127.0.0.1:0",
		"--grpc-listen=127.0.0.1:0", "--envoy-config", domain, "--resp-listen=127.0.0.1:0",
		"--drain-keep-alive=8s")
	addressOf := func(service string) string { return awaitMatch(t, p.log, `service=`+service+` addr=(\S+)`) }
	var group sync.WaitGroup
	begun := make(chan struct{}, 4*callers)
	answered := map[string]*atomic.Int64{}
	start := func(service string, run func(count func()) error) {
		answered[service] = new(atomic.Int64)
		for range callers {
			group.Go(func() {
				own := 0
				if err := run(func() {
					if own++; own == before {
						begun <- struct{}{}
					}
					answered[service].Add(1)
				}); err != nil {
					t.Errorf("%s: after %d answers: %v", service, own, err)
				}
			})
		}
	}
	for service, call := range map[string]caller{
		"http": callHTTP("/api/v1/rate-limit/check?policy=load&key=http"), "admin": callHTTP("/api/v1/rules"), "resp": callRESP,
	} {
		address := addressOf(service)
		start(service, func(count func()) error { return callUntilGone(t, address, call, count) })
	}
	conn := must.Get(grpc.NewClient("passthrough:///"+addressOf("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = conn.Close() })
	client := pb.NewRateLimitServiceClient(conn)
	start("grpc", func(count func()) error {
		for {
			_, err := client.ShouldRateLimit(t.Context(), about("load", "k", "v"))
			if grpcstatus.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "connection refused") {
				return nil // nobody is there any more
			}
			if err != nil {
				return err
			}
			count()
		}
	})
	for range 4 * callers {
		select {
		case <-begun:
		case <-time.After(patience):
			t.Fatalf("the callers are not answered:\n%s", p.log)
		}
	}
	must.Do(t, p.cmd.Process.Signal(syscall.SIGTERM))
	group.Wait()
	if err := <-p.exited; err != nil {
		t.Errorf("exit: %v\n%s", err, p.log)
	}
	for _, key := range []string{"http", "resp"} {
		code, text, stderr := do(t, nil, "peek", key, "--config", config, "--store", redis.URL(), "--policy", "load", "--json", "--timeout=1m")
		var left struct{ Limit, Remaining int64 }
		if err := json.Unmarshal([]byte(text), &left); err != nil || code != exitOK {
			t.Fatalf("exit code %d, %v, %s%s", code, err, text, stderr)
		}
		if counted := left.Limit - left.Remaining; counted != answered[key].Load() {
			t.Errorf("%s: %d are answered, %d counted", key, answered[key].Load(), counted)
		}
	}
}

// callUntilGone asks over connections, one after the other, until none can be made.
func callUntilGone(t *testing.T, address string, call caller, count func()) error {
	for {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		reader := bufio.NewReader(conn)
		for ends, asked := false, 0; !ends; asked++ {
			if ends, err = call(conn, reader); err == nil {
				count()
			} else if !errors.Is(err, errEnded) || asked == 0 {
				_ = conn.Close()
				return fmt.Errorf("request %d of a connection: %w", asked+1, err)
			}
		}
		_ = conn.Close()
	}
}
