package redisstore_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/bounds"
	"github.com/stint-go/stint/internal/must"
	"github.com/stint-go/stint/internal/notation"
	"github.com/stint-go/stint/internal/testredis"
	"github.com/stint-go/stint/redisstore"
)

// writes are operations that change a state of their own, each after the ones before it.
func writes(p *stint.Policy) map[string][]stint.Op {
	all := map[string][]stint.Op{
		"try":              {op(stint.VerbTry, "k", p, 1)},
		"take of all":      {op(stint.VerbTake, "k", p, 10)},
		"charge into debt": {op(stint.VerbSettle, "k", p, 1000)},
		"second take":      {op(stint.VerbTake, "k", p, 2), op(stint.VerbTake, "k", p, 1)},
	}
	if p.Limit(0).Algorithm != stint.AlgorithmLeakyBucket {
		all["refund"] = []stint.Op{op(stint.VerbSettle, "k", p, 9), op(stint.VerbSettle, "k", p, -4)}
		all["refund of all"] = []stint.Op{op(stint.VerbTake, "k", p, 9), op(stint.VerbSettle, "k", p, -100)}
	}
	return all
}

// lifeLimits are limits whose states live from a millisecond to years.
func lifeLimits() []stint.Limit {
	return []stint.Limit{
		stint.TokenBucket(10, stint.Per(1, time.Millisecond)),
		stint.TokenBucket(10, stint.PerMinute(7)).WithMaxDebt(1000),
		stint.TokenBucket(10, stint.Per(1, 90*24*time.Hour)),
		stint.LeakyBucket(10, stint.Per(2, 3*time.Second)),
		stint.FixedWindow(10, 20*24*time.Hour),
		stint.CalendarWindow(10, stint.CalendarYear, "Europe/Berlin"),
		stint.CalendarWindow(10, stint.CalendarMinute, ""),
		stint.CalendarWindow(10, stint.CalendarHour, "Australia/Lord_Howe"),
		stint.CalendarWindow(10, stint.CalendarDay, "America/Havana"),
		stint.SlidingWindowCounter(10, time.Millisecond),
		stint.SlidingWindowCounter(10, 24*time.Hour),
		stint.SlidingWindowLog(10, time.Millisecond),
		stint.SlidingWindowLog(10, 24*time.Hour),
		stint.SlidingWindowLog(10, time.Minute).WithMinInterval(time.Hour),
		stint.SlidingWindowLog(10, time.Hour).CountingDenied(),
	}
}

// docs/internals/semantics.md, "Forgetting and resets": every state key has a TTL that covers the
// time until its states are untouched, debt included, and a margin of 10 %, at least
// a second; and it is not much longer than that: for a log twice the margin, for a
// hash twice the life of the limit's states, and a margin in which it is unlinked.
func TestTTL(t *testing.T) {
	conn := newConn(t)
	for _, encoding := range encodings {
		store, prefix := storeOn(t, conn, redisstore.Options{LogEncoding: encoding})
		for i, limit := range lifeLimits() {
			if limit.Algorithm != stint.AlgorithmSlidingWindowLog && encoding != redisstore.LogPacked {
				continue
			}
			for what, ops := range writes(policyOf(t, string(rune('a'+i)), limit)) {
				life := lifeOf(t, store, prefix, ops)
				for life.late { // a state of a millisecond is dead after a second
					life = lifeOf(t, store, prefix, ops)
				}
				for key, expires := range life.expires {
					if isLog(key) {
						checkLogLife(t, what, limit, key, expires, life.last)
					} else {
						checkHashLife(t, what, limit, key, expires, life.hashes[key], life.first.At, life.last)
					}
				}
			}
		}
	}
}

// written is what operations on a client left.
type written struct {
	first, last stint.Decision
	expires     map[string]stint.Instant // by key
	hashes      map[string]*hash
	late        bool // whether so much time passed that states may have died meanwhile
}

// lifeOf decides, and returns what was written, which is deleted then.
func lifeOf(t *testing.T, store stint.Store, prefix string, ops []stint.Op) written {
	t.Helper()
	w := written{expires: map[string]stint.Instant{}, hashes: map[string]*hash{}}
	for i, o := range ops {
		if w.last = decide(t, store, o); i == 0 {
			w.first = w.last
		}
	}
	keys := keysOf(t, prefix)
	for _, key := range keys {
		w.expires[key] = stint.Instant(1000 * redis(t, "PEXPIRETIME", key).(int64))
		if !isLog(key) {
			w.hashes[key] = readHash(t, key)
		}
	}
	w.late = len(ops) > 0 && timeOf(t, redis(t, "TIME"))-w.first.At > 500_000
	for _, key := range keys {
		redis(t, "DEL", key)
	}
	return w
}

// checkLogLife compares when a log expires with what the decision said of it.
func checkLogLife(t *testing.T, what string, limit stint.Limit, key string, expires stint.Instant, d stint.Decision) {
	t.Helper()
	margin := max(d.ResetAfter/10, time.Second)
	// The life counts from the start of the script, a moment before its time is read.
	least, most := d.At.Add(d.ResetAfter+margin/2), d.At.Add(d.ResetAfter+margin+time.Second)
	if d.Allowed && (expires < least || expires > most) {
		t.Errorf("%s of %+v: %s expires at %s, want %s to %s", what, limit, key, expires.Time(), least.Time(), most.Time())
	}
}

// checkHashLife compares when a hash whose first state was written at a time expires
// with what its head says, and that with its limit and the last decision.
func checkHashLife(t *testing.T, what string, limit stint.Limit, key string, expires stint.Instant, h *hash, first stint.Instant, d stint.Decision) {
	t.Helper()
	least, most := longest(limit)
	if h.life < withMargin(least) || h.life > withMargin(most)+rounding {
		t.Errorf("%s of %+v: %s says that states live for %d us, want %d to %d with a margin", what, limit, key, h.life, least, most)
	}
	if h.start != first || h.turn < first+h.life-rounding || h.turn > first+h.life || h.dead != 0 {
		t.Errorf("%s of %+v: %s was written at %d first, and its head is %+v", what, limit, key, first, h)
	}
	// The life counts from the start of the script, a moment before its time is read.
	if end := h.turn + withMargin(h.life); expires < end-slackTTL || expires > end+slackTTL {
		t.Errorf("%s of %+v: %s expires at %s, want %s", what, limit, key, expires.Time(), end.Time())
	}
	if untouched := d.At.Add(d.ResetAfter); untouched > h.turn+h.life-1_000_000 {
		t.Errorf("%s of %+v: %s lives until %d, and its state matters until %d", what, limit, key, h.turn+h.life, untouched)
	}
}

// rounding is by how much a state may be said to matter for longer than it does.
const rounding = 1

// A limit whose states live for longer than those of the limits before it raises its
// generation's life and TTL, even if its states are read like theirs; what a changed
// limit took over does, too, and a limit with shorter lives does not.
func TestLifeIsRaised(t *testing.T) {
	store, prefix := storeOn(t, newConn(t), redisstore.Options{})
	bucket := stint.TokenBucket(20, stint.PerSecond(1))
	slow := stint.TokenBucket(1, stint.Every(time.Hour)).WithMaxDebt(stint.NoDebt)
	var start, last, life stint.Instant
	for i, step := range []struct {
		limit   stint.Limit
		permits int64 // settled
		life    time.Duration
	}{
		{bucket.WithMaxDebt(stint.NoDebt), 1, 20 * time.Second},
		{bucket.WithMaxDebt(10), 28, 30 * time.Second},
		{bucket.WithMaxDebt(5), -1, 30 * time.Second},
		{slow, -2, 7 * time.Hour}, // of 28 permits taken 20 were the old capacity, 1 is the new
		{bucket.WithMaxDebt(1), -1, 7 * time.Hour},
	} {
		d := decide(t, store, op(stint.VerbSettle, "k", policyOf(t, "", step.limit), step.permits))
		key := keysOf(t, prefix)[0]
		h := readHash(t, key)
		if start == 0 {
			start = d.At
		}
		matters := stint.Instant(step.life.Microseconds())
		if i == 3 { // it has run by the new limit since the old one's last change
			matters -= d.At - last
		}
		want := max(life, withMargin(matters))
		last = d.At
		if i == 4 {
			want = life
		}
		if h.life < want || h.life > want+2*rounding {
			t.Errorf("step %d: states live for %d us, want %d", i, h.life, want)
		}
		if h.start != start || h.turn != start+withMargin(20_000_000) || h.life < life || d.Applied != step.permits {
			t.Errorf("step %d: %+v and %+v", i, h, d)
		}
		life = h.life
		expires := stint.Instant(1000 * redis(t, "PEXPIRETIME", key).(int64))
		if end := h.turn + withMargin(h.life); expires < end-slackTTL || expires > end+slackTTL {
			t.Errorf("step %d: expires at %s, want %s", i, expires.Time(), end.Time())
		}
	}
}

// slackTTL is how far an expiry may be from where the script's time puts it.
const slackTTL = stint.Instant(500_000)

// longest is how long a state of a limit matters at most, in microseconds: two
// bounds, which only a calendar's hours and days in a year hold apart.
func longest(limit stint.Limit) (least, most stint.Instant) {
	us := func(d time.Duration) stint.Instant { return stint.Instant(d.Microseconds()) }
	switch {
	case limit.IsBucket():
		permits := new(big.Int).SetInt64(limit.Capacity + bounds.Debt(limit.MaxDebt, limit.Capacity))
		permits.Mul(permits, big.NewInt(limit.Rate.Period.Microseconds()))
		permits.Add(permits, big.NewInt(limit.Rate.Permits-1))
		n := stint.Instant(permits.Div(permits, big.NewInt(limit.Rate.Permits)).Int64())
		return n, n
	case limit.Calendar != 0:
		const day = 24 * time.Hour
		units := [...][2]time.Duration{
			{time.Minute, time.Minute},
			{time.Hour, 25 * time.Hour},
			{25 * time.Hour, 49 * time.Hour},
			{7*day + time.Hour, 9 * day},
			{31*day + time.Hour, 33 * day},
			{366 * day, 368 * day},
		}
		unit := units[limit.Calendar-stint.CalendarMinute]
		return us(unit[0]), us(unit[1])
	case limit.Algorithm == stint.AlgorithmSlidingWindowCounter:
		return us(2 * limit.Window), us(2 * limit.Window)
	default:
		return us(limit.Window), us(limit.Window)
	}
}

// withMargin is a life with a tenth more, and at least a second.
func withMargin(life stint.Instant) stint.Instant { return life + max(life/10, 1_000_000) }

// A peek, a denial, a try that is denied and a settlement that changes nothing
// write nothing: no command that writes is called, by clients or scripts.
func TestDenialWritesNothing(t *testing.T) {
	own := testredis.Start(t)
	for _, encoding := range encodings {
		store := open(t, own.URL(), redisstore.Options{LogEncoding: encoding, KeyPrefix: string(encoding)})
		for _, algorithm := range notation.Algorithms() {
			limit := aLimit(algorithm, 10).WithMaxDebt(stint.NoDebt)
			policy := policyOf(t, "", limit)
			other := policyOf(t, "other", aLimit(stint.AlgorithmSlidingWindowCounter, 1).Named("one"), aLimit(algorithm, 10))
			changed := policyOf(t, "", aLimit(algorithm, 9).WithMaxDebt(stint.NoDebt))
			take(t, store, "k", policy, 10)
			take(t, store, "k", other, 1)
			must.Get(own.Do("CONFIG", "RESETSTAT"))(t)
			for _, o := range []stint.Op{
				op(stint.VerbTake, "k", policy, 1), op(stint.VerbTry, "k", policy, 1), op(stint.VerbPeek, "k", policy, 1),
				op(stint.VerbTake, "k", policy, 11), op(stint.VerbTake, "new", policy, 11), op(stint.VerbPeek, "new", policy, 1),
				op(stint.VerbSettle, "k", policy, 5), op(stint.VerbTake, "k", other, 1), op(stint.VerbTake, "k", changed, 1),
			} {
				d := decide(t, store, o)
				if o.Key == "k" && o.Verb != stint.VerbSettle && d.Allowed || d.Applied != 0 {
					t.Fatalf("%s, %s: %s is carried out: %+v", encoding, algorithm, o.Verb, d)
				}
			}
			stats := must.Get(own.Info("commandstats"))(t)
			for _, name := range must.Get(own.Do("ACL", "CAT", "write"))(t).([]any) {
				if n, called := stats["cmdstat_"+name.(string)]; called {
					t.Errorf("%s, %s: called %s: %s", encoding, algorithm, name, n)
				}
			}
		}
	}
}
