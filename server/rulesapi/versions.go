package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules/registry"
)

const (
	// maxVersions bounds a page of versions, which has defaultVersions where nothing is said.
	maxVersions     = 1000
	defaultVersions = 50
	// readAtOnce is how many versions are read at a time: each holds its rules, up to
	// registry.MaxVersionBytes of them.
	readAtOnce = 10
	// lookTimeout is how long versions are looked for before what was found is shown.
	lookTimeout = 2 * time.Second
)

// registry is what keeps the versions.
func (c *Call) registry() (*registry.Registry, error) {
	if c.api.config.Registry == nil {
		return nil, &Refusal{
			Status: http.StatusNotFound,
			Detail: fmt.Sprintf("there are no versions: rules come from %s", c.api.config.RulesFrom),
		}
	}
	return c.api.config.Registry, nil
}

// listVersions shows who edited what, the newest first.
func (c *Call) listVersions() error {
	if err := c.query.only("before", "limit", "rule"); err != nil {
		return err
	}
	before, err := c.query.integer("before", 0, 1, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := c.query.integer("limit", defaultVersions, 1, maxVersions)
	if err != nil {
		return err
	}
	rule, _ := c.query.get("rule")
	list, err := c.versions(before, int(limit), rule)
	if err != nil {
		return err
	}
	return c.answer(list)
}

// versions are at most limit versions before one, of a rule if it is not "". It looks at so many as are
// kept for certain, and for about lookTimeout, and says where to go on.
func (c *Call) versions(before int64, limit int, rule string) (api.RuleVersionList, error) {
	list := api.RuleVersionList{Versions: []api.RuleVersion{}}
	r, err := c.registry()
	if err != nil {
		return list, err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	begun := time.Now()
	for looked := 0; looked < registry.KeptVersions && time.Since(begun) < lookTimeout; looked += readAtOnce {
		n := readAtOnce
		if rule == "" {
			n = min(n, limit-len(list.Versions))
		}
		page, err := r.Versions(ctx, before, n)
		if err != nil {
			return list, away(err)
		}
		for i := range page {
			v := &page[i]
			before = v.Number
			if rule != "" && !slices.ContainsFunc(v.Changes, func(c registry.Change) bool { return c.ID == rule }) {
				continue
			}
			list.Versions = append(list.Versions, api.RuleVersion{
				Version: v.Number, At: v.At, By: v.By, Action: v.Action, Comment: v.Comment, RuleChanges: changesOf(v),
			})
			if len(list.Versions) == limit {
				break
			}
		}
		full := len(list.Versions) == limit
		if before == 1 || !full && len(page) < n {
			return list, nil // there are no others
		}
		if full {
			break
		}
	}
	list.Next = before
	return list, nil
}

// getVersion shows a version with the rules as they were before and after.
func (c *Call) getVersion() error {
	if err := c.query.only(); err != nil {
		return err
	}
	r, err := c.registry()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	v, err := r.Version(ctx, c.number)
	if err != nil {
		return away(c.notKept(ctx, err, 1))
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return err
	}
	return c.show(v.Number, tagOf(text), func() ([]byte, error) { return c.maskedVersion(v).MarshalJSON() })
}

// rollback makes all rules what they were at a version.
func (c *Call) rollback() error {
	if err := c.query.only("comment"); err != nil {
		return err
	}
	if err := c.noBody(); err != nil {
		return err
	}
	asked, err := conditionsOf(c.r.Header)
	if err != nil {
		return err
	}
	v, err := c.commit(fmt.Sprintf("roll back to version %d", c.number), func(ctx context.Context, r *registry.Registry, author registry.Author) (registry.Version, error) {
		v, err := r.Rollback(ctx, author, c.number, func(d *registry.Draft) error { return holdList(asked, d) })
		return v, c.notKept(ctx, err, 0) // which is before the first
	})
	if err != nil {
		return err
	}
	return c.edited(&v)
}

// notKept tells a version that there was, from first on, from one that there never was.
func (c *Call) notKept(ctx context.Context, err error, first int64) error {
	if !errors.Is(err, registry.ErrNotKept) {
		return err
	}
	snapshot, err := c.api.config.Registry.Current(ctx)
	if err != nil {
		return err
	}
	if c.number > snapshot.Number || c.number < first {
		return &Refusal{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no version %d; the newest is %d", c.number, snapshot.Number)}
	}
	return &Refusal{Status: http.StatusGone, Detail: fmt.Sprintf("version %d is not kept any more, or one since is not", c.number)}
}
