package redisstore

import "errors"

var errNobody = errors.New("there is nobody to ask")

// most asks all at once and returns what most of them say, as told apart by text: as
// soon as so many say it that it is enough, else when all have answered. The error is
// one of theirs, when none of them says anything.
func most[T any](asks []func() (T, error), text func(T) string, enough func(said T, votes int) bool) (best T, err error) {
	type answer struct {
		said T
		err  error
	}
	answers := make(chan answer, len(asks))
	for _, ask := range asks {
		go func() {
			said, err := ask()
			answers <- answer{said, err}
		}()
	}
	votes, leads := map[string]int{}, 0
	err = errNobody
	for range asks {
		a := <-answers
		if a.err != nil {
			err = a.err
			continue
		}
		said := text(a.said)
		if votes[said]++; votes[said] > leads {
			best, leads = a.said, votes[said]
		}
		if enough(best, leads) {
			break
		}
	}
	if leads > 0 {
		err = nil
	}
	return best, err
}
