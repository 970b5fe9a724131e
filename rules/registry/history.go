package registry

import (
	"context"
	"fmt"
	"math"

	"github.com/stint-go/stint"
)

// Versions returns at most n versions with numbers below before, the newest first; with before
// 0, the newest of all. n is 1 to KeptVersions.
func (r *Registry) Versions(ctx context.Context, before int64, n int) ([]Version, error) {
	if before < 0 {
		return nil, stint.Invalid("before", before, "0 or more")
	}
	if n < 1 || n > KeptVersions {
		return nil, stint.Invalid("n", n, fmt.Sprintf("1 to %d", KeptVersions))
	}
	return r.backend.Versions(ctx, before, n)
}

// Version returns one version. The error is ErrNotKept if it is not kept.
func (r *Registry) Version(ctx context.Context, number int64) (Version, error) {
	if number < 1 || number == math.MaxInt64 {
		return Version{}, ErrNotKept
	}
	list, err := r.backend.Versions(ctx, number+1, 1)
	if err != nil {
		return Version{}, err
	}
	if len(list) == 0 || list[0].Number != number {
		return Version{}, ErrNotKept
	}
	return list[0], nil
}

// Rollback makes a version in which all rules are as they were at an older one; 0 is before the
// first. check, which may be nil, is called as an edit's change would be, before anything is
// undone. The error is ErrNotKept if a version since is not kept.
func (r *Registry) Rollback(ctx context.Context, author Author, number int64, check func(*Draft) error) (Version, error) {
	if number < 0 {
		return Version{}, stint.Invalid("version", number, "0 or more")
	}
	return r.Edit(ctx, author, func(d *Draft) error {
		if check != nil {
			if err := check(d); err != nil {
				return err
			}
		}
		return r.undo(ctx, d, number)
	})
}

// undoPage is how many versions are read at a time: each holds up to MaxVersionBytes.
const undoPage = 10

// undo takes back what versions after number changed, the newest first.
func (r *Registry) undo(ctx context.Context, d *Draft, number int64) error {
	if number > d.Head().Number {
		return ErrNotKept
	}
	for at := d.Head().Number; at > number; {
		page, err := r.backend.Versions(ctx, at+1, int(min(at-number, undoPage)))
		if err != nil {
			return notBegun(err)
		}
		if len(page) == 0 {
			return ErrNotKept
		}
		for _, v := range page {
			if v.Number != at || at == d.Head().Number && v.Head != d.Head() {
				return ErrNotKept
			}
			for _, c := range v.Changes {
				d.edit(c.ID, c.Before)
			}
			at--
		}
	}
	return nil
}
