package config

import (
	"strings"
	"time"

	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules/notation"
)

// A Setting is one scalar or list of the configuration, which a flag, the
// environment and the file can give.
type Setting struct {
	// Path is the setting's place in the file, such as store.timeout.
	Path string
	// Default is the built-in value as a flag would give it.
	Default string
	// Value stands for the value in a help text, such as HOST:PORT.
	Value string
	// Usage says what the setting does.
	Usage string

	set notation.Setter
}

// Flag is the name of the flag, without dashes.
func (s Setting) Flag() string {
	if s.Path == "store.url" {
		return "store"
	}
	return strings.NewReplacer(".", "-", "_", "-").Replace(s.Path)
}

// Env is the name of the environment variable.
func (s Setting) Env() string {
	return "STINT_" + strings.ToUpper(strings.ReplaceAll(s.Flag(), "-", "_"))
}

// Boolean reports whether the setting is true or false.
func (s Setting) Boolean() bool { return s.Value == "" }

// Secret reports whether nobody may see the value. A secret has no flag, since the
// machine's other users see the flags of a process.
func (s Setting) Secret() bool { return strings.HasSuffix(s.Path, "password") }

// apply gives the setting a value, or records what is wrong with it.
func (s Setting) apply(v notation.Value, faults *notation.Faults) {
	s.set(v, func(v notation.Value, allowed string) {
		if s.Path == "store.url" || s.Path == "rules_from" {
			v.Text = RedactURL(v.Text)
		}
		if s.Secret() {
			v.Text = "redacted"
		}
		faults.Invalid(s.Path, v, allowed)
	})
}

// Settings lists what flags and the environment can set, in the order in which
// help shows it.
func Settings() []Setting { return settings(new(Config)) }

// settings binds the settings to a configuration.
func settings(c *Config) []Setting {
	return []Setting{
		{"listen", "127.0.0.1:8080", "HOST:PORT", "address of the REST API, metrics and health; port 0 picks a free one", address(&c.Listen)},
		{"grpc_listen", "off", "HOST:PORT", "address of the gRPC services; not offered by this version", notYet("gRPC")},
		{"resp_listen", "off", "HOST:PORT", "address of the Redis protocol; not offered by this version", notYet("the Redis protocol")},
		{"admin_listen", "127.0.0.1:8079", "HOST:PORT", "address of the admin listener, or off", orOff(&c.AdminListen)},
		{"tls.cert_file", "", "PATH", "certificate in PEM with which the listeners speak TLS, its issuers behind it; followed when it changes", notation.Text(&c.TLS.CertFile)},
		{"tls.key_file", "", "PATH", "private key of tls.cert_file", notation.Text(&c.TLS.KeyFile)},
		{"tls.client_ca_file", "", "PATH", "authorities that have to vouch for clients' certificates; without it clients need none", notation.Text(&c.TLS.ClientCAFile)},
		{"admin_tls.cert_file", "", "PATH", "certificate of the admin listener, or off for plain HTTP; without it, all of tls holds", notation.Text(&c.AdminTLS.CertFile)},
		{"admin_tls.key_file", "", "PATH", "private key of admin_tls.cert_file", notation.Text(&c.AdminTLS.KeyFile)},
		{"admin_tls.client_ca_file", "", "PATH", "authorities that have to vouch for admins' certificates", notation.Text(&c.AdminTLS.ClientCAFile)},
		{"http.read_header_timeout", "5s", "DURATION", "longest until a connection's first head has come, 10ms to 10m", notation.Between(&c.HTTP.ReadHeaderTimeout, 10*time.Millisecond, 10*time.Minute)},
		{"http.body_timeout", "10s", "DURATION", "longest that a request's body may take to come, 10ms to 10m", notation.Between(&c.HTTP.BodyTimeout, 10*time.Millisecond, 10*time.Minute)},
		{"http.write_timeout", "30s", "DURATION", "longest from a request's head to the end of its response, 10ms to 10m", notation.Between(&c.HTTP.WriteTimeout, 10*time.Millisecond, 10*time.Minute)},
		{"http.idle_timeout", "2m", "DURATION", "how long a connection is kept between requests, 10ms to 1h", notation.Between(&c.HTTP.IdleTimeout, 10*time.Millisecond, time.Hour)},
		{"http.max_header_size", "64KiB", "SIZE", "most that a request's head may have, 1KiB to 16MiB; longer ones are answered 431", sizeBetween(&c.HTTP.MaxHeaderBytes, 1<<10, 16<<20)},
		{"http.max_body_size", "1MiB", "SIZE", "most that a request's body may have, 1KiB to 64MiB; longer ones are answered 413", sizeBetween(&c.HTTP.MaxBodyBytes, 1<<10, 64<<20)},
		{"http.max_body_memory", "default", "SIZE", "most memory that all bodies under way may use, at least 4 times http.max_body_size, 16 times http.max_header_size and 32KiB together; further ones are answered 503; default is 64MiB, or the least if that is more", size(&c.HTTP.MaxBodyMemory)},
		{"http.max_streams", "100", "N", "how many requests one connection of HTTP/2 has at once", notation.Integer(&c.HTTP.MaxStreams, 1, 10_000)},
		{"http.max_connections", "16384", "N", "how many connections the REST API has at once; the longest idle ones make room", notation.Integer(&c.HTTP.MaxConnections, 1, 10_000_000)},
		{"http.max_operations", "0", "N", "how many operations are decided at once; more wait for their turn, fairly between clients; 0 for 1024 for each processor", notation.Integer(&c.HTTP.MaxOperations, 0, 10_000_000)},
		{"http.max_connections_per_peer", "0", "N", "how many of them one address may have that is no trusted proxy; 0 for no bound", notation.Integer(&c.HTTP.MaxConnectionsPerPeer, 0, 10_000_000)},
		{"drain.delay", "0s", "DURATION", "how long a service that is stopped reports itself not ready before it closes its listeners, up to 10m", notation.Between(&c.Drain.Delay, 0, 10*time.Minute)},
		{"drain.keep_alive", "2s", "DURATION", "how long it then keeps connections for their next request, whose answer ends them, up to 10m", notation.Between(&c.Drain.KeepAlive, 0, 10*time.Minute)},
		{"drain.timeout", "30s", "DURATION", "longest that requests in flight are waited for, drain.keep_alive included, 1ms to 1h", notation.Between(&c.Drain.Timeout, time.Millisecond, time.Hour)},
		{"store.url", memoryURL, "URL", "where state lives: memory://, redis://, redis-sentinel://, redis-cluster:// (rediss… with TLS) or unix://", storeURL(&c.Store.URL)},
		{"store.username", "", "NAME", "user that Redis knows the service as, if the URL names none", notation.Text(&c.Store.Username)},
		{"store.password", "", "PASSWORD", "the user's password, if the URL has none", notation.Text(&c.Store.Password)},
		{"store.password_file", "", "PATH", "file of the user's password, read for every connection; or give the password in STINT_STORE_PASSWORD", notation.Text(&c.Store.PasswordFile)},
		{"store.sentinel_username", "", "NAME", "user that the sentinels themselves know the service as", notation.Text(&c.Store.SentinelUsername)},
		{"store.sentinel_password", "", "PASSWORD", "that user's password", notation.Text(&c.Store.SentinelPassword)},
		{"store.sentinel_password_file", "", "PATH", "file of that user's password; or give it in STINT_STORE_SENTINEL_PASSWORD", notation.Text(&c.Store.SentinelPasswordFile)},
		{"store.tls.ca_file", "", "PATH", "certificates of the authorities that Redis is believed by; the system's by default", notation.Text(&c.Store.TLS.CAFile)},
		{"store.tls.cert_file", "", "PATH", "the service's own certificate for Redis", notation.Text(&c.Store.TLS.CertFile)},
		{"store.tls.key_file", "", "PATH", "the key of that certificate", notation.Text(&c.Store.TLS.KeyFile)},
		{"store.tls.server_name", "", "NAME", "name that Redis's certificate has to have; by default the host of its address", notation.Text(&c.Store.TLS.ServerName)},
		{"store.timeout", "100ms", "DURATION", "longest that one call of the store may take, 1ms to 1m", timeout(&c.Store.Timeout)},
		{"store.key_prefix", "rate_limiter", "NAME", "start of every key's name in Redis", keyPrefix(&c.Store.KeyPrefix)},
		{"store.log_encoding", "default", "NAME", "how Redis keeps a sliding window log: packed, zset, stream or default", logEncoding(&c.Store.LogEncoding)},
		{"store.partitions", "default", "N", "in how many parts Redis keeps each limit's clients: a power of two from 1 to 256, or default, which is what the other processes have", partitions(&c.Store.Partitions)},
		{"store.denial_cache", "65536", "N", "how many denials are remembered, to answer them without Redis; 0 for none", notation.Integer(&c.Store.DenialCache, 0, 10_000_000)},
		{"store.max_memory", "default", "SIZE", "most memory that states in the process may use, such as 1GiB, or default", size(&c.Store.MaxMemory)},
		{"on_store_failure", "open", "POLICY", "what decides checks while the store is unreachable: open (admit), closed (503) or local (this process's share)", failureMode(&c.OnStoreFailure)},
		{"on_overload", "reject", "POLICY", "what a check gets that this process is too busy to have decided in time: reject (503) or admit (as on_store_failure says)", overload(&c.OnOverload)},
		{"instances", "1", "N", "how many processes share the limits, or auto to count those that share the store; for on_store_failure local", instances(&c.Instances)},
		{"rules_from", "", "PLACE", "where rules are kept that change: a file or a folder of them, redis://… as for the store, mongodb://…, or the word store, which is the store itself and the default without rules in the configuration", rulesPlace(&c.RulesFrom)},
		{"rules_cache", "", "PATH", "file that keeps the last rules read from rules_from, to begin with when that is unreachable; without it the service is not ready until rules were read", notation.Text(&c.RulesCache)},
		{"ambiguous_paths", "match", "POLICY", "what becomes of a path that programs take apart in different ways: match (the rules of all its variants hold) or reject (400)", ambiguousPaths(&c.RejectAmbiguousPaths)},
		{"trusted_proxies", "", "CIDR,...", "peers whose forwarded headers are believed", prefixes(&c.ClientIP.TrustedProxies)},
		{"client_ip_headers", "X-Forwarded-For", "NAME,...", "headers of trusted proxies that name the client; only those that the proxy sets itself", headerNames(&c.ClientIP.Headers)},
		{"identity.user", "", "NAME", "header of trusted proxies that names the user", headerName(&c.Identity.User)},
		{"identity.api_key", "", "NAME", "header of trusted proxies that holds the API key", headerName(&c.Identity.APIKey)},
		{"ipv6_prefix", "64", "BITS", "how many bits of an IPv6 address identify a client", notation.Integer(&c.ClientIP.IPv6Prefix, 1, 128)},
		{"headers.x_ratelimit", "true", "", "answer with X-RateLimit-Limit, -Remaining and -Reset", included(&c.Headers, httplimit.XRateLimit)},
		{"headers.ietf", "true", "", "answer with RateLimit and RateLimit-Policy", included(&c.Headers, httplimit.IETF)},
		{"headers.retry_after", "true", "", "answer denials with Retry-After", included(&c.Headers, httplimit.RetryAfter)},
		{"api.explicit_keys", "true", "", "let callers name keys", notation.Boolean(&c.API.ExplicitKeys)},
		{"api.tokens_file", "", "PATH", "file of bearer tokens, one a line, that callers who name keys must show one of", notation.Text(&c.TokensFile)},
		{"api.open", "false", "", "let callers name keys without a token on any address", notation.Boolean(&c.API.Open)},
		{"admin.tokens_file", "", "PATH", "file of bearer tokens, one a line, each with its role and name, that callers of the admin listener must show one of; needed when it is not on loopback", notation.Text(&c.AdminTokensFile)},
		{"log.format", "text", "FORMAT", "text or json", notation.OneOf(&c.Log.Format, "text", "json")},
		{"log.level", "info", "LEVEL", "debug, info, warn or error", logLevel(&c.Log.Level)},
	}
}
