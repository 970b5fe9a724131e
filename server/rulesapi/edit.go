package rulesapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/stint-go/stint/api"
	"github.com/stint-go/stint/rules/registry"
)

// editTimeout bounds the reading and the editing of rules.
const editTimeout = 10 * time.Second

// edit makes the next version of the rules, and notes it in the answer's header. change is called
// as [registry.Registry.Edit] says. what is about what, for people: "replace login".
func (c *Call) edit(what string, change func(*registry.Draft) error) (registry.Version, error) {
	return c.commit(what, func(ctx context.Context, r *registry.Registry, author registry.Author) (registry.Version, error) {
		return r.Edit(ctx, author, func(d *registry.Draft) error {
			if err := change(d); err != nil {
				return err
			}
			return showsNoKey(d)
		})
	})
}

// commit has the registry make a version.
func (c *Call) commit(what string, do func(context.Context, *registry.Registry, registry.Author) (registry.Version, error)) (registry.Version, error) {
	comment, err := c.query.comment()
	if err != nil {
		return registry.Version{}, err
	}
	r := c.api.config.Registry
	if r == nil {
		return registry.Version{}, &Refusal{
			Status: http.StatusConflict,
			Detail: fmt.Sprintf("rules can't be changed here: they come from %s; change them there", c.api.config.RulesFrom),
		}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), editTimeout)
	defer cancel()
	v, err := do(ctx, r, registry.Author{By: c.caller.Name, Action: what, Comment: comment})
	if err != nil {
		return registry.Version{}, editFault(err)
	}
	c.version = v.Number
	if len(v.Changes) == 0 {
		c.outcome = outcomeUnchanged
	}
	c.w.Header().Set(api.HeaderVersion, strconv.FormatInt(v.Number, 10))
	return v, nil
}

// editFault turns what a registry reports into a refusal, as far as it has a status of its own.
func editFault(err error) error {
	switch {
	case errors.Is(err, registry.ErrUnreadable):
		return unreadable(err)
	case errors.Is(err, registry.ErrConflict):
		return &Refusal{Status: http.StatusConflict, Detail: "others edit the rules at the same time, again and again; try it later"}
	case errors.Is(err, registry.ErrRefused):
		return &Refusal{
			Status: http.StatusServiceUnavailable, cause: err,
			Detail: "the edit was refused where the rules are kept, nothing was changed; the log says why",
		}
	case !isAway(err):
		return err
	case errors.Is(err, registry.ErrNotBegun):
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

// changesOf are the IDs of a version.
func changesOf(v *registry.Version) api.RuleChanges {
	changes := api.RuleChanges{Came: []string{}, Went: []string{}, Changed: []string{}}
	for _, c := range v.Changes {
		switch {
		case c.Before == nil:
			changes.Came = append(changes.Came, c.ID)
		case c.After == nil:
			changes.Went = append(changes.Went, c.ID)
		default:
			changes.Changed = append(changes.Changed, c.ID)
		}
	}
	return changes
}

// edited answers an edit of all rules.
func (c *Call) edited(v *registry.Version) error {
	tag, err := listTag(v.Head, nil) // before the first version there are no rules
	if err != nil {
		return err
	}
	c.w.Header().Set("Etag", tag)
	return c.answer(api.Edited{Version: v.Number, At: v.At, RuleChanges: changesOf(v)})
}
