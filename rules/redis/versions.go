package redis

import (
	"context"
	"fmt"
	"strconv"

	"github.com/stint-go/stint/rules/registry"
)

// pageVersions is how many versions are read by one call at most.
const pageVersions = 100

// Versions returns versions, the newest first.
func (b *Backend) Versions(ctx context.Context, before int64, n int) ([]registry.Version, error) {
	var list []registry.Version
	for len(list) < n && before != 1 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		most := "+"
		if before > 0 {
			most = strconv.FormatInt(before-1, 10)
		}
		page, err := b.page(ctx, most, min(n-len(list), pageVersions))
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		list = append(list, page...)
		before = page[len(page)-1].Number
	}
	return list, nil
}

// page reads versions by one call, none if there are no more.
func (b *Backend) page(ctx context.Context, most string, n int) ([]registry.Version, error) {
	reply, err := b.conn.Eval(ctx, script(versionsLua), []string{b.set, b.versions}, []string{most, strconv.Itoa(n)})
	if err != nil {
		return nil, b.failure(ctx, err)
	}
	entries, ok := fields(reply)
	if !ok || len(entries)%2 != 0 {
		return nil, b.invalid("the reply to a question for versions", reply)
	}
	page := make([]registry.Version, len(entries)/2)
	for i := range page {
		id, text := entries[2*i], entries[2*i+1]
		place := fmt.Sprintf("version %s of %s", id, b.versions)
		if err := page[i].UnmarshalJSON([]byte(text)); err != nil {
			return nil, unreadable(fmt.Errorf("%s: %w", place, err))
		}
		if id != strconv.FormatInt(page[i].Number, 10)+"-0" {
			return nil, b.invalid(place, text)
		}
	}
	return page, nil
}
