// Package alerts tells a webhook which clients are near a limit, or were denied.
//
//	sender, err := alerts.New(alerts.Config{URL: "https://hooks.example.com/stint", Secret: secret})
//	go sender.Run(ctx)
//	...
//	sender.Observe(ctx, event)
//
// A client is told of once for each kind, rule and window: over all processes that share a [Config.Claim], else over
// this process. Events are sent in batches:
//
//	POST
//	Content-Type: application/json
//	Stint-Timestamp: 1790000000
//	Stint-Signature: sha256=HEX
//
//	{"events":[{"id":"…","kind":"denied","rule":"login","set":"web","client":"…","limit":5,"remaining":0,
//	  "reason":"limit","requestId":"…","at":1790000000123456}]}
//
// The signature is the HMAC-SHA256 of the timestamp, a dot and the body, under the secret. A batch
// whose answer is not 2xx is sent again, with the same IDs, after a time that doubles from RetryMin
// to RetryMax; after MaxTries it is dropped. So an event may arrive twice; its ID tells the
// receiver. Dropped events are counted and logged. The address may hold a token: no line and no
// error shows more of it than the scheme and the host.
package alerts

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/spans"
)

// A Kind says what an event is about.
type Kind string

// The kinds of events.
const (
	NearLimit Kind = "near_limit" // a client was admitted, and little of its limit is left
	Denied    Kind = "denied"
)

// An Alert is what the receiver is told that a client did. What is in JSON is what the receiver
// gets, and is stable; the ID is random, and the same in each attempt.
type Alert struct {
	ID        string        `json:"id"`
	Kind      Kind          `json:"kind"`
	Rule      string        `json:"rule"`
	Set       string        `json:"set,omitempty"`
	Class     string        `json:"class,omitempty"`
	Via       string        `json:"via,omitempty"`
	Client    string        `json:"client"`
	Limit     int64         `json:"limit,omitempty"`
	Remaining int64         `json:"remaining"`
	Reason    stint.Reason  `json:"reason,omitempty"`
	RequestID string        `json:"requestId,omitempty"`
	At        stint.Instant `json:"at"` // Unix microseconds

	window time.Duration // how long the client is not told of again
	ends   time.Time     // of the window
}

// A Config says how a [Sender] sends. URL has no default.
type Config struct {
	// URL is where to, by http or https.
	URL string
	// Denials says whether there are alerts of denials. Default: false.
	Denials bool
	// NearLimit is the part of a limit, in percent, at which, or below, a client that is admitted is near it. Default: 0,
	// there are no alerts of that.
	NearLimit int64
	// Secret signs. Default: nil, no signature.
	Secret []byte
	// HashClients sends the HMAC-SHA256 of clients under Secret, in hexadecimal, in their place.
	// Default: false.
	HashClients bool
	// Claim reports whether this process is the first of all to claim a name, and keeps it so for the time: SET name 1 NX
	// PX life. A name that can't be claimed for an error is taken as claimed, so that an alert comes twice rather than
	// not. Default: nil, each process claims by itself.
	Claim func(ctx context.Context, name string, life time.Duration) (first bool, err error)
	// Client sends. Default: nil, one that follows no redirection.
	Client *http.Client
	// Timeout bounds each attempt. Default: 0, which is 5 seconds.
	Timeout time.Duration
	// MaxQueue bounds the events of each kind that wait; further ones are dropped. Default: 0, which
	// is 10,000.
	MaxQueue int
	// MaxBatch bounds the events of one request. Default: 0, which is 100.
	MaxBatch int
	// Gather is how long a batch waits for more events. Default: 0, which is 1 second.
	Gather time.Duration
	// Linger is how long Run still sends after its context has ended. Default: 0, not at all.
	Linger time.Duration
	// RetryMin and RetryMax bound the time between two attempts. Default: 0, which is 1 second and 1
	// minute.
	RetryMin, RetryMax time.Duration
	// MaxTries bounds the attempts for one batch. Default: 0, which is 10.
	MaxTries int
	// Logger receives a line when sending starts, when the receiver fails and when it works again, for
	// each batch that is dropped, and at once, then each minute and at the end of Run for events that
	// found the queue full. Of URL it receives the scheme and the host only. Default: nil,
	// slog.Default.
	Logger *slog.Logger
	// Now is the time. Default: nil, the process's clock.
	Now func() time.Time
}

// Stats is what a sender has done since the start. All but Queued only grow, from the start of the
// process.
type Stats struct {
	// Sent counts alerts that the receiver confirmed.
	Sent uint64 `counter:"rate_limiter_alerts_sent_total"`
	// Repeated counts alerts left out, as their client was told of in the window.
	Repeated uint64 `counter:"rate_limiter_alerts_repeated_total"`
	// Retries counts attempts after the first one.
	Retries uint64 `counter:"rate_limiter_alert_retries_total"`
	// Failed counts alerts dropped since the receiver did not confirm them, or at the end.
	Failed uint64 `counter:"rate_limiter_alerts_failed_total"`
	// Queued is how many alerts wait.
	Queued int `gauge:"rate_limiter_alerts_queued"`

	// OverflowedNearLimit counts alerts of that kind dropped since its queue was full.
	OverflowedNearLimit uint64 `counter:"rate_limiter_alerts_dropped_total" label:"kind=near_limit"`
	// OverflowedDenied counts those of the other kind.
	OverflowedDenied uint64 `counter:"rate_limiter_alerts_dropped_total" label:"kind=denied"`
}

// A Sender sends events. It is safe for concurrent use; make it with [New]. Observe is called by
// requests and only puts an event into a queue; Run alone claims, gathers and sends.
type Sender struct {
	config    Config
	nearLimit queue
	denied    queue

	receiver string   // the URL's scheme and host
	secrets  []string // the rest of the URL, which is not logged
	// the receiver's last attempt; nil: it confirmed, or was not asked. Of Run alone
	failure error

	sent, repeated, retries, failed atomic.Uint64
}

// New makes a sender, or says what is wrong with the configuration.
func New(config Config) (*Sender, error) {
	target, err := url.Parse(config.URL)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return nil, stint.Invalid("alerts.url", redacted(target),
			"an address by http or https, such as https://hooks.example.com/stint")
	}
	for name, n := range map[string]int64{
		"alerts.timeout": int64(config.Timeout), "alerts.max_queue": int64(config.MaxQueue),
		"alerts.max_batch": int64(config.MaxBatch),
		"alerts.gather":    int64(config.Gather), "alerts.linger": int64(config.Linger),
		"alerts.retry_min": int64(config.RetryMin), "alerts.retry_max": int64(config.RetryMax),
		"alerts.max_tries": int64(config.MaxTries),
	} {
		if n < 0 {
			return nil, stint.Invalid(name, n, "0, which is the default, or more")
		}
	}
	if config.Client == nil {
		config.Client = &http.Client{
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	config.Timeout, config.Gather = cmp.Or(config.Timeout, 5*time.Second), cmp.Or(config.Gather, time.Second)
	config.MaxQueue, config.MaxBatch, config.MaxTries = cmp.Or(config.MaxQueue, 10_000), cmp.Or(config.MaxBatch, 100),
		cmp.Or(config.MaxTries, 10)
	config.RetryMin, config.RetryMax = cmp.Or(config.RetryMin, time.Second), cmp.Or(config.RetryMax, time.Minute)
	s := &Sender{config: config, receiver: redacted(target), secrets: secretsOf(target)}
	s.nearLimit.init(&s.config, NearLimit)
	s.denied.init(&s.config, Denied)
	return s, nil
}

// windowWithoutLimit is how often there is an alert of a client that a rule denies without its
// limits.
const windowWithoutLimit = time.Hour

// Observe has a decision's alert sent, if there is one, as a [stint.Observer]. It does not block:
// if the queue of its kind is full, the alert is dropped and counted. There is none of rules in
// shadow, and none of degraded decisions: of those the store's failure is the reason, of which
// others alert.
//
// The same client is told of again in the limit's next window, or the next hour if no limit was
// asked; windows are at least a second long and begin at multiples of their length since the Unix
// epoch, so that all processes have the same.
func (s *Sender) Observe(_ context.Context, e *stint.Event) {
	d := &e.Decision
	if e.Shadow || d.Degraded {
		return
	}
	kind := Denied
	switch {
	case !d.Allowed && s.config.Denials:
	case d.Allowed && s.config.NearLimit > 0 && d.Limit > 0 && d.Remaining*100 <= d.Limit*s.config.NearLimit:
		kind = NearLimit
	default:
		return
	}
	alert := Alert{
		Kind: kind, Rule: e.Rule, Set: e.Set, Class: e.Class, Via: e.Via, Client: e.Claim.Key, Limit: d.Limit,
		Remaining: d.Remaining,
		Reason:    e.Reason, RequestID: e.RequestID, At: e.At, window: windowWithoutLimit,
	}
	if e.Claim.Policy != nil {
		alert.window = max(spans.Of(e.Limit()), time.Second)
	}
	q := &s.denied
	if kind == NearLimit {
		q = &s.nearLimit
	}
	if !q.known.first(&alert) {
		s.repeated.Add(1)
		return
	}
	alert.ID = rand.Text()
	q.put(alert)
}

// Stats reads the sender's figures.
func (s *Sender) Stats() Stats {
	return Stats{
		Sent:                s.sent.Load(),
		Repeated:            s.repeated.Load(),
		Retries:             s.retries.Load(),
		Failed:              s.failed.Load(),
		Queued:              s.queued(),
		OverflowedNearLimit: s.nearLimit.overflowed.Load(),
		OverflowedDenied:    s.denied.overflowed.Load(),
	}
}

// queued is how many events wait.
func (s *Sender) queued() int { return len(s.nearLimit.events) + len(s.denied.events) }

// Run sends until the context ends, and the events that wait then for Config.Linger longer. Events that are not
// confirmed by then are dropped, counted and logged. It must be called once.
func (s *Sender) Run(ctx context.Context) {
	s.config.Logger.Info("alerts are sent", "receiver", s.receiver)
	defer s.watchOverflow()()
	sending, cancel := ctx, context.CancelFunc(func() {})
	if s.config.Linger > 0 {
		sending, cancel = context.WithCancel(context.WithoutCancel(ctx))
		defer context.AfterFunc(ctx, func() { time.AfterFunc(s.config.Linger, cancel) })()
	}
	defer cancel()
	for open := true; sending.Err() == nil && (open || s.queued() > 0); {
		var batch []Alert
		if batch, open = s.gather(ctx, sending); len(batch) > 0 {
			s.deliver(sending, batch)
		}
	}
	rest := 0
	for ; s.queued() > 0; rest++ {
		select {
		case <-s.nearLimit.events:
		case <-s.denied.events:
		}
	}
	if rest > 0 {
		s.drop(rest, cmp.Or(s.failure, errStopped))
	}
}

// gather waits for an event, then for more of them; false is that the context has ended and none waits. Claims are
// made here, one after another, and not by the requests that cause alerts. What another process
// claimed first is left out.
func (s *Sender) gather(ctx, sending context.Context) (batch []Alert, open bool) {
	var full <-chan time.Time // nil before the first event
	for len(batch) < s.config.MaxBatch {
		var event Alert
		select {
		case event = <-s.nearLimit.events:
		case event = <-s.denied.events:
		case <-full:
			return batch, true
		case <-ctx.Done(): // what waits goes in batches still
			select {
			case event = <-s.nearLimit.events:
			case event = <-s.denied.events:
			default:
				return batch, false
			}
		}
		if !s.claim(sending, &event) {
			s.repeated.Add(1)
			continue
		}
		if s.config.HashClients {
			event.Client = hex.EncodeToString(hmacOf(s.config.Secret, []byte(event.Client)))
		}
		if batch = append(batch, event); full == nil {
			timer := time.NewTimer(s.config.Gather)
			defer timer.Stop()
			full = timer.C
		}
	}
	return batch, true
}

// claimSlack is how long a claim outlives its window, since another process may come to claim later
// than it was told.
const claimSlack = time.Minute

// claim reports whether the event is this process's to send. If the claim fails, as Redis is
// unreachable, the event is sent: better twice than not at all.
func (s *Sender) claim(ctx context.Context, event *Alert) bool {
	if s.config.Claim == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	first, err := s.config.Claim(ctx, event.name(), max(0, event.ends.Sub(s.config.Now()))+claimSlack)
	return first || err != nil
}

// deliver sends a batch until it is confirmed, or given up. The waits are RetryMin, 2 RetryMin, 4
// RetryMin and so on, up to RetryMax; the queue fills meanwhile.
func (s *Sender) deliver(ctx context.Context, batch []Alert) {
	body, err := json.Marshal(map[string][]Alert{"events": batch})
	wait := s.config.RetryMin
	for try := 1; err == nil; try++ {
		if err = s.attempt(ctx, body); err == nil {
			s.sent.Add(uint64(len(batch)))
			return
		}
		if try >= s.config.MaxTries || sleep.For(ctx, wait) != nil {
			break
		}
		s.retries.Add(1)
		wait = min(2*wait, s.config.RetryMax)
		err = nil
	}
	s.drop(len(batch), err)
}

// errStopped is the cause of a loss if the receiver did not fail before.
var errStopped = errors.New("stopped before the receiver answered")

// attempt sends once, and logs when the receiver begins to fail and when it works again. If the context ends meanwhile,
// the error is the receiver's last failure.
func (s *Sender) attempt(ctx context.Context, body []byte) error {
	err := s.send(ctx, body)
	switch {
	case err != nil && ctx.Err() != nil:
		return cmp.Or(s.failure, errStopped)
	case err != nil && s.failure == nil:
		s.config.Logger.Warn("alerts can't be sent: they are tried again", "receiver", s.receiver, "err", err)
	case err == nil && s.failure != nil:
		s.config.Logger.Info("alerts are sent again", "receiver", s.receiver)
	}
	s.failure = err
	return err
}

// drop counts and logs events that are lost.
func (s *Sender) drop(events int, cause error) {
	s.failed.Add(uint64(events))
	s.config.Logger.Warn("alerts were lost: the receiver did not confirm them", "events", events, "err", cause)
}

// send makes one attempt.
func (s *Sender) send(ctx context.Context, body []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address can't be asked")
	}
	request.Header.Set("Content-Type", "application/json")
	if s.config.Secret != nil {
		timestamp := strconv.FormatInt(s.config.Now().Unix(), 10)
		request.Header.Set("Stint-Timestamp", timestamp)
		request.Header.Set("Stint-Signature", Sign(s.config.Secret, timestamp, body))
	}
	response, err := s.config.Client.Do(request)
	if err != nil {
		return s.safe(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, _ = io.CopyN(io.Discard, response.Body, 64<<10) // so that the connection can be used again
	if response.StatusCode/100 != 2 {
		return errors.New(strings.TrimSpace(fmt.Sprintf("the receiver answered %d %s", response.StatusCode,
			http.StatusText(response.StatusCode))))
	}
	return nil
}

// Sign returns the signature of a body that was sent at a timestamp, for receivers to compare with
// hmac.Equal. The timestamp is within what is signed, so that a receiver can refuse an old body
// that somebody sends again.
func Sign(secret []byte, timestamp string, body []byte) string {
	return "sha256=" + hex.EncodeToString(hmacOf(secret, append([]byte(timestamp+"."), body...)))
}

func hmacOf(secret, text []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write(text) // a hash does not fail
	return mac.Sum(nil)
}

// redacted is an address without what may be secret: its user, path and query.
func redacted(target *url.URL) string {
	if target == nil {
		return "what is not an address"
	}
	return target.Scheme + "://" + target.Host
}

// secretsOf are the parts of an address that redacted leaves out, in each way that an error may
// show them.
func secretsOf(target *url.URL) (secrets []string) {
	password, _ := target.User.Password()
	for _, part := range []string{target.Path, target.EscapedPath(), target.RawQuery, target.User.String(), password} {
		if part != "" && part != "/" {
			secrets = append(secrets, part)
		}
	}
	return secrets
}

// safe is the cause of a failed request without secrets of its address. An error of net/http shows
// the URL, and others may repeat a part of it, such as a token in the path.
func (s *Sender) safe(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %s", s.config.Timeout)
	}
	if fault, ok := errors.AsType[*url.Error](err); ok {
		err = fault.Err // without the address
	}
	for _, secret := range s.secrets {
		if strings.Contains(err.Error(), secret) { // as in a bad Location that repeats the path
			return errors.New("the request failed")
		}
	}
	return err
}
