package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

const (
	// pageRules is how many rules are read by one call at most, about: it bounds for how long the
	// server does nothing else. The first call reads fewer, as nobody knows how large they are.
	pageRules, firstRules = 250, 16
	// pageBytes is how large a page should be at most, by how large the rules of the one before were.
	pageBytes = 1 << 20
	// maxScans bounds how often the rules are read anew, since others changed too much meanwhile.
	maxScans = 5
	// maxReplay bounds how many versions a scan may be corrected by.
	maxReplay = 200
)

// errRestless says that the rules could not be read as of one version.
var errRestless = errors.New("they change faster than they can be read")

// Load returns all rules as of one version. They are read in pages, so that no call takes long; what
// versions changed while that went on is taken from these versions. A rule that none of them
// changed was there all the time, and is in the pages.
func (b *Backend) Load(ctx context.Context) (registry.Snapshot, error) {
	for range maxScans {
		s, err := b.scan(ctx)
		if err != nil {
			return registry.Snapshot{}, err
		}
		whole, err := b.replay(ctx, s)
		if err != nil {
			return registry.Snapshot{}, err
		}
		if whole {
			return s.snapshot(), nil
		}
	}
	return registry.Snapshot{}, fmt.Errorf("%w: the rules in Redis: %w", stint.ErrUnavailable, errRestless)
}

// A scan is the rules as several pages had them.
type scan struct {
	first, last registry.Head // as the first page was read, and the last
	count       int           // how many rules there were with the last
	rules       map[string]rules.Rule
}

// scan reads all pages.
func (b *Backend) scan(ctx context.Context) (*scan, error) {
	s := &scan{rules: map[string]rules.Rule{}}
	most := firstRules
	for page, begun := "0", false; !begun || page != "0"; begun = true {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		reply, err := b.conn.Eval(ctx, script(loadLua), []string{b.set}, []string{page, strconv.Itoa(most)})
		if err != nil {
			return nil, b.failure(ctx, err)
		}
		most = nextPage(most, len(reply))
		list, ok := fields(reply)
		if !ok || len(list)%2 == 0 || len(list) < 3 {
			return nil, b.invalid("the reply to a load", reply)
		}
		if s.last, err = b.parseHead(list[0]); err != nil {
			return nil, err
		}
		if !begun {
			s.first = s.last
		}
		if s.count, err = strconv.Atoi(list[1]); err != nil {
			return nil, b.invalid("the reply to a load", reply)
		}
		page = list[2]
		for i := 3; i < len(list); i += 2 {
			rule, err := b.parseRule(list[i], list[i+1])
			if err != nil {
				return nil, err
			}
			s.rules[rule.ID] = rule
		}
	}
	return s, nil
}

// nextPage is how many rules the page after one should have.
func nextPage(most, bytes int) int {
	return max(1, min(pageRules, 4*most, most*pageBytes/max(1, bytes)))
}

// parseRule reads a rule of the set.
func (b *Backend) parseRule(id, text string) (rules.Rule, error) {
	place := fmt.Sprintf("rule %q in Redis (HGET %s %s)", id, b.set, id)
	rule, err := registry.ParseRule(place, []byte(text))
	if err == nil && rule.ID != id {
		err = stint.Invalid(place+": its ID", rule.ID, id)
	}
	if err != nil {
		return rule, unreadable(err)
	}
	return rule, nil
}

// replay brings the rules to the last head, by the versions since the first. It reports whether
// that could be done, and nothing is missing.
func (b *Backend) replay(ctx context.Context, s *scan) (whole bool, err error) {
	if s.first == s.last {
		return len(s.rules) == s.count, nil
	}
	behind := s.last.Number - s.first.Number
	if s.first.Number == 0 || behind < 1 || behind > maxReplay {
		return false, nil
	}
	since, err := b.Versions(ctx, s.last.Number+1, int(behind)+1)
	if err != nil {
		return false, err
	}
	if len(since) != int(behind)+1 || since[0].Head != s.last || since[behind].Head != s.first {
		return false, nil // other versions than those that were read before
	}
	for _, v := range slices.Backward(since[:behind]) {
		for _, c := range v.Changes {
			if c.After == nil {
				delete(s.rules, c.ID)
			} else {
				s.rules[c.ID] = *c.After
			}
		}
	}
	return len(s.rules) == s.count, nil
}

// snapshot is the rules by ID.
func (s *scan) snapshot() registry.Snapshot {
	snapshot := registry.Snapshot{Head: s.last}
	for _, id := range slices.Sorted(maps.Keys(s.rules)) {
		snapshot.Rules = append(snapshot.Rules, s.rules[id])
	}
	return snapshot
}
