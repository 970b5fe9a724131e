package attack_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stint-go/stint/internal/testprogram"
)

// post is a request as it is sent.
func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: stint\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// hold is a request of a trusted gateway about a hold whose id is another in each request.
func hold(path, members string) string {
	body := `{"id":"` + eachOther + `",` + members + `}`
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: stint\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", path, token, len(body), body)
}

// eachOther stands in a request for a number that no other request has.
const eachOther = "NUMBER00"

// get is one without a body.
func get(path, fields string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: stint\r\n%s\r\n", path, fields)
}

// addressOf is one of so many addresses of attackers.
func addressOf(i, addresses int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(127, 1, 0, byte(1+i%addresses))}
}

// innocentAddress is that of the innocent client.
var innocentAddress = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}

// attackBy has so many attackers attack, each again and again from one of some addresses, until stop is called.
func attackBy(t *testing.T, n, addresses int, once func(ctx context.Context, from net.Addr)) (stop func()) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range n {
		work.Go(func() {
			for ctx.Err() == nil {
				once(ctx, addressOf(i, addresses))
			}
		})
	}
	return func() {
		end()
		work.Wait()
	}
}

// over makes a connection, and ends it when do returns or the attack ends.
func over(ctx context.Context, from net.Addr, addr string, do func(conn net.Conn)) {
	conn, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	do(conn)
}

// attackers says how a crowd asks. The zero value is from one address, and each request after the answer to the one before.
type attackers struct {
	addresses int // from how many addresses
	pipelined int // so many requests before the first answer
}

// A crowd is attackers, each on a connection of its own, who ask again as soon as they were answered.
type crowd struct {
	end      func()
	mu       sync.Mutex
	statuses map[int]int
	answers  atomic.Int64
	number   atomic.Int64 // of the last request
	admitted atomic.Int64
	degraded atomic.Int64
}

// made is what a crowd brought about.
type made struct {
	answers, admitted, degraded int
	statuses                    map[int]int
}

func (m made) String() string {
	return fmt.Sprintf("%d answers %v, %d admitted, %d degraded", m.answers, m.statuses, m.admitted, m.degraded)
}

func (s *service) startCrowd(t *testing.T, connections int, request string, how attackers) *crowd {
	t.Helper()
	c := &crowd{statuses: map[int]int{}}
	c.end = attackBy(t, connections, max(how.addresses, 1), func(ctx context.Context, from net.Addr) {
		if how.addresses == 0 {
			from = nil
		}
		over(ctx, from, s.addr, func(conn net.Conn) { c.attack(ctx, conn, request, max(how.pipelined, 1)) })
	})
	return c
}

// attack asks over one connection, until it ends.
func (c *crowd) attack(ctx context.Context, conn net.Conn, request string, pipelined int) {
	in := bufio.NewReaderSize(conn, 64<<10)
	for rest := 0; ; rest-- {
		if rest == 0 {
			numbered := strings.ReplaceAll(request, eachOther, fmt.Sprintf("%08d", c.number.Add(1)))
			if _, err := io.WriteString(conn, strings.Repeat(numbered, pipelined)); err != nil && ctx.Err() != nil {
				return
			}
			rest = pipelined
		}
		response, err := http.ReadResponse(in, nil) //nolint:bodyclose // it is read to its end
		if err != nil {
			return
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return
		}
		c.answers.Add(1)
		c.admitted.Add(int64(bytes.Count(body, []byte(`"allowed":true`))))
		c.degraded.Add(int64(bytes.Count(body, []byte(`"degraded":true`))))
		if strings.HasPrefix(request, "GET /forward-auth") && response.StatusCode == http.StatusOK {
			c.admitted.Add(1)
		}
		c.mu.Lock()
		c.statuses[response.StatusCode]++
		c.mu.Unlock()
		if response.Close {
			return
		}
	}
}

// await waits until an attacker is answered: the length of the experiment counts from then on.
func (c *crowd) await(t *testing.T) {
	t.Helper()
	await(t, "an attacker is answered", func() bool { return c.answers.Load() > 0 })
}

// stop ends the attack.
func (c *crowd) stop() made {
	c.end()
	return made{int(c.answers.Load()), int(c.admitted.Load()), int(c.degraded.Load()), c.statuses}
}

// An innocent is a client that asks at a steady pace, from an address of its own.
type innocent struct {
	end  context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex
	checks checks
}

// checks are the answers that an innocent client got.
type checks struct {
	asked, degraded int
	statuses        map[int]int
	failures        int     // without an answer
	remaining       []int64 // as decided by the store
	took            []time.Duration
}

func (c checks) String() string {
	slices.Sort(c.took)
	text := fmt.Sprintf("%d checks %v, %d degraded, %d unanswered", c.asked, c.statuses, c.degraded, c.failures)
	if n := len(c.took); n > 0 {
		text += fmt.Sprintf("; median %s, p99 %s, longest %s", c.took[n/2], c.took[n*99/100], c.took[n-1])
	}
	return text
}

// decided is how many checks the store decided.
func (c checks) decided() int { return len(c.remaining) }

// inexact says what is wrong with the decisions, "" if nothing: each took one permit, so no two were told
// the same rest, and the rests have no more gaps than there were checks that were not answered.
func (c checks) inexact() string {
	slices.Sort(c.remaining)
	if n := len(slices.Compact(slices.Clone(c.remaining))); n != len(c.remaining) {
		return fmt.Sprintf("%d of %d were told what another was told", len(c.remaining)-n, len(c.remaining))
	}
	if n := len(c.remaining); n > 0 {
		const limit = 1_000_000
		if spent := limit - c.remaining[0]; spent > int64(c.asked) {
			return fmt.Sprintf("%d permits were spent by %d checks", spent, c.asked)
		}
	}
	return ""
}

// expect expects that the decisions were the store's and exact, and with -strict that there was one of each check.
func (c checks) expect(t *testing.T) {
	t.Helper()
	if fault := c.inexact(); fault != "" || c.degraded > 0 {
		t.Errorf("the innocent client's decisions: %s; %d were the failure policy's", fault, c.degraded)
	}
	if *strict && c.decided() != c.asked {
		t.Errorf("the innocent client: %d of %d checks were decided", c.decided(), c.asked)
	}
}

// newInnocent is an innocent client that has not begun, and ends with the context.
func newInnocent(t *testing.T) (*innocent, context.Context) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	return &innocent{end: end, checks: checks{statuses: map[int]int{}}}, ctx
}

func (s *service) startInnocent(t *testing.T) *innocent {
	t.Helper()
	i, ctx := newInnocent(t)
	dialer := &net.Dialer{LocalAddr: innocentAddress}
	transport := &http.Transport{DialContext: dialer.DialContext, MaxIdleConnsPerHost: 64}
	client := &http.Client{Transport: transport, Timeout: patience}
	i.work.Go(func() {
		defer transport.CloseIdleConnections()
		pace := time.NewTicker(time.Second / perSecond)
		defer pace.Stop()
		var asking sync.WaitGroup
		defer asking.Wait()
		for {
			select {
			case <-ctx.Done():
				return
			case <-pace.C:
				asking.Go(func() { i.ask(client, s.addr) })
			}
		}
	})
	return i
}

// ask makes a check, which nothing ends early.
func (i *innocent) ask(client *http.Client, addr string) {
	begun := time.Now()
	status, decision, err := check(client, "http://"+addr)
	i.note(begun, status, decision, err)
}

// note notes how a check went that began then.
func (i *innocent) note(begun time.Time, status int, decision decision, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.checks.asked++
	i.checks.took = append(i.checks.took, time.Since(begun))
	if err != nil {
		i.checks.failures++
		return
	}
	i.checks.statuses[status]++
	switch {
	case decision.Degraded:
		i.checks.degraded++
	case status == http.StatusOK && decision.Source == "store":
		i.checks.remaining = append(i.checks.remaining, decision.Remaining)
	}
}

type decision struct {
	Remaining int64
	Degraded  bool
	Source    string
}

func check(client *http.Client, base string) (status int, d decision, err error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, base+"/api/v1/rate-limit/check?algorithm=FIXED_WINDOW", nil)
	if err != nil {
		return 0, d, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, d, err
	}
	return response.StatusCode, d, readDecision(response, &d)
}

// readDecision reads a response to its end.
func readDecision(response *http.Response, d *decision) error {
	text, err := io.ReadAll(response.Body)
	return errors.Join(err, response.Body.Close(), json.Unmarshal(text, d))
}

// await waits until a check is answered.
func (i *innocent) await(t *testing.T) {
	t.Helper()
	await(t, "the innocent client is answered", func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return len(i.checks.statuses) > 0
	})
}

// await waits for a condition.
var await = testprogram.Until

// stop ends the checks.
func (i *innocent) stop() checks {
	i.end()
	i.work.Wait()
	return i.checks
}
