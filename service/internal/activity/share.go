package activity

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	_ "embed" // the script
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
)

// Eval runs a script in Redis with one key and its arguments, and returns its reply, a string. It must end with ctx,
// and must be safe for concurrent use.
type Eval func(ctx context.Context, script, key string, args []string) (string, error)

const (
	shareGap  = 2 * time.Second // between two summaries of a process
	shareLife = 8 * time.Second // of a summary, after which its process is taken for dead
	shareTime = time.Second     // longest that Redis may take
	// freshFor is how long what all processes say is not asked for again.
	freshFor = time.Second
	// rateSeconds is what rates are an average of.
	rateSeconds = 10
	// topItems is how many clients a summary has.
	topItems = 100
	// fewDenials is how many denials it has: those that pages show as the last ones.
	fewDenials = 20
)

//go:embed share.lua
var shareLua string

// A summary is what a process tells the others.
type summary struct {
	ProcessStatus

	Top         []TopItem
	TopLeast    int64 // the most requests of a client that is not in Top
	Denied      []TopItem
	DeniedLeast int64

	ShadowDenied      []TopItem
	ShadowDeniedLeast int64

	Counted counted

	// the newest first, fewDenials of rules in shadow and as many others
	Denials []Denial
}

// A view is what all processes said.
type view struct {
	summaries []summary // this process's first
	scope     string
	at        time.Time
	ended     stint.Instant // when one of the processes ended last; 0 is not known
}

// shared is the last view, and which questions of others were answered.
type shared struct {
	asking   sync.Mutex // held while Redis is asked
	last     atomic.Pointer[view]
	answered answered
}

// identify gives the process a name by which others know it, unless it is configured, and the
// secret by which it hashes clients.
func (r *Recorder) identify() {
	_, _ = rand.Read(r.secret[:]) // which never fails
	p := &r.config.Process
	p.Name = cmp.Or(p.Name, rand.Text()[:8])
	if p.StartedAt == 0 {
		p.StartedAt = r.now()
	}
	if p.Host == "" {
		p.Host, _ = os.Hostname() // "" when the machine has none
	}
}

// mask returns what replaces a client's name for callers without a token. In this process the same client gets the same
// text.
func (r *Recorder) mask(names bool) func(client string) string {
	return func(client string) string {
		if names || client == "" {
			return client
		}
		sum := hmac.New(sha256.New, r.secret[:])
		_, _ = sum.Write([]byte(client)) // which never fails
		return "client-" + hex.EncodeToString(sum.Sum(nil)[:6])
	}
}

// maskDenials makes denials those for callers with or without names, who are not told attributes either.
func (r *Recorder) maskDenials(list []Denial, names bool) {
	clientOf := r.mask(names)
	for i := range list {
		if list[i].Client = clientOf(list[i].Client); !names {
			list[i].Attributes = nil
		}
	}
}

// summarize is this process's summary.
func (r *Recorder) summarize() summary {
	now := r.now()
	s := summary{ProcessStatus: ProcessStatus{Process: r.config.Process, At: now}}
	s.Denials, _ = r.denialsOf(&denialQuery{}, fewDenials)
	r.mu.Lock()
	defer r.mu.Unlock()
	second := uint32(now / 1e6)
	s.Revision, s.Store, s.Rates = r.changes.revision, r.changes.store(), r.rates(now)
	s.Counted = r.counted(second)
	s.Top, s.TopLeast = r.heaviest.top(second/60, topItems)
	s.Denied, s.DeniedLeast = r.denied.top(second/60, topItems)
	s.ShadowDenied, s.ShadowDeniedLeast = r.shadowDenied.top(second/60, topItems)
	return s
}

// rates are this process's; mu is held.
func (r *Recorder) rates(now stint.Instant) Rates {
	seconds := int(min(max(int64(now-r.config.Process.StartedAt)/1e6, 1), rateSeconds))
	t := r.totals.series(uint32(now/1e6)-uint32(seconds), seconds)
	average := func(counts []uint32) float64 {
		sum := uint64(0)
		for _, n := range counts {
			sum += uint64(n)
		}
		return float64(sum) / float64(seconds)
	}
	return Rates{
		Scope: ScopeProcess, Processes: 1,
		Admitted: average(t.Admitted), Denied: average(t.Denied), Degraded: average(t.Degraded),
	}
}

// share tells the others what this process does, and the streams what all do, until ctx is done.
func (r *Recorder) share(ctx context.Context) {
	tell := func() {
		if used := r.hub.used(r.config.Now()); used || r.config.Eval != nil {
			v := r.ask(ctx, used)
			if used {
				r.publishShared(v)
			}
		}
	}
	tell()
	sleep.Every(ctx, shareGap, tell)
	if r.config.Eval != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shareTime)
		defer cancel()
		_, _ = r.eval(ctx, "", "0") // else the summary goes when its time is over
	}
}

// eval writes this process's summary, which lives for shareLife, and reads those of the others, in
// one script.
func (r *Recorder) eval(ctx context.Context, summary, wanted string) (string, error) {
	life := strconv.FormatInt(shareLife.Microseconds(), 10)
	return r.config.Eval(
		ctx, shareLua, r.config.KeyPrefix+":activity", []string{r.config.Process.Name, summary, life, wanted},
	)
}

// ask tells the others what this process does, answers their questions, and returns what all do if that is wanted.
// When Redis does not answer, the view is of this process.
func (r *Recorder) ask(ctx context.Context, wanted bool) *view {
	v := r.ownView()
	if r.config.Eval == nil {
		return v
	}
	own, err := json.Marshal(&v.summaries[0])
	if err != nil {
		return v // which a summary always can
	}
	asking, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	text, err := r.eval(asking, string(own), strconv.Itoa(map[bool]int{true: 1}[wanted]))
	var reply struct {
		All   []string          // summaries
		Open  map[string]string // questions
		Ended stint.Instant
	}
	if err != nil || json.Unmarshal([]byte(text), &reply) != nil {
		return v
	}
	r.answerAll(ctx, reply.Open)
	if !wanted {
		return v
	}
	v.scope, v.ended = ScopeAll, reply.Ended
	for _, text := range reply.All {
		var s summary
		if json.Unmarshal([]byte(text), &s) == nil && s.Name != r.config.Process.Name {
			v.summaries = append(v.summaries, s)
		}
	}
	return v
}

// view is what all processes said within the last second.
func (r *Recorder) view(ctx context.Context) *view {
	r.shared.asking.Lock()
	defer r.shared.asking.Unlock()
	if v := r.lastView(freshFor); v != nil {
		return v
	}
	v := r.ask(context.WithoutCancel(ctx), true)
	r.shared.last.Store(v)
	return v
}

// lastView is the last view if it is young enough, else nil.
func (r *Recorder) lastView(within time.Duration) *view {
	v := r.shared.last.Load()
	if v == nil {
		return nil
	}
	if since := r.config.Now().Sub(v.at); since < 0 || since >= within {
		return nil
	}
	return v
}

// ownView is a view of this process alone.
func (r *Recorder) ownView() *view {
	return &view{summaries: []summary{r.summarize()}, scope: ScopeProcess, at: r.config.Now()}
}

// rates sums up the rates of all processes in view.
func (v *view) rates() Rates {
	sum := Rates{Scope: v.scope, Processes: len(v.summaries)}
	for i := range v.summaries {
		s := &v.summaries[i].Rates
		sum.Admitted, sum.Denied, sum.Degraded = sum.Admitted+s.Admitted, sum.Denied+s.Denied, sum.Degraded+s.Degraded
	}
	return sum
}

// processes lists the processes in view, of which the first is this one.
func (v *view) processes() Processes {
	p := Processes{Scope: v.scope, Processes: []ProcessStatus{}}
	for i := range v.summaries {
		p.Processes = append(p.Processes, v.summaries[i].ProcessStatus)
		p.Processes[i].Self = i == 0
	}
	return p
}

// top merges what the processes counted.
func (v *view) top(n int, clientOf func(string) string) Top {
	at := v.summaries[0].At
	t := Top{
		Scope: v.scope, Processes: len(v.summaries), From: (at/60e6 - topMinutes + 1) * 60e6, At: at, Rules: v.rules(),
		Series: v.hour(),
	}
	for i := range v.summaries {
		t.Total.add(v.summaries[i].Counted.Total)
	}
	t.Clients = v.merge(n, clientOf, func(s *summary) ([]TopItem, int64) { return s.Top, s.TopLeast })
	t.Denied = v.merge(n, clientOf, func(s *summary) ([]TopItem, int64) { return s.Denied, s.DeniedLeast })
	t.ShadowDenied = v.merge(
		n, clientOf, func(s *summary) ([]TopItem, int64) { return s.ShadowDenied, s.ShadowDeniedLeast },
	)
	return t
}

// merge adds up lists. A client may have as many requests as the list allows that does not have it.
func (v *view) merge(n int, clientOf func(string) string, list func(*summary) ([]TopItem, int64)) []TopItem {
	merged, unlisted := map[of]TopItem{}, int64(0)
	for i := range v.summaries {
		items, least := list(&v.summaries[i])
		unlisted += least
		for _, item := range items {
			client := of{rule: item.Rule, client: item.Client}
			known := merged[client]
			item.Count, item.Error = known.Count+item.Count-least, known.Error+item.Error-least
			merged[client] = item
		}
	}
	items := make([]TopItem, 0, len(merged))
	for _, item := range merged {
		item.Count, item.Error = item.Count+unlisted, item.Error+unlisted
		items = append(items, item)
	}
	slices.SortStableFunc(items, func(a, b TopItem) int {
		return cmp.Or(
			cmp.Compare(b.Count-b.Error, a.Count-a.Error), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.Client, b.Client),
		)
	})
	items = items[:min(n, len(items))]
	for i := range items {
		items[i].Client = clientOf(items[i].Client)
	}
	return items
}

// denials are the last of all processes, the newest first.
func (v *view) denials(n int) SharedDenials {
	all := []Denial{}
	for i := range v.summaries {
		all = append(all, v.summaries[i].Denials...)
	}
	all = mergeDenials(all)
	return SharedDenials{Scope: v.scope, Processes: len(v.summaries), Denials: all[:min(n, len(all))]}
}
