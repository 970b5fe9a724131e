package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/store"
)

// editTimeout bounds the reading and the editing of rules.
const editTimeout = 10 * time.Second

// edit makes the next version of the rules, and notes it in the answer's header. change is called
// as [store.Manager.Edit] says. what is about what, for people: "replace login".
func (c *Call) edit(what string, change func(*store.Draft) error) (store.Edited, error) {
	return c.commit(what, func(ctx context.Context, m *store.Manager, author store.Author) (store.Edited, error) {
		return m.Edit(ctx, author, func(d *store.Draft) error {
			if err := change(d); err != nil {
				return err
			}
			return showsNoKey(d)
		})
	})
}

// commit has the registry make a version.
func (c *Call) commit(what string, do func(context.Context, *store.Manager, store.Author) (store.Edited, error)) (store.Edited, error) {
	comment, err := c.query.comment()
	if err != nil {
		return store.Edited{}, err
	}
	m := c.api.config.Manager
	if m == nil {
		return store.Edited{}, &Refusal{
			Status: http.StatusConflict,
			Detail: fmt.Sprintf("rules can't be changed here: they come from %s; change them there", c.api.config.RulesFrom),
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	v, err := do(ctx, m, store.Author{By: c.caller.Name, Action: what, Comment: comment})
	if err != nil {
		return store.Edited{}, editFault(err)
	}
	c.version = v.Number
	if v.None() {
		c.outcome = outcomeUnchanged
	}
	c.w.Header().Set(api.HeaderVersion, strconv.FormatInt(v.Number, 10))
	return v, nil
}

// editFault turns what a registry reports into a refusal, as far as it has a status of its own.
func editFault(err error) error {
	switch {
	case errors.Is(err, store.ErrUnreadable):
		return unreadable(err)
	case errors.Is(err, store.ErrConflict):
		return &Refusal{Status: http.StatusConflict, Detail: "others edit the rules at the same time, again and again; try it later"}
	case errors.Is(err, store.ErrRefused):
		return &Refusal{
			Status: http.StatusServiceUnavailable, cause: err,
			Detail: "the edit was refused where the rules are kept, nothing was changed; the log says why",
		}
	case !isAway(err):
		return err
	case errors.Is(err, store.ErrNotBegun):
		return &Refusal{
			Status: http.StatusServiceUnavailable, cause: err,
			Detail: "the rules could not be read" + inTime(err) + ", nothing was changed; the log says why",
		}
	default:
		return &Refusal{
			Status: http.StatusServiceUnavailable, cause: err, unconfirmed: true,
			Detail: "the edit was not confirmed" + inTime(err) + "; whether it was made the versions tell",
		}
	}
}

// changesOf are IDs on the wire.
func changesOf(ids rules.Changes) api.RuleChanges {
	list := func(ids []string) []string { return append([]string{}, ids...) }
	return api.RuleChanges{Added: list(ids.Added), Removed: list(ids.Removed), Changed: list(ids.Changed)}
}

// edited answers an edit of all rules.
func (c *Call) edited(v *store.Edited) error {
	tag, err := listTag(v.ID, nil) // before the first version there are no rules
	if err != nil {
		return err
	}
	c.w.Header().Set("Etag", tag)
	return c.answer(api.Edited{Version: v.Number, At: timeOf(v.ID), RuleChanges: changesOf(v.Changes)})
}

// timeOf is when a version was made, the zero time for none.
func timeOf(id store.ID) time.Time {
	if id.At == 0 {
		return time.Time{}
	}
	return id.Time().UTC()
}
