package rulesapi

import (
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/logsampler"
)

// newStrangers bounds the records of refused callers who are not known: ten at once, then one a second.
func newStrangers(now func() stint.Instant) *logsampler.Sampler {
	return logsampler.New(10, time.Second, now)
}

// newAbsence bounds the lines about requests for rules that could not be read, as who shows them asks
// again and again: ten at once, then one in ten seconds.
func newAbsence(now func() stint.Instant) *logsampler.Sampler {
	return logsampler.New(10, 10*time.Second, now)
}
