package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
)

const (
	// maxResets is how many resets may run at once.
	maxResets = 4
	// keptResets is how many are known, those that ended included.
	keptResets = 64
)

// resets are those of all clients of a rule. They run in the background.
type resets struct {
	forgetter stint.Forgetter // nil: the store can't
	metrics   *metrics
	audit     func(record)
	done      context.Context
	stop      context.CancelFunc
	running   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	last   int64
	all    []*reset // the newest last
}

// A reset is one of them.
type reset struct {
	number int64
	rule   string
	by     Caller
	start  time.Time
	cancel context.CancelFunc
	ended  chan struct{} // closed when it has ended

	mu       sync.Mutex
	progress stint.ForgetProgress
	state    string
	end      time.Time
	err      error
}

func newResets(store stint.Store, m *metrics, audit func(record)) *resets {
	r := &resets{metrics: m, audit: audit}
	r.forgetter, _ = store.(stint.Forgetter)
	r.done, r.stop = context.WithCancel(context.Background())
	return r
}

// start begins a reset, if there is room for it.
func (r *resets) start(rule string, by Caller) (api.RuleReset, error) {
	if r.forgetter == nil {
		return api.RuleReset{}, &Refusal{Status: http.StatusNotImplemented, Detail: "the store can't reset a whole rule; reset its clients one by one"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return api.RuleReset{}, &Refusal{Status: http.StatusServiceUnavailable, Detail: "the service stops"}
	}
	running := 0
	for _, other := range r.all {
		if other.hasEnded() {
			continue
		}
		if running++; other.rule == rule {
			return api.RuleReset{}, &Refusal{
				Status: http.StatusConflict, Detail: fmt.Sprintf("reset %d of this rule is under way", other.number),
				Field: "Location", Value: fmt.Sprintf("%s/%d", api.PathRuleResets, other.number),
			}
		}
	}
	if running >= maxResets {
		return api.RuleReset{}, &Refusal{
			Status: http.StatusTooManyRequests, Detail: fmt.Sprintf("%d resets are under way; allowed: at most %d at once", running, maxResets),
			Field: "Retry-After", Value: "10",
		}
	}
	ctx, cancel := context.WithCancel(r.done)
	r.last++
	job := &reset{number: r.last, rule: rule, by: by, start: time.Now(), cancel: cancel, ended: make(chan struct{}), state: api.ResetRunning}
	r.all = append(r.all, job)
	r.trim()
	r.metrics.running.Inc()
	begun := job.show()
	r.running.Go(func() { r.run(ctx, job) })
	return begun, nil
}

// trim forgets resets that ended long ago.
func (r *resets) trim() {
	for i := 0; i < len(r.all) && len(r.all) > keptResets; {
		if !r.all[i].hasEnded() {
			i++
			continue
		}
		r.all = append(r.all[:i:i], r.all[i+1:]...)
	}
}

// run carries a reset out.
func (r *resets) run(ctx context.Context, job *reset) {
	defer job.cancel()
	err := r.forgetter.ForgetPolicy(ctx, rules.PolicyPrefix+job.rule, job.note)
	state := endOf(err, ctx.Err() != nil)
	// Who sees that it has ended finds it counted and recorded.
	r.metrics.running.Dec()
	r.metrics.resets.WithLabelValues(state).Inc()
	r.audit(record{caller: job.by, action: "reset_rule", rule: job.rule, outcome: state, detail: faultOf(state, err), err: err})
	job.finish(state, err)
	close(job.ended)
}

// endOf says what came of a reset.
func endOf(err error, cancelled bool) string {
	switch {
	case err == nil:
		return api.ResetDone
	case cancelled:
		return api.ResetCancelled
	default:
		return api.ResetFailed
	}
}

// faultOf says why a reset failed, "" if it did not.
func faultOf(state string, err error) string {
	switch {
	case state != api.ResetFailed:
		return ""
	case errors.Is(err, stint.ErrUnavailable):
		return "the store was away; some clients are as new, others are not: start it again"
	case errors.Is(err, stint.ErrInvalid):
		return "the store can't reset a whole rule"
	default:
		return "it failed; the log says more"
	}
}

// note takes over how far it has come.
func (j *reset) note(p stint.ForgetProgress) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.progress = p
}

// finish lets everybody see what came of it.
func (j *reset) finish(state string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.end, j.state, j.err = time.Now(), state, err
}

func (j *reset) hasEnded() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.state != api.ResetRunning
}

// show is the reset on the wire.
func (j *reset) show() api.RuleReset {
	j.mu.Lock()
	defer j.mu.Unlock()
	shown := api.RuleReset{
		Reset: j.number, Rule: j.rule, By: j.by.Name, State: j.state,
		Done: j.progress.Done, Total: j.progress.Total, States: j.progress.States, StartedAt: j.start.UnixMicro(),
	}
	if j.state != api.ResetRunning {
		shown.EndedAt, shown.Error = j.end.UnixMicro(), faultOf(j.state, j.err)
	}
	return shown
}

// list shows all resets that are known, the oldest first.
func (r *resets) list() []api.RuleReset {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]api.RuleReset, len(r.all))
	for i, job := range r.all {
		list[i] = job.show()
	}
	return list
}

func (r *resets) find(number int64) (*reset, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, job := range r.all {
		if job.number == number {
			return job, nil
		}
	}
	return nil, &Refusal{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no reset %d in this process, or not any more", number)}
}

// close ends all resets, and waits for them.
func (r *resets) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.running.Wait()
}
