package promlimit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// nativeFactor is how much wider each bucket of a native histogram is than the one before.
const nativeFactor = 1.1

// histogram describes a histogram with classic buckets, and native ones for servers that scrape them.
func histogram(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor:     nativeFactor,
		NativeHistogramMaxBucketNumber:  100,
		NativeHistogramMinResetDuration: time.Hour,
	}
}
