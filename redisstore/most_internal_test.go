package redisstore

import (
	"errors"
	"strconv"
	"testing"
)

func TestMost(t *testing.T) {
	lost := errors.New("lost")
	never := make(chan struct{}) // an answer that does not come
	defer close(never)
	say := func(n int) func() (int, error) { return func() (int, error) { return n, nil } }
	fail := func() (int, error) { return 0, lost }
	hang := func() (int, error) { <-never; return 0, lost }
	for _, c := range []struct {
		asks []func() (int, error)
		want int
		err  error
	}{
		{nil, 0, errNobody},
		{[]func() (int, error){fail, fail}, 0, lost},
		{[]func() (int, error){fail, say(7), fail}, 7, nil},
		{[]func() (int, error){say(7), say(7), hang}, 7, nil},
		{[]func() (int, error){say(1), say(2), say(2), say(3), say(4)}, 2, nil},
	} {
		got, err := most(c.asks, strconv.Itoa, func(_, votes int) bool { return 2*votes > len(c.asks) })
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%d asked: %d, %v; want %d, %v", len(c.asks), got, err, c.want, c.err)
		}
	}
}
