package activity

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/sleep"
	"github.com/stint-go/stint/service/internal/server/problem"
)

const (
	// questionTime is how long answers are awaited: each process looks for questions every shareGap.
	questionTime = 2 * shareGap
	// answerGap is between two looks for answers.
	answerGap = 200 * time.Millisecond
	// maxQuestions bounds those of all processes that are open at once.
	maxQuestions = 32
	// maxAnswer bounds the denials in an answer, in bytes of JSON.
	maxAnswer = 64 << 10
	// MaxAsked bounds the denials that are wanted, and so the work of an answer.
	MaxAsked = 1000
	// maxHashes bounds the keys by which a client is sought, which are a few forms of one name.
	maxHashes = 100
)

//go:embed question.lua
var questionLua string

// A question asks the other processes for denials.
type question struct {
	Asker string      `json:"asker"` // the process's name
	Query denialQuery `json:"query"`
	Limit int         `json:"limit"` // how many denials are wanted
}

// bounded reports whether a process of this version may have asked it. Others may write into Redis, too, and a question
// must not cost more than one of ours.
func (q *question) bounded() bool {
	texts := []string{q.Query.Rule, q.Query.Reason, q.Query.Text, q.Query.Salt}
	long := func(text string) bool { return len(text) > maxClient }
	return 1 <= q.Limit && q.Limit <= MaxAsked && len(q.Query.Clients) <= maxHashes &&
		!slices.ContainsFunc(texts, long) && !slices.ContainsFunc(q.Query.Clients, long)
}

// An answer is what one process knows.
type answer struct {
	Process string        `json:"process"`
	Denials []Denial      `json:"denials"` // the newest first
	More    bool          `json:"more"`    // there are older ones
	Kept    int64         `json:"kept"`
	From    stint.Instant `json:"from"`
}

// answered are the questions of others that this process has answered and that are still open.
type answered struct {
	mu  sync.Mutex // guards what follows
	ids map[string]bool
}

// fresh returns the questions that were not there before.
func (a *answered) fresh(open map[string]string) map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.ids
	a.ids = make(map[string]bool, len(open))
	for id := range open {
		if a.ids[id] = true; was[id] {
			delete(open, id)
		}
	}
	return open
}

// answerTo is this process's answer, of which so many bytes of denials are kept; 0 is any number.
func (r *Recorder) answerTo(q *question, most int) answer {
	a := answer{Process: r.config.Process.Name}
	a.Denials, a.More = r.denialsOf(&q.Query, q.Limit)
	a.Kept, a.From = r.known(&q.Query)
	for i, size := 0, 0; most > 0 && i < len(a.Denials); i++ {
		text, _ := json.Marshal(&a.Denials[i]) // which a denial always can
		if size += len(text) + 1; size > most {
			a.Denials, a.More = a.Denials[:i], true
		}
	}
	return a
}

// answerAll answers the open questions of other processes, each once, within shareTime.
func (r *Recorder) answerAll(ctx context.Context, open map[string]string) {
	if len(open) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	for id, text := range r.shared.answered.fresh(open) {
		if ctx.Err() != nil {
			return // their askers find this process silent
		}
		var q question
		if json.Unmarshal([]byte(text), &q) != nil || q.Asker == r.config.Process.Name || !q.bounded() {
			continue
		}
		if text, err := json.Marshal(r.answerTo(&q, maxAnswer)); err == nil {
			_, _ = r.evalQuestion(ctx, "answer", id, string(text)) // the process that asked says whose answer it lacks
		}
	}
}

// evalQuestion runs the script of questions, for shareTime at most.
func (r *Recorder) evalQuestion(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, shareTime)
	defer cancel()
	return r.config.Eval(ctx, questionLua, r.config.KeyPrefix+":activity", args)
}

// askDenials finds the last denials of all processes, as they are within questionTime.
func (r *Recorder) askDenials(ctx context.Context, q denialQuery, n int) (Denials, error) {
	asked := question{Asker: r.config.Process.Name, Query: q, Limit: n}
	answers := []answer{r.answerTo(&asked, 0)}
	if r.config.Eval == nil {
		return merged(ScopeProcess, answers, nil, n), nil
	}
	v := r.view(ctx)
	silent := map[string]bool{}
	for i := range v.summaries[1:] {
		silent[v.summaries[i+1].Name] = true
	}
	if len(silent) > 0 {
		others, err := r.put(ctx, &asked, silent)
		if err != nil {
			return Denials{}, err
		}
		answers = append(answers, others...)
	}
	d := merged(v.scope, answers, silent, n)
	d.Unasked = v.scope == ScopeProcess
	d.From = max(d.From, v.ended)
	return d, nil
}

// put asks the other processes, and awaits their answers. Those who answer are no longer silent.
func (r *Recorder) put(ctx context.Context, q *question, silent map[string]bool) (answers []answer, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return nil, err // which a question never has
	}
	id := rand.Text()
	until := r.config.Now().Add(questionTime)
	reply, err := r.evalQuestion(ctx, "ask", id, string(text), strconv.Itoa(maxQuestions),
		strconv.FormatInt(shareLife.Milliseconds(), 10))
	if err != nil {
		return nil, nil // all others stay silent
	}
	if reply != "" {
		return nil, problem.ReducedCapacity("the processes are being asked " + strconv.Itoa(maxQuestions) +
			" questions; allowed: that many at once; scope=process asks this process alone")
	}
	defer func() { _, _ = r.evalQuestion(context.WithoutCancel(ctx), "end", id) }()
	for len(silent) > 0 && r.config.Now().Before(until) {
		if err := sleep.For(ctx, answerGap); err != nil {
			return nil, err
		}
		reply, err := r.evalQuestion(ctx, "read", id)
		if err != nil {
			continue
		}
		for line := range strings.Lines(strings.TrimPrefix(reply, "\n")) {
			var a answer
			twice := func(b answer) bool { return a.Process == b.Process }
			if json.Unmarshal([]byte(line), &a) == nil && !slices.ContainsFunc(answers, twice) {
				answers = append(answers, a)
				delete(silent, a.Process)
			}
		}
	}
	return answers, nil
}

// merged is what the processes know together: each pair of rule and client once, the newest first.
func merged(scope string, answers []answer, silent map[string]bool, n int) Denials {
	d := Denials{Scope: scope, Processes: len(answers) + len(silent), Denials: []Denial{}}
	for name := range silent {
		d.Silent = append(d.Silent, name)
	}
	slices.Sort(d.Silent)
	for i := range answers {
		a := &answers[i]
		d.Kept, d.From, d.More = d.Kept+a.Kept, max(d.From, a.From), d.More || a.More
		d.Denials = append(d.Denials, a.Denials...)
	}
	d.Denials = mergeDenials(d.Denials)
	d.bound(n)
	return d
}

// bound leaves the first n, and says that there are more.
func (d *Denials) bound(n int) {
	if len(d.Denials) > n {
		d.Denials, d.More = d.Denials[:n], true
	}
}

// mergeDenials makes one of those of the same rule and client: since the first of them, with the last request.
func mergeDenials(list []Denial) []Denial {
	slices.SortStableFunc(list, func(a, b Denial) int { return cmp.Compare(b.At, a.At) })
	places, all := map[of]int{}, list[:0]
	for i := range list {
		d := list[i]
		at, known := places[of{d.Rule, d.Client, d.Shadow}]
		if known {
			all[at].First, all[at].Count = min(all[at].First, d.First), all[at].Count+d.Count
			continue
		}
		places[of{d.Rule, d.Client, d.Shadow}] = len(all)
		all = append(all, d)
	}
	return all
}

// An of is whom figures are of: a client of a rule, perhaps of a rule in shadow.
type of struct {
	rule, client string
	shadow       bool
}
