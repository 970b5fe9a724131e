// Package dropin translates the environment of Envoy's reference rate limit service,
// github.com/envoyproxy/ratelimit, into this program's settings, so that `stint ratelimit` runs in
// its place.
package dropin

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/server/rls/xds"
)

// A DropIn is what of the reference service's environment is no setting of this one. [Read] makes it; the zero value is
// of no environment.
type DropIn struct {
	// Env is the environment with what the reference service's variables say for settings, and with tracing as this
	// program's libraries want it.
	Env func(name string) (text string, found bool)

	// The reference service listens at two addresses more: for debugging, and for Prometheus, whose path
	// is MetricsPath. "" is none.
	Debug, Metrics, MetricsPath string
	// MaxAge is how long a connection of gRPC may last, so that a load balancer's clients spread
	// again; 0 for ever.
	MaxAge time.Duration
	// XDS is what settings do not say of the control plane: metadata, headers, backoff.
	XDS xds.Config
	// Forced reports whether it is ready without a configuration.
	Forced bool
	// Healthy reports whether it is ready while Redis is unreachable.
	Healthy bool
	// Hidden reports whether files with a dot before their name count.
	Hidden bool
	// Ignored are variables that are given and have no meaning here; they are logged at the start.
	Ignored []string

	// faults are variables with texts that can't be read.
	faults []string
}

// Read reads the environment by what looks up a variable, and the names of all variables.
//
// Settings are looked up in STINT_… variables first, then in what the reference service's variables
// say. So the whole of config.Load, with its checks, holds for both; a fault names the variable
// that the user wrote (see named).
func Read(env func(name string) (text string, found bool), names []string) (*DropIn, config.Config, error) {
	p, d := environment{env, names}, &DropIn{}
	settings := d.translate(p)
	d.Env = func(name string) (string, bool) {
		if text := p.env(name); text != "" {
			return text, true
		}
		text, found := settings[name]
		return text, found
	}
	loaded, err := config.Load(config.Sources{
		Env: d.Env, Variables: names, FileFrom: "STINT_CONFIG", File: p.env("STINT_CONFIG"),
	})
	if len(d.faults) > 0 || err != nil {
		text := strings.Join(d.faults, "\n")
		if err != nil {
			text = strings.TrimSpace(text + "\n" + named(p, err.Error()))
		}
		return nil, loaded, errors.New(text)
	}
	return d, loaded, nil
}

// An environment is what variables say.
type environment struct {
	lookUp func(name string) (text string, found bool)
	names  []string
}

// env is a variable's text, "" when there is none.
func (e environment) env(name string) string {
	text, _ := e.lookUp(name)
	return text
}

// settingNames are settings that have the text of one variable, or of the last that is given of
// several.
var settingNames = map[string][]string{
	"STINT_LISTEN": {"HOST", "PORT"}, "STINT_GRPC_LISTEN": {"GRPC_HOST", "GRPC_PORT", "GRPC_UDS"},
	"STINT_STORE_KEY_PREFIX": {"CACHE_KEY_PREFIX"}, "STINT_STORE_TIMEOUT": {"REDIS_TIMEOUT"}, "STINT_STORE": {"REDIS_URL"},
	"STINT_STORE_USERNAME": {"REDIS_AUTH"}, "STINT_STORE_PASSWORD": {"REDIS_AUTH"},
	"STINT_GRPC_TLS_CERT_FILE": {"GRPC_SERVER_TLS_CERT"}, "STINT_GRPC_TLS_KEY_FILE": {"GRPC_SERVER_TLS_KEY"},
	"STINT_GRPC_TLS_CLIENT_CA_FILE": {"GRPC_CLIENT_TLS_CACERT"}, "STINT_GRPC_TLS_CLIENT_NAME": {"GRPC_CLIENT_TLS_SAN"},
	"STINT_ENVOY_HEADERS_LIMIT": {"LIMIT_LIMIT_HEADER"}, "STINT_ENVOY_HEADERS_REMAINING": {"LIMIT_REMAINING_HEADER"},
	"STINT_ENVOY_HEADERS_RESET": {"LIMIT_RESET_HEADER"},
}

// named names in faults of settings the variables that they were made of.
func named(p environment, faults string) string {
	for setting, names := range settingNames {
		name := ""
		for _, each := range names {
			if p.env(each) != "" {
				name = each
			}
		}
		if name != "" && p.env(setting) == "" {
			faults = strings.ReplaceAll(faults, setting+": ", name+": ")
		}
	}
	return faults
}

// translate makes settings of the reference service's variables. Defaults are the reference
// service's, settings.go of its repository, not this program's: all addresses, warn, closed.
func (d *DropIn) translate(p environment) map[string]string {
	v := variables{p: p, dropIn: d, known: map[string]bool{}}
	settings := map[string]string{
		"STINT_LISTEN":              net.JoinHostPort(v.text("HOST", "0.0.0.0"), v.text("PORT", "8080")),
		"STINT_GRPC_LISTEN":         net.JoinHostPort(v.text("GRPC_HOST", "0.0.0.0"), v.text("GRPC_PORT", "8081")),
		"STINT_ADMIN_LISTEN":        "off",
		"STINT_ENVOY_ACCOUNTING":    "reference",
		"STINT_ENVOY_MERGE_DOMAINS": strconv.FormatBool(v.boolean("MERGE_DOMAIN_CONFIG", false)),
		"STINT_ENVOY_SHADOW":        strconv.FormatBool(v.boolean("SHADOW_MODE", false)),
		"STINT_ENVOY_QUOTA":         strconv.FormatBool(v.boolean("QUOTA_MODE", false)),
		"STINT_ENVOY_METADATA":      strconv.FormatBool(v.boolean("RESPONSE_DYNAMIC_METADATA", false)),
		"STINT_ENVOY_KEEP_DENIED":   strconv.FormatBool(v.boolean("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", false)),
		"STINT_ENVOY_NEAR_LIMIT":    strconv.Itoa(int(v.ratio("NEAR_LIMIT_RATIO", 0.8, 0.01)*100 + 0.5)),
		"STINT_LOG_LEVEL":           v.oneOf("LOG_LEVEL", "warn", logLevels),
		"STINT_LOG_FORMAT":          v.oneOf("LOG_FORMAT", "text", map[string]string{"text": "text", "json": "json"}),
		"STINT_STORE_KEY_PREFIX":    v.text("CACHE_KEY_PREFIX", ""),
		// Envoy decides by its failure_mode_deny what becomes of requests that can't be decided.
		"STINT_ON_STORE_FAILURE": "closed",
	}
	if path := v.text("GRPC_UDS", ""); path != "" {
		settings["STINT_GRPC_LISTEN"] = "unix:" + path
	}
	d.Debug = net.JoinHostPort(v.text("DEBUG_HOST", "0.0.0.0"), v.text("DEBUG_PORT", "6070"))
	address, path := v.text("PROMETHEUS_ADDR", ":9090"), v.text("PROMETHEUS_PATH", "/metrics")
	if !hasPort(d.Debug) {
		v.fault("DEBUG_PORT", v.text("DEBUG_PORT", ""), "0 to 65535")
	}
	if !hasPort(address) {
		v.fault("PROMETHEUS_ADDR", address, "HOST:PORT with a port from 0 to 65535")
	}
	if v.boolean("USE_PROMETHEUS", false) {
		d.Metrics, d.MetricsPath = address, path
	}
	d.MaxAge = v.duration("GRPC_MAX_CONNECTION_AGE", 24*time.Hour)
	forced, one := v.boolean("FORCE_START_WITHOUT_INITIAL_CONFIG", false),
		v.boolean("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", false)
	d.Forced = forced && !one
	headers := v.boolean("LIMIT_RESPONSE_HEADERS_ENABLED", false)
	for name, setting := range map[string]string{
		"LIMIT_LIMIT_HEADER": "LIMIT", "LIMIT_REMAINING_HEADER": "REMAINING", "LIMIT_RESET_HEADER": "RESET",
	} {
		field := v.text(name, "RateLimit-"+setting[:1]+strings.ToLower(setting[1:]))
		if headers {
			settings["STINT_ENVOY_HEADERS_"+setting] = field
		}
	}
	v.tls(settings)
	v.redis(settings)
	v.domains(settings)
	v.tracing(settings)
	for _, name := range p.names {
		if text := p.env(name); text != "" && slices.ContainsFunc(prefixes, func(begin string) bool {
			return strings.HasPrefix(name, begin)
		}) && !v.known[name] {
			d.Ignored = append(d.Ignored, name)
		}
	}
	slices.Sort(d.Ignored)
	return settings
}

// prefixes begin the names of the reference service's variables that may have no meaning
// here.
var prefixes = []string{
	"BACKEND_TYPE", "CONFIG_", "DISABLE_STATS", "EXPIRATION_JITTER", "EXTRA_TAGS", "GRPC_CLIENT_", "GRPC_MAX_",
	"GRPC_SERVER_", "LOCAL_CACHE", "MEMCACHE_",
	"PROMETHEUS_", "REDIS_", "RUNTIME_", "STATSD_", "STATS_", "TRACING_", "USE_DOG_STATSD", "USE_STATSD", "XDS_CLIENT_",
}

var logLevels = map[string]string{
	"panic": "error", "fatal": "error", "error": "error", "warn": "warn", "warning": "warn", "info": "info",
	"debug": "debug", "trace": "debug",
}

// variables reads the environment, and notes what it reads.
type variables struct {
	// p is the environment; dropIn takes the faults.
	p      environment
	dropIn *DropIn
	// known are all names that were asked for, so that the others can be told to be ignored.
	known map[string]bool
}

// text is a variable's, or standard if it is empty or not there.
func (v *variables) text(name, standard string) string {
	v.known[name] = true
	return cmp.Or(v.p.env(name), standard)
}

// fault records that a text can't be read; the service does not start then.
func (v *variables) fault(name, text, allowed string) {
	v.dropIn.faults = append(v.dropIn.faults, prefix.Trim(stint.Invalid(name, text, allowed).Error()))
}

// boolean takes what Go's strconv.ParseBool does, as the reference service does.
func (v *variables) boolean(name string, standard bool) bool {
	text := v.text(name, strconv.FormatBool(standard))
	is, err := strconv.ParseBool(text)
	if err != nil {
		v.fault(name, text, "true or false")
	}
	return is
}

// duration is of Go's form; below 0 is a fault.
func (v *variables) duration(name string, standard time.Duration) time.Duration {
	text := v.text(name, standard.String())
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		v.fault(name, text, "a duration such as 24h")
		return standard
	}
	return d
}

// ratio reads a number up to 1.
func (v *variables) ratio(name string, standard, least float64) float64 {
	text := v.text(name, fmt.Sprint(standard))
	ratio, err := strconv.ParseFloat(text, 64)
	if err != nil || !(ratio >= least && ratio <= 1) {
		v.fault(name, text, fmt.Sprintf("%v to 1", least))
		return standard
	}
	return ratio
}

// oneOf takes one of several words, whatever their case, for what each stands for.
func (v *variables) oneOf(name, standard string, allowed map[string]string) string {
	text := strings.ToLower(v.text(name, standard))
	if allowed[text] == "" {
		v.fault(name, text, "one of "+strings.Join(slices.Sorted(maps.Keys(allowed)), ", "))
	}
	return allowed[text]
}

// hasPort reports whether an address may be listened at.
func hasPort(address string) bool {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(text, 10, 16)
	return err == nil
}

// tls reads what the gRPC listener speaks TLS with.
func (v *variables) tls(settings map[string]string) {
	settings["STINT_GRPC_TLS_CERT_FILE"] = "off"
	used := v.boolean("GRPC_SERVER_USE_TLS", false)
	v.takeOver(settings, used, "GRPC_", "STINT_GRPC_TLS_", map[string]string{
		"SERVER_TLS_CERT": "CERT_FILE", "SERVER_TLS_KEY": "KEY_FILE", "CLIENT_TLS_CACERT": "CLIENT_CA_FILE",
		"CLIENT_TLS_SAN": "CLIENT_NAME",
	})
}

// takeOver makes settings of the texts of variables, both by what is behind their prefix, if they
// are used.
func (v *variables) takeOver(settings map[string]string, used bool, from, to string, names map[string]string) {
	for name, setting := range names {
		if text := v.text(from+name, ""); used {
			settings[to+setting] = text
		}
	}
}

// redis reads where counters are kept.
//
// The reference service has the forms HOST:PORT, several with commas between them, and a path;
// which it is, REDIS_TYPE and REDIS_SOCKET_TYPE say. A single server with commas in its address is
// a cluster there, too. A second Redis for limits per second (REDIS_PERSECOND) has no meaning here.
func (v *variables) redis(settings map[string]string) {
	if backend := v.text("BACKEND_TYPE", "redis"); backend != "redis" {
		v.fault("BACKEND_TYPE", backend, "redis")
	}
	socket := v.oneOf("REDIS_SOCKET_TYPE", "unix", map[string]string{"unix": "unix", "tcp": "tcp", "tls": "tls"})
	scheme := "redis"
	if v.boolean("REDIS_TLS", false) || socket == "tls" {
		scheme = "rediss"
	}
	address := strings.TrimPrefix(v.text("REDIS_URL", "/var/run/nutcracker/ratelimit.sock"), "redis://")
	given := v.text("REDIS_TYPE", "SINGLE")
	switch kind := strings.ToUpper(given); {
	case kind == "SINGLE" && socket == "unix":
		settings["STINT_STORE"] = "unix://" + address
	case kind == "SINGLE" && !strings.Contains(address, ","):
		settings["STINT_STORE"] = scheme + "://" + address
	case kind == "SINGLE", kind == "CLUSTER":
		settings["STINT_STORE"] = scheme + "-cluster://" + address
	case kind == "SENTINEL":
		name, servers, found := strings.Cut(address, ",")
		if !found {
			v.fault("REDIS_URL", address, "the primary's name, and behind commas the addresses of sentinels")
		}
		settings["STINT_STORE"] = scheme + "-sentinel://" + servers + "/" + name
	default:
		v.fault("REDIS_TYPE", given, "SINGLE, SENTINEL or CLUSTER")
	}
	for name, setting := range map[string]string{"REDIS_AUTH": "", "REDIS_SENTINEL_AUTH": "SENTINEL_"} {
		user, password, both := strings.Cut(v.text(name, ""), ":")
		if !both {
			user, password = "", user
		}
		settings["STINT_STORE_"+setting+"USERNAME"], settings["STINT_STORE_"+setting+"PASSWORD"] = user, password
	}
	if scheme == "rediss" {
		settings["STINT_STORE_TLS_CERT_FILE"] = v.text("REDIS_TLS_CLIENT_CERT", "")
		settings["STINT_STORE_TLS_KEY_FILE"] = v.text("REDIS_TLS_CLIENT_KEY", "")
		settings["STINT_STORE_TLS_CA_FILE"] = v.text("REDIS_TLS_CACERT", "")
	}
	v.dropIn.Healthy = !v.boolean("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", false)
	if v.p.env("REDIS_TIMEOUT") != "" { // its default of 10 s would keep Envoy waiting
		settings["STINT_STORE_TIMEOUT"] = v.duration("REDIS_TIMEOUT", time.Second).String()
	}
}

// domains reads where the configuration is.
//
// The reference service follows a folder by a link that is swapped (RUNTIME_ROOT); here both links
// and files are followed.
func (v *variables) domains(settings map[string]string) {
	switch kind := v.text("CONFIG_TYPE", "FILE"); kind {
	case "FILE":
		root := filepath.Join(v.text("RUNTIME_ROOT", "/srv/runtime_data/current"), v.text("RUNTIME_SUBDIRECTORY", ""))
		settings["STINT_ENVOY_CONFIG"] = filepath.Join(root, v.text("RUNTIME_APPDIRECTORY", "config"))
		v.boolean("RUNTIME_WATCH_ROOT", true) // links are followed in either case
		v.dropIn.Hidden = !v.boolean("RUNTIME_IGNOREDOTFILES", false)
	case "GRPC_XDS_SOTW":
		for _, name := range []string{"ROOT", "SUBDIRECTORY", "APPDIRECTORY", "WATCH_ROOT", "IGNOREDOTFILES"} {
			v.known["RUNTIME_"+name] = true // which are for files
		}
		v.xds(settings)
	default:
		v.fault("CONFIG_TYPE", kind, "FILE or GRPC_XDS_SOTW")
	}
}

// xds reads which control plane has the configuration.
func (v *variables) xds(settings map[string]string) {
	const begin = "CONFIG_GRPC_XDS_"
	settings["STINT_ENVOY_XDS_SERVER"] = v.text(begin+"SERVER_URL", "localhost:18000")
	settings["STINT_ENVOY_XDS_NODE_ID"] = v.text(begin+"NODE_ID", "default")
	used := v.boolean(begin+"SERVER_USE_TLS", false)
	settings["STINT_ENVOY_XDS_TLS_ENABLED"] = strconv.FormatBool(used)
	v.takeOver(settings, used, begin, "STINT_ENVOY_XDS_TLS_", map[string]string{
		"CLIENT_TLS_CERT": "CERT_FILE", "CLIENT_TLS_KEY": "KEY_FILE", "SERVER_TLS_CACERT": "CA_FILE",
		"SERVER_TLS_SAN": "SERVER_NAME",
	})
	x := &v.dropIn.XDS
	x.NodeMetadata = v.pairs(begin+"NODE_METADATA", "=")
	x.Headers = v.pairs(begin+"CLIENT_ADDITIONAL_HEADERS", ":")
	x.Backoff = v.duration("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", 10*time.Second)
	x.MaxBackoff = v.duration("XDS_CLIENT_BACKOFF_MAX_INTERVAL", time.Minute)
	v.text("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "") // each wait is twice as long here
	if v.boolean("XDS_CLIENT_BACKOFF_JITTER", true) {
		x.Jitter = 1
	}
	if text := v.text("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", ""); text != "" {
		bytes, err := strconv.Atoi(text)
		if err != nil || bytes < 1 {
			v.fault("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", text, "a number of bytes, 1 or more")
		}
		x.MaxMessageBytes = bytes
	}
	v.text(begin+"SERVER_CONNECT_RETRY_INTERVAL", "") // the waits above are between attempts to connect, too
}

// pairs reads names with texts, of which commas stand between.
func (v *variables) pairs(name, between string) map[string]string {
	pairs := map[string]string{}
	for part := range strings.SplitSeq(v.text(name, ""), ",") {
		key, text, found := strings.Cut(part, between)
		if found && key != "" {
			pairs[key] = text
		} else if part != "" {
			v.fault(name, part, "NAME"+between+"TEXT, with commas between several")
		}
	}
	return pairs
}

// tracing turns traces on as the libraries of this program know it.
func (v *variables) tracing(settings map[string]string) {
	if !v.boolean("TRACING_ENABLED", false) {
		return
	}
	settings["OTEL_TRACES_EXPORTER"] = "otlp"
	settings["OTEL_SERVICE_NAME"] = v.text("TRACING_SERVICE_NAME", "RateLimit")
	settings["OTEL_TRACES_SAMPLER"] = "parentbased_traceidratio"
	settings["OTEL_TRACES_SAMPLER_ARG"] = strconv.FormatFloat(v.ratio("TRACING_SAMPLING_RATE", 1, 0), 'f', -1, 64)
	settings["OTEL_RESOURCE_ATTRIBUTES"] = fmt.Sprintf("service.namespace=%s,service.instance.id=%s",
		v.text("TRACING_SERVICE_NAMESPACE", ""), v.text("TRACING_SERVICE_INSTANCE_ID", ""))
}
