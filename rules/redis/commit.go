package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/rules/registry"
)

// Commit makes v the newest version, in one script call.
func (b *Backend) Commit(ctx context.Context, before registry.Head, v *registry.Version) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.Number != before.Number+1 {
		return registry.ErrConflict
	}
	args, err := b.commitArgs(before, v)
	if err != nil {
		return err
	}
	reply, err := b.conn.Eval(ctx, script(commitLua), []string{b.set, b.versions}, args)
	switch {
	case refused(err):
		return fmt.Errorf("%w: %w", registry.ErrRefused, b.failure(ctx, err))
	case err != nil:
		return b.failure(ctx, err)
	case reply == "conflict":
		return registry.ErrConflict
	case reply != "made":
		return b.invalid("the reply to a commit", reply)
	}
	return nil
}

// commitArgs are the arguments that commit.lua asks for.
func (b *Backend) commitArgs(before registry.Head, v *registry.Version) ([]string, error) {
	text, err := v.MarshalJSON()
	if err != nil {
		return nil, err
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	var put, deleted []string
	for _, c := range v.Changes {
		if c.After == nil {
			deleted = append(deleted, c.ID)
			continue
		}
		rule, err := notation.JSON(*c.After)
		if err != nil {
			return nil, err
		}
		put = append(put, c.ID, string(rule))
	}
	args := []string{
		writeHead(before), number(v.Number), writeHead(v.Head), string(text),
		strconv.Itoa(registry.KeptVersions), strconv.Itoa(registry.KeptBytes), b.channel, strconv.Itoa(len(put) / 2),
	}
	return append(append(args, put...), deleted...), nil
}
