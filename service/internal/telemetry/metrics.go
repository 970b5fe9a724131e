package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/service/internal/component"
)

// StartMetrics has the metrics that are served for Prometheus sent by OTLP as well, if the
// variables say so; its end sends them once more. Headers and the rest are read by the
// SDK. The metrics are converted from the registry that Prometheus is served from, so that both have
// the same names and values. An error is a fault of a variable.
func StartMetrics(
	ctx context.Context, env Env, served prometheus.Gatherer, logger *slog.Logger,
) (end func(), err error) {
	if is, err := exported(env, "METRICS"); !is {
		return nil, err
	}
	interval, err := milliseconds(env, "OTEL_METRIC_EXPORT_INTERVAL", time.Minute)
	if err != nil {
		return nil, err
	}
	timeout, err := milliseconds(env, "OTEL_METRIC_EXPORT_TIMEOUT", 30*time.Second)
	if err != nil {
		return nil, err
	}
	var options []otlpmetrichttp.Option
	if !endpointNamed(env, "METRICS") {
		options = append(options, otlpmetrichttp.WithEndpointURL(defaultOTLP+"/v1/metrics"))
	}
	sender, err := otlpmetrichttp.New(ctx, options...)
	if err != nil {
		return nil, err
	}
	about, err := aboutService(ctx)
	if err != nil {
		return nil, err
	}
	m := metrics{sender, bridge.NewMetricProducer(bridge.WithGatherer(served)), about}
	stop := component.Run(ctx, func(ctx context.Context) { m.sendEvery(ctx, interval, timeout) })
	logger.Info("metrics are sent by OTLP")
	return func() {
		stop()
		sendRest(m.end, logger, "metrics were lost")
	}, nil
}

// milliseconds is the time that a variable of OpenTelemetry says, or a default.
func milliseconds(env Env, name string, def time.Duration) (time.Duration, error) {
	text := env(name)
	if text == "" {
		return def, nil
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, stint.Invalid(name, text, "whole milliseconds, 1 or more")
	}
	return time.Duration(n) * time.Millisecond, nil
}

// metrics are gathered and sent. The SDK's reader does so, too, but links all instruments of OpenTelemetry, of which
// there are none here: 0.7 MB of the program.
type metrics struct {
	sender   *otlpmetrichttp.Exporter
	gathered metric.Producer
	about    *resource.Resource
}

// sendEvery sends the metrics after each interval until ctx is done. Faults are told by the SDK's handler.
func (m metrics) sendEvery(ctx context.Context, interval, timeout time.Duration) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		within, cancel := context.WithTimeout(ctx, timeout)
		if err := m.send(within); err != nil {
			otel.Handle(err)
		}
		cancel()
	}
}

// send sends the metrics as they are.
func (m metrics) send(ctx context.Context) error {
	scopes, err := m.gathered.Produce(ctx)
	return errors.Join(err, m.sender.Export(ctx, &metricdata.ResourceMetrics{Resource: m.about, ScopeMetrics: scopes}))
}

// end sends the metrics as they are at the end.
func (m metrics) end(ctx context.Context) error {
	return errors.Join(m.send(ctx), m.sender.Shutdown(ctx))
}
