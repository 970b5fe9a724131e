package chaos_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/internal/testseed"
	"github.com/stint-go/stint/redisstore"
	"github.com/stint-go/stint/redisstore/rueidis"
)

var (
	reserveFor     = flag.Duration("reserve-for", time.Second, "how `long` each run of TestReserveExact lasts")
	reserveHolders = flag.Int("reserve-holders", 2, "how many `processes` hold in TestReserveExact")
)

const (
	holderVariable = "STINT_TEST_HOLDER" // makes the test a process that holds; its value is a holderConfig
	holdTTL        = 2 * time.Second
	places         = 24
	tokens         = 1_000_000_000
)

// holderConfig is what a process is told that holds.
type holderConfig struct {
	URL  string
	Seed uint64
}

// A line is what a process says of one of its holds, in JSON on its standard output: before it sends what may count, and once it
// was answered. So whatever kills it, all that may have counted is known.
type line struct {
	What    string // reserved, ends or ended
	ID      string
	Verb    stint.Verb    // of an end
	Actual  int64         // the same
	At      stint.Instant // of what is answered, by the server; 0 when another answer was the first
	Expires stint.Instant
}

// holdingPolicy is "so many at once, and tokens that are counted".
func holdingPolicy() *stint.Policy {
	policy, err := stint.NewPolicy("exact",
		stint.Concurrency(places).WithCost(1), stint.FixedWindow(tokens, 24*time.Hour).FromFirst().Named("tokens"))
	if err != nil {
		panic(err)
	}
	return policy
}

// hold is the program of a process that holds, until its standard input ends.
func hold(text string) error {
	var config holderConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	conn, err := rueidis.Dial(rueidis.Config{URL: config.URL})
	if err != nil {
		return err
	}
	store, err := redisstore.New(conn, redisstore.Options{})
	if err != nil {
		return err
	}
	defer store.Close()
	ctx, end := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	var out sync.Mutex
	say := func(l line) {
		text, _ := json.Marshal(l)
		out.Lock()
		defer out.Unlock()
		_, _ = os.Stdout.Write(append(text, '\n'))
	}
	var callers sync.WaitGroup
	for caller := range 6 {
		callers.Go(func() {
			h := holder{store: store, policy: holdingPolicy(), say: say, rng: rand.New(rand.NewPCG(config.Seed, uint64(caller)))}
			for i := 0; ctx.Err() == nil; i++ {
				h.one(ctx, fmt.Sprintf("%d-%d-%d", config.Seed, caller, i))
			}
		})
	}
	callers.Wait()
	return nil
}

type holder struct {
	store  stint.Store
	policy *stint.Policy
	say    func(line)
	rng    *rand.Rand
}

// one holds once: of ten messages one is sent twice, and of ten holds one ends after it has expired.
func (h *holder) one(ctx context.Context, id string) {
	n := 1 + h.rng.Int64N(20)
	told, d, err := h.send(ctx, stint.VerbReserve, id, n, 0)
	if err != nil || !d.Allowed {
		_ = sleep.For(ctx, time.Duration(h.rng.Int64N(int64(10*time.Millisecond))))
		return
	}
	h.say(line{What: "reserved", ID: id, At: d.At, Expires: told.ExpiresAt})
	lasts := time.Duration(h.rng.Int64N(int64(60 * time.Millisecond)))
	if h.rng.IntN(10) == 0 {
		lasts = holdTTL + time.Duration(h.rng.Int64N(int64(holdTTL)))
	}
	_ = sleep.For(ctx, lasts)
	if h.rng.IntN(5) == 0 {
		if grown, d, err := h.send(ctx, stint.VerbReserve, id, n+5, 0); err == nil && d.Allowed {
			told = grown
			h.say(line{What: "reserved", ID: id, At: d.At, Expires: told.ExpiresAt})
		}
	}
	verb, actual := stint.VerbCommit, h.rng.Int64N(n+6)
	switch h.rng.IntN(20) {
	case 0:
		return // nobody ends it
	case 1, 2, 3:
		verb, actual = stint.VerbCancel, 0
	}
	h.say(line{What: "ends", ID: id, Verb: verb, Actual: actual, Expires: told.ExpiresAt})
	ended, d, err := h.send(context.WithoutCancel(ctx), verb, id, actual, told.ExpiresAt)
	if err == nil || errors.Is(err, stint.ErrResolved) || errors.Is(err, stint.ErrUnknownReservation) {
		at := d.At
		if ended.Replayed {
			at = 0
		}
		h.say(line{What: "ended", ID: id, Verb: verb, Actual: actual, At: at, Expires: told.ExpiresAt})
	}
}

// send sends a message until it is answered, one of ten twice at once. The answer is that which was the first.
func (h *holder) send(ctx context.Context, verb stint.Verb, id string, n int64, expires stint.Instant) (told stint.HoldOp, d stint.Decision, err error) {
	if h.rng.IntN(10) > 0 {
		return sendHold(ctx, h.store, h.policy, verb, id, n, expires)
	}
	var again stint.HoldOp
	var dAgain stint.Decision
	var errAgain error
	var group sync.WaitGroup
	group.Go(func() { again, dAgain, errAgain = sendHold(ctx, h.store, h.policy, verb, id, n, expires) })
	told, d, err = sendHold(ctx, h.store, h.policy, verb, id, n, expires)
	group.Wait()
	if errAgain == nil && (err != nil || told.Replayed) {
		return again, dAgain, errAgain
	}
	return told, d, err
}

// sendHold sends a message until it is answered, or the context ends.
func sendHold(
	ctx context.Context,
	store stint.Store,
	policy *stint.Policy,
	verb stint.Verb,
	id string,
	n int64,
	expires stint.Instant,
) (told stint.HoldOp, d stint.Decision, err error) {
	for {
		told = stint.HoldOp{Hold: stint.Hold{ID: id, TTL: holdTTL, ExpiresAt: expires}}
		op := stint.Op{Verb: verb, Extra: &stint.Extra{Hold: &told}, Claim: stint.Claim{Key: "k", Policy: policy, Permits: n}, Timeout: time.Second}
		d, err = store.Decide(ctx, op)
		if err == nil || ctx.Err() != nil || !errors.Is(err, stint.ErrUnavailable) && !errors.Is(err, stint.ErrOverloaded) {
			return told, d, err
		}
		_ = sleep.Jittered(ctx, 50*time.Millisecond)
	}
}

// A reserveRun is processes that hold while something strikes them and their servers.
type reserveRun struct {
	*testing.T
	url  string
	seed uint64

	mu    sync.Mutex
	lines []line
}

// A process is one that holds.
type process struct {
	command *exec.Cmd
	stdin   io.Closer
	read    chan struct{} // closed when all that it said is known
}

func (r *reserveRun) start() *process {
	r.Helper()
	r.seed++
	config := must.Get(json.Marshal(holderConfig{r.url, r.seed}))(r)
	command := exec.CommandContext(context.Background(), os.Args[0])
	command.Env = append(os.Environ(), holderVariable+"="+string(config))
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	command.Stderr = os.Stderr
	stdin := must.Get(command.StdinPipe())(r)
	stdout := must.Get(command.StdoutPipe())(r)
	must.Do(r, command.Start())
	p := &process{command, stdin, make(chan struct{})}
	go func() {
		defer close(p.read)
		for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
			var l line
			if json.Unmarshal(scanner.Bytes(), &l) == nil { // what was cut off by a kill was not sent
				r.mu.Lock()
				r.lines = append(r.lines, l)
				r.mu.Unlock()
			}
		}
	}()
	return p
}

// end waits for a process that was killed, or has nothing more to do.
func (p *process) end() {
	_ = p.stdin.Close()
	<-p.read
	_ = p.command.Wait()
}

// TestReserveExact has processes hold by ids while they are killed, and so is their server, or its connections: every id is charged
// once, as often as its messages are sent and however late, no more places are taken than there are, and when all is over every
// one is free.
func TestReserveExact(t *testing.T) {
	for _, c := range []struct {
		name   string
		start  func(t testing.TB) *site
		strike func(s *site) // again and again
		loses  bool          // whether what the servers confirmed last may be lost
	}{
		{"one server, killed", single(durable...), func(s *site) {
			must.Do(s, s.single.Kill())
			s.single.Restart(s)
		}, false},
		{"one server, cut off", proxied, func(s *site) {
			s.proxy.add("reset_peer", fromServer, map[string]any{"timeout": 0})
			_ = sleep.For(s.Context(), 50*time.Millisecond)
			s.proxy.heal()
		}, false},
		{"a failover by sentinels", sentinels, func(s *site) { s.sentinel.Failover(s) }, true},
		{"a cluster", cluster(0), func(*site) {}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.start(t)
			s.TB = t
			r := &reserveRun{T: t, url: s.url, seed: testseed.Seed()}
			t.Logf("seed %d", r.seed)
			r.hammer(func() { c.strike(s) })
			r.check(c.loses)
		})
	}
}

// hammer has processes hold for a while. In turn one of them is killed, and the servers are struck.
func (r *reserveRun) hammer(strike func()) {
	r.Helper()
	holders := make([]*process, *reserveHolders)
	for i := range holders {
		holders[i] = r.start()
	}
	until(r, "something is held", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lines) > 0
	})
	over := time.Now().Add(*reserveFor)
	for i := 0; time.Now().Before(over); i++ {
		_ = sleep.For(r.Context(), min(time.Second, *reserveFor/2))
		victim := holders[i%len(holders)]
		must.Do(r, victim.command.Process.Kill())
		victim.end()
		holders[i%len(holders)] = r.start()
		if i%3 == 0 {
			strike()
		}
	}
	for _, p := range holders {
		p.end()
	}
}

// check says again what may not have been heard, and holds what is left in the store against what the processes said.
func (r *reserveRun) check(loses bool) {
	r.Helper()
	conn := must.Get(rueidis.Dial(rueidis.Config{URL: r.url}))(r)
	store := must.Get(redisstore.New(conn, redisstore.Options{}))(r)
	defer store.Close()
	policy := holdingPolicy()
	charged, unheard := int64(0), map[string]line{}
	var changes []placeChange
	held := map[string]line{}
	ends := 0
	for _, l := range r.lines {
		switch l.What {
		case "reserved":
			if first, again := held[l.ID]; again {
				l.At = first.At
			}
			held[l.ID] = l
		case "ends":
			unheard[l.ID] = l
			charged += l.Actual
		case "ended":
			delete(unheard, l.ID)
			ends++
			if hold := held[l.ID]; l.At > 0 {
				changes = append(changes, placeChange{hold.At, 1}, placeChange{min(l.At, hold.Expires), -1})
			}
		}
	}
	for id, l := range unheard {
		_, _, err := sendHold(r.Context(), store, policy, l.Verb, id, l.Actual, l.Expires)
		if err != nil && l.Verb == stint.VerbCommit {
			r.Errorf("%s: the commit that may not have been heard: %v", id, err)
		}
	}
	_ = sleep.For(r.Context(), holdTTL) // until all has expired that nobody ended
	each := make([]stint.Outcome, 2)
	peek := stint.Op{Verb: stint.VerbPeek, Each: each, Claim: stint.Claim{Key: "k", Policy: policy, Permits: 1}}
	until(r, "the store says what is left", func() bool {
		_, err := store.Decide(r.Context(), peek)
		return err == nil
	})
	most := mostAtOnce(changes)
	used := tokens - each[1].Remaining
	r.Logf("%d holds, %d ends answered, %d said again, %d tokens charged of %d, at most %d places at once",
		len(held), ends, len(unheard), used, charged, most)
	if used > charged || used < charged && !loses {
		r.Errorf("%d tokens are charged, not %d", used, charged)
	}
	if each[0].Remaining != places {
		r.Errorf("%d of %d places are free when all is over", each[0].Remaining, places)
	}
	if most > places && !loses {
		r.Errorf("%d places were taken at once, of %d", most, places)
	}
}

// A placeChange is a place taken or freed, by the server's clock.
type placeChange struct {
	at stint.Instant
	by int
}

// mostAtOnce is how many places were taken at once, at most. At one instant a place is freed before another is taken.
func mostAtOnce(changes []placeChange) (most int) {
	slices.SortFunc(changes, func(a, b placeChange) int { return cmp.Or(cmp.Compare(a.at, b.at), a.by-b.by) })
	taken := 0
	for _, c := range changes {
		taken += c.by
		most = max(most, taken)
	}
	return most
}
