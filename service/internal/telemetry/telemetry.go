// Package telemetry sends traces and metrics by OTLP, as the standard variables of OpenTelemetry say.
package telemetry

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/stint-go/stint"
)

// An Env looks up a variable of the environment: "" if there is none.
type Env = func(name string) string

const (
	otlpPrefix  = "OTEL_EXPORTER_OTLP_"
	defaultOTLP = "http://localhost:4318" // by OpenTelemetry's specification
)

// otlpTime is the longest that what waits may take to be sent at the end.
const otlpTime = 2 * time.Second

// exported reports whether a signal, TRACES or METRICS, is sent by OTLP, as the standard variables
// of OpenTelemetry say: if OTEL_…_EXPORTER is otlp, or an endpoint is named and it is not none.
// OTEL_SDK_DISABLED=true switches it off whatever else is said. Values that nobody knows are
// refused rather than ignored: a typing error would otherwise be found when the data is missed.
func exported(env Env, signal string) (bool, error) {
	name := "OTEL_" + signal + "_EXPORTER"
	exporter := env(name)
	switch exporter {
	case "", "otlp", "none":
	default:
		return false, stint.Invalid(name, exporter, "otlp or none")
	}
	disabled := strings.ToLower(env("OTEL_SDK_DISABLED"))
	switch disabled {
	case "", "true", "false":
	default:
		return false, stint.Invalid("OTEL_SDK_DISABLED", disabled, "true or false")
	}
	return exporter != "none" && (exporter == "otlp" || endpointNamed(env, signal)) && disabled != "true", nil
}

// endpointNamed reports whether the variables say where a signal is sent to. Otherwise it is OpenTelemetry's default,
// which its SDK would use by https.
func endpointNamed(env Env, signal string) bool {
	return env(otlpPrefix+"ENDPOINT") != "" || env(otlpPrefix+signal+"_ENDPOINT") != ""
}

// prepare has the SDK log if a signal is sent, before it reads its variables. What they say besides exported's
// is the SDK's to judge.
func prepare(env Env, logger *slog.Logger) error {
	for _, signal := range []string{"TRACES", "METRICS"} {
		is, err := exported(env, signal)
		if err != nil {
			return err
		}
		if is {
			logFaults(logger)
		}
	}
	return nil
}

// aboutService is what receivers are told of the service. What the variables say beats the name
// that is given here.
func aboutService(ctx context.Context) (*resource.Resource, error) {
	return resource.New(
		ctx, resource.WithTelemetrySDK(), resource.WithAttributes(attribute.String("service.name", "stint")),
		resource.WithFromEnv(),
	)
}

// sendRest sends what waits by a function. It has otlpTime for that. What can't be sent then is lost, and the log says
// so.
func sendRest(send func(context.Context) error, logger *slog.Logger, lost string) {
	ctx, cancel := context.WithTimeout(context.Background(), otlpTime)
	defer cancel()
	if err := send(ctx); err != nil {
		logger.Warn(lost, "err", err)
	}
}
