package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/document"
)

const otlpPrefix = "OTEL_EXPORTER_OTLP_"

// telemetryFaults says what is wrong with OpenTelemetry's variables of the signals that are sent. The SDK would report a fault in its own words,
// or ignore it, and go on without the setting.
func telemetryFaults(p process, signals []string) error {
	var faults []error
	note := func(fault error) {
		if fault != nil && !slices.ContainsFunc(faults, func(f error) bool { return f.Error() == fault.Error() }) { // as of a variable of both signals
			faults = append(faults, fault)
		}
	}
	for _, signal := range signals {
		for _, check := range telemetryChecks(signal) {
			for _, name := range check.names {
				if text := strings.TrimSpace(p.env(name)); text != "" {
					note(check.fault(name, text))
				}
			}
		}
		note(tlsFault(p, signal))
	}
	if slices.Contains(signals, "TRACES") {
		note(ratioFault(p.env("OTEL_TRACES_SAMPLER"), p.env("OTEL_TRACES_SAMPLER_ARG")))
	}
	if err := errors.Join(faults...); err != nil {
		return misconfigured(err)
	}
	return nil
}

// A telemetryCheck finds the fault of a variable that is set; nil is none.
type telemetryCheck struct {
	fault func(name, text string) error
	names []string
}

// telemetryChecks are those of a signal, TRACES or METRICS.
func telemetryChecks(signal string) []telemetryCheck {
	both := func(suffix string) []string { return []string{otlpPrefix + suffix, otlpPrefix + signal + "_" + suffix} }
	checks := []telemetryCheck{
		{endpointFault, both("ENDPOINT")},
		{oneOf("http/protobuf"), both("PROTOCOL")},
		{oneOf("gzip", "none"), both("COMPRESSION")},
		{headersFault, both("HEADERS")},
		{milliseconds, both("TIMEOUT")},
		{certificatesFault, both("CERTIFICATE")},
		{attributesFault, []string{"OTEL_RESOURCE_ATTRIBUTES"}},
	}
	if signal == "METRICS" {
		return append(
			checks,
			telemetryCheck{milliseconds, []string{"OTEL_METRIC_EXPORT_INTERVAL", "OTEL_METRIC_EXPORT_TIMEOUT"}},
			telemetryCheck{oneOf("cumulative", "delta", "lowmemory"), []string{otlpPrefix + "METRICS_TEMPORALITY_PREFERENCE"}},
			telemetryCheck{
				oneOf("explicit_bucket_histogram", "base2_exponential_bucket_histogram"),
				[]string{otlpPrefix + "METRICS_DEFAULT_HISTOGRAM_AGGREGATION"},
			},
		)
	}
	samplers := oneOf("always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
	return append(
		checks,
		telemetryCheck{samplers, []string{"OTEL_TRACES_SAMPLER"}},
		telemetryCheck{milliseconds, []string{"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT"}},
		telemetryCheck{integer(1_000_000, ""), []string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE"}},
	)
}

// oneOf allows some words, in any case.
func oneOf(words ...string) func(name, text string) error {
	return func(name, text string) error {
		if slices.Contains(words, strings.ToLower(text)) {
			return nil
		}
		last := len(words) - 1
		return stint.Invalid(name, text, strings.TrimPrefix(strings.Join(words[:last], ", ")+" or "+words[last], " or "))
	}
}

// integer allows 1 to most of a unit.
func integer(most int, unit string) func(name, text string) error {
	return func(name, text string) error {
		if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
			return stint.Invalid(name, text, fmt.Sprintf("1 to %d%s", most, unit))
		}
		return nil
	}
}

// milliseconds allows a time of up to a day.
func milliseconds(name, text string) error {
	return integer(int((24*time.Hour).Milliseconds()), " milliseconds")(name, text)
}

// endpointFault refuses what the SDK would ignore of an address too.
func endpointFault(name, text string) error {
	u, err := url.Parse(text)
	if err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" {
		return nil
	}
	shown, _, _ := strings.Cut(document.RedactURL(text), "?") // a query may be secret
	return stint.Invalid(name, shown, "a URL by http or https, of a host and a path, such as http://collector:4318")
}

// A malformed entry is shown by its number in a list.
type malformed struct {
	number int // from 1
	text   string
}

func (m malformed) String() string { return fmt.Sprintf("malformed at entry %d%s", m.number, m.text) }

// headersFault does not show what is secret: a value, or a name that lacks one.
func headersFault(name, text string) error {
	for i, entry := range strings.Split(text, ",") {
		field, value, found := strings.Cut(entry, "=")
		field = strings.TrimSpace(field)
		value, err := url.PathUnescape(value)
		if !found || err != nil || strings.ContainsFunc(value, isControl) || !clientip.IsFieldName(field) {
			return stint.Invalid(name, malformed{i + 1, ", which is not shown"}, "NAME=VALUE, separated by commas, the values percent-encoded")
		}
	}
	return nil
}

func ratioFault(sampler, ratio string) error {
	if ratio == "" || !strings.Contains(strings.ToLower(sampler), "traceidratio") {
		return nil
	}
	if part, err := strconv.ParseFloat(strings.TrimSpace(ratio), 64); err != nil || !(part >= 0 && part <= 1) {
		return stint.Invalid("OTEL_TRACES_SAMPLER_ARG", ratio, "the part of traces that is recorded, 0 to 1, such as 0.01")
	}
	return nil
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }

func attributesFault(name, text string) error {
	for i, entry := range strings.Split(text, ",") {
		key, value, found := strings.Cut(entry, "=")
		if _, err := url.PathUnescape(value); !found || err != nil || strings.TrimSpace(key) == "" {
			return stint.Invalid(name, malformed{i + 1, fmt.Sprintf(", %q", entry)}, "KEY=VALUE, separated by commas, the values percent-encoded")
		}
	}
	return nil
}

func certificatesFault(name, file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // that the operator names
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
		return stint.Invalid(name, file, "a readable file of certificates in PEM")
	}
	return nil
}

// tlsFault is that of a certificate and a key that don't go together, or that have no https to be for.
func tlsFault(p process, signal string) error {
	of := func(suffix string) (name, file string) {
		if name = otlpPrefix + signal + "_" + suffix; p.env(name) == "" {
			name = otlpPrefix + suffix
		}
		return name, strings.TrimSpace(p.env(name))
	}
	name, certificate := of("CLIENT_CERTIFICATE")
	keyName, key := of("CLIENT_KEY")
	if certificate != "" || key != "" {
		if _, err := tls.LoadX509KeyPair(certificate, key); err != nil {
			return stint.Invalid(name, certificate, "a readable file of a certificate in PEM, beside "+keyName+" with that of its key")
		}
	}
	authorities, file := of("CERTIFICATE")
	if file != "" {
		name, certificate = authorities, file
	}
	if certificate != "" && !strings.HasPrefix(otlpEndpoint(p, signal), "https:") {
		return stint.Invalid(name, certificate, "only with an endpoint by https")
	}
	return nil
}

// otlpEndpoint is where a signal is sent: to its own endpoint as it is, or below the common one.
func otlpEndpoint(p process, signal string) string {
	if own := strings.TrimSpace(p.env(otlpPrefix + signal + "_ENDPOINT")); own != "" {
		return own
	}
	common := cmp.Or(strings.TrimSpace(p.env(otlpPrefix+"ENDPOINT")), "http://localhost:4318")
	return strings.TrimSuffix(common, "/") + "/v1/" + strings.ToLower(signal)
}
