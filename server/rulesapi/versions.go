package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
	"github.com/stint-go/stint/server/problem"
)

const (
	// maxVersions bounds a page of versions, which has defaultVersions where nothing is said.
	maxVersions     = 1000
	defaultVersions = 50
	// historyTimeout is how long versions of a rule are looked for before what was found is shown.
	historyTimeout = 2 * time.Second
)

// manager is what keeps the versions.
func (c *call) manager() (*store.Manager, error) {
	if c.api.config.Manager == nil {
		return nil, problem.New(http.StatusNotFound, "there are no versions: rules come from %s", c.api.config.RulesFrom)
	}
	return c.api.config.Manager, nil
}

// listVersions shows who edited rules, the newest first.
func (c *call) listVersions() error {
	before, err := c.query.Integer("before", 0, 1, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := c.query.Integer("limit", defaultVersions, 1, maxVersions)
	if err != nil {
		return err
	}
	list, err := c.versions(before, int(limit), c.query.Get("rule"))
	if err != nil {
		return err
	}
	return problem.Answer(c.w, c.r, http.StatusOK, list)
}

// versions are at most limit versions before one, of a rule if it is not "". It looks for about historyTimeout, and says
// where to go on.
func (c *call) versions(before int64, limit int, rule string) (api.RuleVersionList, error) {
	list := api.RuleVersionList{Versions: []api.RuleVersion{}}
	m, err := c.manager()
	if err != nil {
		return list, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	infos, err := m.History(ctx, before, map[bool]int{true: limit, false: maxVersions}[rule == ""])
	if err != nil {
		return list, unreachable(err)
	}
	begun := time.Now()
	var now store.Revision // the one of the info before
	for i, info := range infos {
		changes := true
		if rule != "" {
			if changes, err = changedIn(ctx, m, info.Number, rule, &now); err != nil {
				return list, unreachable(err)
			}
		}
		if changes {
			list.Versions = append(list.Versions, versionOf(info))
		}
		if len(list.Versions) == limit || rule != "" && time.Since(begun) >= historyTimeout {
			if i+1 < len(infos) || info.Number > 1 && rule == "" {
				list.Next = info.Number
			}
			break
		}
	}
	return list, nil
}

func versionOf(info store.Info) api.RuleVersion {
	return api.RuleVersion{
		Version: info.Number, At: info.Time().UTC(), By: info.By, Action: info.Action, Comment: info.Comment, Rules: info.Count, Bytes: info.Bytes,
	}
}

// changedIn reports whether a version changed a rule. It is false of a version of which the one before is not kept.
// now is that version if it was loaded before, and then the one before it.
func changedIn(ctx context.Context, m *store.Manager, number int64, id string, now *store.Revision) (changed bool, err error) {
	if now.Number != number {
		if *now, err = m.Revision(ctx, number); err != nil {
			return false, notKept(err)
		}
	}
	after, is := now.Rule(id)
	*now = store.Revision{}
	if number > 1 {
		if *now, err = m.Revision(ctx, number-1); err != nil {
			return false, notKept(err)
		}
	}
	before, was := now.Rule(id)
	return was != is || was && !before.Equal(&after), nil
}

// notKept returns the error, nil if it says that a version is not kept.
func notKept(err error) error {
	if errors.Is(err, store.ErrNotKept) {
		return nil
	}
	return err
}

// getVersion shows a version with the rules that it changed as they were before and after.
func (c *call) getVersion() error {
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
	var old store.Revision // the zero one is before the first
	now, err := m.Revision(ctx, c.number)
	if err == nil && since > 0 {
		old, err = m.Revision(ctx, since)
	}
	if err != nil {
		return unreachable(c.notKept(ctx, err, 1))
	}
	tag := fmt.Sprintf(`"%d-%d-%d"`, now.Number, now.At, old.At)
	return c.show(now.Number, tag, func() ([]byte, error) {
		diff := api.RuleVersionDiff{RuleVersion: versionOf(now.Info), Since: old.Number, Changes: []api.RuleChange{}}
		for _, change := range rules.Diff(old.Rules, now.Rules) {
			shown, err := c.shownChange(change)
			if err != nil {
				return nil, err
			}
			diff.Changes = append(diff.Changes, shown)
		}
		return problem.Marshal(diff)
	})
}

// rollback makes all rules what they were at a version.
func (c *call) rollback() error {
	if c.r.ContentLength != 0 {
		return problem.New(http.StatusBadRequest, "there is a body; allowed: none, as the parameters are in the query")
	}
	v, err := c.commit(fmt.Sprintf("roll back to version %d", c.number), func(ctx context.Context, m *store.Manager, author store.Author) (store.Edited, error) {
		v, err := m.Rollback(ctx, author, c.number, c.checkList)
		return v, c.notKept(ctx, err, 0) // which is before the first
	})
	if err != nil {
		return err
	}
	return c.edited(&v)
}

// notKept tells a version that there was, from first on, from one that there never was.
func (c *call) notKept(ctx context.Context, err error, first int64) error {
	if !errors.Is(err, store.ErrNotKept) {
		return err
	}
	now, err := c.api.config.Manager.Current(ctx)
	if err != nil {
		return err
	}
	if c.number > now.Number || c.number < first {
		return problem.New(http.StatusNotFound, "there is no version %d; the newest is %d", c.number, now.Number)
	}
	return problem.New(http.StatusGone, "version %d, or the version that it is compared with, is no longer kept", c.number)
}
