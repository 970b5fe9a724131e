package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/internal/rulediff"
	"github.com/stint-go/stint/service/internal/adminapi"
	"github.com/stint-go/stint/service/internal/rulestore"
	"github.com/stint-go/stint/service/internal/server/problem"
)

const (
	// maxRevisions bounds a page of revisions. Its default length is defaultRevisions.
	maxRevisions     = 1000
	defaultRevisions = 50
	// historyTimeout bounds the search for revisions of a rule. After it the answer has what was
	// found.
	historyTimeout = 2 * time.Second
)

// manager returns the manager of the rules, or an error if there is none.
func (c *call) manager() (*rulestore.Manager, error) {
	if c.api.config.Manager == nil {
		return nil, problem.New(http.StatusNotFound, "there are no revisions: rules come from %s", c.api.config.RulesFrom)
	}
	return c.api.config.Manager, nil
}

// listRevisions shows who edited rules, the newest first.
func (c *call) listRevisions() (list adminapi.RuleRevisionList, err error) {
	before, err := c.query.Integer("before", 0, 1, math.MaxInt64)
	if err != nil {
		return list, err
	}
	limit, err := c.query.Integer("limit", defaultRevisions, 1, maxRevisions)
	if err != nil {
		return list, err
	}
	return c.revisions(before, int(limit), c.query.Get("rule"))
}

// revisions lists at most limit revisions before one, with a rule only those that changed it. It searches for about
// historyTimeout, and says where to continue.
func (c *call) revisions(before int64, limit int, rule string) (adminapi.RuleRevisionList, error) {
	list := adminapi.RuleRevisionList{Revisions: []adminapi.RuleRevision{}}
	m := c.api.config.Manager
	if m == nil {
		list.RulesFrom = c.api.config.RulesFrom
		return list, nil
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	infos, err := m.History(ctx, before, map[bool]int{true: limit, false: maxRevisions}[rule == ""])
	if err != nil {
		return list, unreachable(err)
	}
	begun := time.Now()
	var now rulestore.Revision // of the info before, or the zero Revision
	for i, info := range infos {
		changes := true
		if rule != "" {
			if changes, err = changedIn(ctx, m, info.Number, rule, &now); err != nil {
				return list, unreachable(err)
			}
		}
		if changes {
			list.Revisions = append(list.Revisions, revisionOf(info))
		}
		if len(list.Revisions) == limit || rule != "" && time.Since(begun) >= historyTimeout {
			if i+1 < len(infos) || info.Number > 1 && rule == "" {
				list.Next = info.Number
			}
			break
		}
	}
	return list, nil
}

// revisionOf is a revision on the wire, with its time in UTC.
func revisionOf(info rulestore.Info) adminapi.RuleRevision {
	return adminapi.RuleRevision{
		Revision: info.Number,
		At:       info.Time().UTC(),
		By:       info.By,
		Action:   info.Action,
		Comment:  info.Comment,
		Rules:    info.Count,
		Bytes:    info.Bytes,
	}
}

// changedIn reports whether a revision changed a rule. It is false if the revision before it is not
// kept. now may hold the revision, so that it is not loaded again. On return it holds the revision
// before.
func changedIn(
	ctx context.Context,
	m *rulestore.Manager,
	number int64,
	id string,
	now *rulestore.Revision,
) (changed bool, err error) {
	if now.Number != number {
		if *now, err = m.Revision(ctx, number); err != nil {
			return false, notKept(err)
		}
	}
	after, is := now.Rule(id)
	*now = rulestore.Revision{}
	if number > 1 {
		if *now, err = m.Revision(ctx, number-1); err != nil {
			return false, notKept(err)
		}
	}
	before, was := now.Rule(id)
	return was != is || was && !before.Equal(&after), nil
}

// notKept turns rulestore.ErrNotKept into nil, and returns other errors unchanged.
func notKept(err error) error {
	if errors.Is(err, rulestore.ErrNotKept) {
		return nil
	}
	return err
}

// getRevision shows a revision, and the rules that it changed, before and after.
func (c *call) getRevision() error {
	since, err := c.query.Integer("since", max(0, c.number-1), 0, math.MaxInt64)
	if err != nil {
		return err
	}
	m, err := c.manager()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	var old rulestore.Revision // the zero Revision is before the first
	now, err := m.Revision(ctx, c.number)
	if err == nil && since > 0 {
		old, err = m.Revision(ctx, since)
	}
	if err != nil {
		return unreachable(c.notKept(ctx, err, 1))
	}
	tag := fmt.Sprintf(`"%d-%d-%d"`, now.Number, now.At, old.At)
	return c.show(now.Number, tag, func() ([]byte, error) {
		diff := adminapi.RuleRevisionDiff{
			RuleRevision: revisionOf(now.Info), Since: old.Number, Changes: []adminapi.RuleChange{},
		}
		for _, change := range rulediff.Diff(old.Rules, now.Rules) {
			shown, err := c.shownChange(change)
			if err != nil {
				return nil, err
			}
			diff.Changes = append(diff.Changes, shown)
		}
		return problem.Marshal(diff)
	})
}

// rollback makes all rules, or one of them, what they were at a revision.
func (c *call) rollback() (answer adminapi.Edited, err error) {
	if c.r.ContentLength != 0 {
		return answer, problem.BadRequest("there is a body; allowed: none, as the parameters are in the query")
	}
	id := c.query.Get("rule")
	if c.query.Has("rule") && id == "" {
		return answer, invalid("rule", id, "the ID of a rule, or none")
	}
	c.rule, c.target = id, strconv.FormatInt(c.number, 10)
	what := fmt.Sprintf("roll back to revision %d", c.number)
	if id != "" {
		what = fmt.Sprintf("roll back %s to revision %d", id, c.number)
	}
	e, err := c.commit(what, func(
		ctx context.Context, m *rulestore.Manager, author rulestore.Author,
	) (rulestore.Edited, error) {
		e, err := m.Rollback(ctx, author, c.number, id, c.checkList)
		if errors.Is(err, rulestore.ErrNoRule) {
			return e, problem.New(http.StatusNotFound, "there is no rule %s, neither now nor in revision %d",
				problem.Short(id), c.number)
		}
		return e, c.notKept(ctx, err, 0) // 0 is before the first
	})
	if err != nil {
		return answer, err
	}
	return c.edited(&e)
}

// notKept turns rulestore.ErrNotKept into 410 if the revision existed once, and into 404 if it never did. Numbers begin
// with first.
func (c *call) notKept(ctx context.Context, err error, first int64) error {
	if !errors.Is(err, rulestore.ErrNotKept) {
		return err
	}
	now, err := c.api.config.Manager.Current(ctx)
	if err != nil {
		return err
	}
	if c.number > now.Number || c.number < first {
		return problem.New(http.StatusNotFound, "there is no revision %d; the newest is %d", c.number, now.Number)
	}
	return problem.New(
		http.StatusGone, "revision %d, or the revision that it is compared with, is no longer kept", c.number,
	)
}
