package promlimit

import "github.com/prometheus/client_golang/prometheus"

// AlertStats is what became of alerts to a webhook.
type AlertStats struct {
	Sent     uint64 // alerts that the receiver confirmed, since the start
	Repeated uint64 // alerts left out, as another one of the client, rule and window was sent
	Retries  uint64 // attempts after the first one of each request
	Failed   uint64 // alerts dropped since the receiver did not confirm them
	Queued   int    // alerts that wait now

	DroppedNearLimit, DroppedDenied uint64 // alerts of a kind dropped since too many of it waited
}

// NewAlertsCollector makes a collector that reads figures of alerts when it is scraped, by calling read, which must be safe for
// concurrent use. The caller registers it.
//
//	rate_limiter_alerts_sent_total      alerts that the receiver confirmed
//	rate_limiter_alerts_repeated_total  alerts left out, as another one was sent
//	rate_limiter_alert_retries_total    attempts after the first one
//	rate_limiter_alerts_dropped_total   alerts dropped since too many of their kind waited, by kind
//	rate_limiter_alerts_failed_total    alerts dropped since the receiver did not confirm them
//	rate_limiter_alerts_queued          alerts that wait
func NewAlertsCollector(read func() AlertStats) prometheus.Collector {
	dropped := func(kind string, of func(*AlertStats) float64) figure[AlertStats] {
		desc := prometheus.NewDesc("rate_limiter_alerts_dropped_total", "Alerts dropped because too many of their kind waited.", nil, prometheus.Labels{"kind": kind})
		return figure[AlertStats]{desc, prometheus.CounterValue, of}
	}
	return newReader(read,
		counter("rate_limiter_alerts_sent_total", "Alerts that the receiver confirmed.",
			func(s *AlertStats) float64 { return float64(s.Sent) }),
		counter("rate_limiter_alerts_repeated_total", "Alerts left out, since one of the same client, rule and window was sent, by this process or another.",
			func(s *AlertStats) float64 { return float64(s.Repeated) }),
		counter("rate_limiter_alert_retries_total", "Attempts to send alerts after the first one.",
			func(s *AlertStats) float64 { return float64(s.Retries) }),
		dropped("near_limit", func(s *AlertStats) float64 { return float64(s.DroppedNearLimit) }),
		dropped("denied", func(s *AlertStats) float64 { return float64(s.DroppedDenied) }),
		counter("rate_limiter_alerts_failed_total", "Alerts dropped because the receiver did not confirm them.",
			func(s *AlertStats) float64 { return float64(s.Failed) }),
		gauge("rate_limiter_alerts_queued", "Alerts that wait to be sent.",
			func(s *AlertStats) float64 { return float64(s.Queued) }),
	)
}
