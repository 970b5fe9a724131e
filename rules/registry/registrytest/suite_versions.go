package registrytest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/registry"
)

// Only the number after the newest can be made, once, by whichever backend, and only after the
// version that is the newest, not after another of its number.
func testConflict(t *testing.T, open Open) {
	p := newPlace(t, open)
	refused := func(before registry.Head, number int64) {
		t.Helper()
		for i, b := range p.backends {
			v := p.next([]rules.Rule{plain("other", "refused")})
			v.Number, v.At = number, v.At+5
			if err := b.Commit(p.ctx, before, &v); !errors.Is(err, registry.ErrConflict) {
				t.Errorf("backend %d: version %d after %+v where %+v is the newest: %v, want ErrConflict", i, number, before, p.head, err)
			}
		}
		p.check()
		p.checkVersions(10)
	}
	refused(registry.Head{Number: 1, At: dawn}, 2)
	refused(registry.Head{}, 2)
	for number := range int64(3) {
		p.commit(p.next([]rules.Rule{plain("a", fmt.Sprint(number))}))
		for _, other := range []int64{p.head.Number - 1, p.head.Number, p.head.Number + 2} {
			refused(registry.Head{Number: other - 1, At: p.head.At}, other)
			refused(p.head, other)
		}
		for _, at := range []int64{p.head.At - 1, p.head.At + 1, p.head.At + 1_000_000, 1, 0} {
			refused(registry.Head{Number: p.head.Number, At: at}, p.head.Number+1)
		}
		refused(registry.Head{}, 1)
		refused(registry.Head{}, p.head.Number+1)
	}
}

// Versions are listed by pages.
func testPaging(t *testing.T, open Open) {
	p := newPlace(t, open)
	for i := range 130 {
		p.commit(p.next([]rules.Rule{plain("a", fmt.Sprint(i))}))
	}
	for _, page := range []struct {
		before int64
		n      int
		want   []int64
	}{
		{0, 1, countdown(130, 130)},
		{0, 3, countdown(130, 128)},
		{131, 2, countdown(130, 129)},
		{1000, 2, countdown(130, 129)},
		{130, 2, countdown(129, 128)},
		{100, 50, countdown(99, 50)},
		{3, 50, countdown(2, 1)},
		{2, 1, countdown(1, 1)},
		{1, 50, countdown(0, 1)},
		{0, registry.KeptVersions, countdown(130, 1)},
		{121, registry.KeptVersions, countdown(120, 1)},
	} {
		p.versionsAre(page.before, page.n, page.want)
	}
	p.checkVersions(130)
}

// The newest KeptVersions are kept, and not many times as many.
func testTrimming(t *testing.T, open Open) {
	p := newPlace(t, open)
	const kept, made = registry.KeptVersions, 2*registry.KeptVersions + 200
	for i := range made {
		p.commit(p.next([]rules.Rule{plain(fmt.Sprintf("rule-%d", i%7), fmt.Sprint(i))}))
	}
	p.versionsAre(0, kept, countdown(made, made-kept+1))
	found := 0
	for before := int64(0); before != 1; {
		page, err := p.backends[0].Versions(p.ctx, before, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		found += len(page)
		last := page[len(page)-1].Number
		numbers := numbersOf(page)
		if !slices.Equal(numbers, countdown(numbers[0], last)) || before > 0 && numbers[0] >= before {
			t.Fatalf("versions %v before %d are not one after another", numbers, before)
		}
		before = last
	}
	if found < kept || found > 2*kept {
		t.Errorf("%d versions are kept of %d, want %d to %d", found, made, kept, 2*kept)
	}
	p.check()
}

// Of large versions as many of the newest are kept as fit, and room that they leave is used again.
func (s Size) testKeptBytes(t *testing.T, open Open) {
	if s.kept == 0 {
		return // versions may be kept however large they are
	}
	p := newPlace(t, open)
	var sizes []int
	first, all := int64(1), 0 // the oldest that fits, and how large those that fit are
	for i := range 32 {
		length := []int{3, 3, 1, 3, 3, 0, 3, 0}[i%8] * registry.MaxVersionBytes / 7
		v := p.next([]rules.Rule{plain("large", strings.Repeat(fmt.Sprint(i%10), 2+length))})
		text, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		p.commit(v)
		sizes = append(sizes, len(text))
		for all += len(text); all > s.kept; first++ {
			all -= sizes[first-1]
		}
		if i%4 == 3 {
			p.versionsAre(first+1, 2, []int64{first})
		}
	}
	if first == 1 {
		t.Fatal("everything fits")
	}
	p.check()
}
