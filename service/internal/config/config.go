// Package config reads the configuration of the service from a YAML file, the
// environment and command-line flags.
//
// A flag beats the environment, which beats the file, which beats the built-in
// value. Reading is strict: an unknown name, a wrong type and a value out of
// range are faults, and so is a setting whose capability this version does not
// have. All faults of all sources are reported at once, those of the file with
// line and column. No message shows a password or a token.
package config

import (
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/file/document"
	"github.com/stint-go/stint/service/internal/server"
)

// A Config is everything that `stint serve` can be told, checked. [Default] makes one with the built-in values, [Load]
// one with what the sources say.
//
// The tags say all about a setting: doc is its name in the file, default the built-in value as a flag would give it, is
// what it may be (see [document.Kinds]), value stands for the value in a help text, and help says what the setting
// does.
type Config struct {
	Listen      string `doc:"listen" is:"address" default:"127.0.0.1:8080" value:"HOST:PORT" help:"address of the REST API, metrics and health; port 0 picks a free one"`
	GRPCListen  string `doc:"grpc_listen" is:"grpc-address" zero:"off" default:"off" value:"HOST:PORT" help:"address of Envoy's rate limit service, or unix: and the path of a socket, or off"`
	RESPListen  string `doc:"resp_listen" is:"address" zero:"off" default:"off" value:"HOST:PORT" help:"address of the Redis protocol, or off"`
	AdminListen string `doc:"admin_listen" is:"address" zero:"off" default:"127.0.0.1:8079" value:"HOST:PORT" help:"address of the admin listener, or off"`

	TLS      TLS      `doc:"tls"`
	AdminTLS AdminTLS `doc:"admin_tls"`
	GRPCTLS  GRPCTLS  `doc:"grpc_tls"`
	RESPTLS  RESPTLS  `doc:"resp_tls"`
	HTTP     HTTP     `doc:"http"`
	Drain    Drain    `doc:"drain"`
	Store    Store    `doc:"store"`

	OnStoreFailure failover.Mode     `doc:"on_store_failure" is:"one-of open closed local" default:"open" value:"POLICY" help:"what decides checks while the store is unreachable: open (admit), closed (503) or local (this process's share)"`
	OnOverload     failover.Overload `doc:"on_overload" is:"one-of reject admit" default:"reject" value:"POLICY" help:"what a check gets if this process is too busy to decide it in time: reject (503) or admit (as on_store_failure says)"`
	// Instances is 0 for auto.
	Instances int `doc:"instances" is:"integer 1 1000000" zero:"auto" default:"auto" value:"N" help:"how many processes share the limits, or auto to count those that share the store; for on_store_failure local"`
	// RulesFrom is a file or a folder, the URL of a Redis or a MongoDB, or RulesFromStore; "" is Rules if there are any,
	// else RulesFromStore.
	RulesFrom string `doc:"rules_from" is:"place" secret:"url" value:"PLACE" help:"where rules are kept: a file or a folder, redis://… as for the store, mongodb://HOST/DATABASE?collection=NAME, or the word store, which is the store itself and the default if the configuration has no rules"`
	// RulesCache is "" for none.
	RulesCache           string `doc:"rules_cache" value:"PATH" help:"file that keeps the last rules read from rules_from, to start with if that is unreachable; without it the service is not ready until rules were read"`
	RejectAmbiguousPaths bool   `doc:"ambiguous_paths" is:"one-of match reject" default:"match" value:"POLICY" help:"what happens to a path that applications may read in several ways: match (the rules of all variants hold) or reject (400)"`
	DenyByDefault        bool   `doc:"rules_default" is:"one-of allow deny" default:"allow" value:"DECISION" help:"what happens to a request that no rule matches: allow, or deny (429)"`

	Envoy    Envoy    `doc:"envoy"`
	ClientIP ClientIP `doc:",inline"`
	Identity Identity `doc:"identity"`
	Headers  Headers  `doc:"headers"`
	API      API      `doc:"api"`
	Admin    Admin    `doc:"admin"`
	Log      Log      `doc:"log"`
	Metrics  Metrics  `doc:"metrics"`
	Alerts   Alerts   `doc:"alerts"`

	// Record is "" for none.
	Record          string `doc:"record" value:"FILE" help:"file to which every decision is written for stint simulate --replay: 8 files of 128 MiB at most, FILE.1 the newest full one"`
	RecordPlainKeys bool   `doc:"record_keys" is:"one-of hash plain" default:"hash" value:"FORM" help:"what a record has of clients: hash (the SHA-256 of their keys) or plain"`

	// Defaults holds the limit of each algorithm that a check without a policy is
	// decided by.
	Defaults defaults `doc:"defaults"`
	// Policies are what a check may name.
	Policies policies `doc:"policies"`
	// Rules are those of the file, well written; rules.Compile checks what they say.
	Rules ruleList `doc:"rules"`
	// File is the path of the file that was read, "" if none was.
	File string
	// RulesAt says where each of Rules begins.
	RulesAt []document.Position
	// AdminAsked says that some source gave AdminListen. When none did, a service may
	// do without the admin listener if its address is taken.
	AdminAsked bool
}

// RulesFromStore is where rules are kept in the store of the states: in the process with
// memory://, else in its Redis.
const RulesFromStore = "store"

// TLS is what the REST API speaks TLS with.
type TLS struct {
	CertFile     string `doc:"cert_file" value:"PATH" help:"PEM file with the certificate of the listeners, followed by its issuers; reloaded when it changes"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"PEM file of the authorities that must have signed clients' certificates; without it clients need none"`
}

// AdminTLS is what the admin listener does: TLS, unless something else was said.
type AdminTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH" help:"PEM file with the certificate of the admin listener, or off for plain HTTP; without it, all of tls holds"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of admin_tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"PEM file of the authorities that must have signed administrators' certificates"`
}

// RESPTLS is what the listener of the Redis protocol does: TLS, unless something else was said.
type RESPTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH" help:"PEM file with the certificate of the Redis protocol's listener, or off for plain connections; without it, all of tls holds"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of resp_tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"PEM file of the authorities that must have signed the certificates of Redis clients"`
}

// GRPCTLS is what the gRPC listener does: TLS, unless something else was said.
type GRPCTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH" help:"PEM file with the certificate of the gRPC listener, or off for plain gRPC; without it, all of tls holds"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of grpc_tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"PEM file of the authorities that must have signed the certificates of proxies"`
	ClientName   string `doc:"client_name" value:"NAME" help:"host, address or URI that each proxy's certificate must have; any without it"`
}

// TLS are the files alone.
func (t GRPCTLS) TLS() server.TLS {
	return server.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile}
}

// Envoy says how Envoy's rate limit service decides.
type Envoy struct {
	// Config is "" for none.
	Config     string       `doc:"config" value:"PATH" help:"file or folder with the domains of Envoy's rate limit service, as its reference service has them; reloaded when it changes"`
	Accounting string       `doc:"accounting" is:"accounting" default:"atomic" value:"NAME" help:"what counts of a denied request: atomic (nothing, anywhere) or reference (all, as in the reference service)"`
	Merge      bool         `doc:"merge_domains" default:"false" help:"let several files have descriptors of one domain"`
	Shadow     bool         `doc:"shadow" default:"false" help:"admit every request, and tell what would be denied"`
	Quota      bool         `doc:"quota" default:"false" help:"have all limits in quota mode: deny when all of a request's are exceeded"`
	KeepDenied bool         `doc:"keep_denied" default:"false" help:"in the reference accounting, count of a denied request only the limits that are exceeded"`
	Metadata   bool         `doc:"metadata" default:"false" help:"hand Envoy the request and the metadata of its limits as dynamic metadata"`
	NearRatio  int          `doc:"near_limit" is:"integer 1 100" default:"80" value:"PERCENT" help:"from how much of a limit on hits count as near it, in percent"`
	Headers    EnvoyHeaders `doc:"headers"`
	XDS        XDS          `doc:"xds"`
}

// XDS is a control plane that has the domains; none without a server.
type XDS struct {
	Server string `doc:"server" is:"address" zero:"off" default:"off" value:"HOST:PORT" help:"address of a control plane that has the domains, such as envoy-gateway:18001, or off"`
	NodeID string `doc:"node_id" default:"default" value:"NAME" help:"what the control plane is told of who asks"`
	TLS    XDSTLS `doc:"tls"`
}

// XDSTLS is what a control plane is asked with, all in PEM.
type XDSTLS struct {
	Enabled    bool   `doc:"enabled" default:"false" help:"ask the control plane over TLS; the files of envoy.xds.tls do so, too"`
	CAFile     string `doc:"ca_file" value:"PATH" help:"PEM file of the authorities that must have signed the control plane's certificate; the system's by default"`
	CertFile   string `doc:"cert_file" value:"PATH" help:"PEM file with the service's own certificate for the control plane"`
	KeyFile    string `doc:"key_file" value:"PATH" help:"private key of envoy.xds.tls.cert_file"`
	ServerName string `doc:"server_name" value:"NAME" help:"name that the control plane's certificate must have; by default the host of its address"`
}

// EnvoyHeaders are the fields that Envoy is told to add to responses; "" is none.
type EnvoyHeaders struct {
	Limit     string `doc:"limit" is:"header" value:"NAME" help:"header field with the limit that Envoy adds to responses"`
	Remaining string `doc:"remaining" is:"header" value:"NAME" help:"header field with what is left"`
	Reset     string `doc:"reset" is:"header" value:"NAME" help:"header field with the seconds until the limit is renewed"`
}

// HTTP bounds what clients of the REST API and of the admin listener may use.
type HTTP struct {
	ReadHeaderTimeout time.Duration `doc:"read_header_timeout" is:"duration 10ms 10m" default:"5s" value:"DURATION" help:"longest time until the head of a connection's first request has arrived, 10ms to 10m"`
	BodyTimeout       time.Duration `doc:"body_timeout" is:"duration 10ms 10m" default:"10s" value:"DURATION" help:"longest time for a request's body to arrive, 10ms to 10m"`
	WriteTimeout      time.Duration `doc:"write_timeout" is:"duration 10ms 10m" default:"30s" value:"DURATION" help:"longest time from a request's head to the end of its response, 10ms to 10m"`
	IdleTimeout       time.Duration `doc:"idle_timeout" is:"duration 10ms 1h" default:"2m" value:"DURATION" help:"how long a connection is kept between requests, 10ms to 1h"`
	MaxHeaderBytes    int64         `doc:"max_header_size" is:"size 1KiB 16MiB" default:"64KiB" value:"SIZE" help:"largest head of a request, 1KiB to 16MiB; a larger one is answered 431"`
	MaxBodyBytes      int64         `doc:"max_body_size" is:"size 1KiB 64MiB" default:"1MiB" value:"SIZE" help:"largest body of a request, 1KiB to 64MiB; a larger one is answered 413"`
	MaxBodyMemory     int64         `doc:"max_body_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE" help:"most memory for the bodies of all requests in progress, at least 4 times http.max_body_size, 16 times http.max_header_size and 32KiB together; further requests are answered 503; default is 64MiB, or the least if that is more"`
	MaxStreams        int           `doc:"max_streams" is:"integer 1 10000" default:"100" value:"N" help:"most requests at once on one HTTP/2 connection"`
	MaxConnections    int           `doc:"max_connections" is:"integer 1 10000000" default:"16384" value:"N" help:"most connections of the REST API at once; a new one closes the one that has been idle longest"`
	MaxOperations     int           `doc:"max_operations" is:"integer 0 10000000" default:"0" value:"N" help:"most operations decided at once; further ones wait for their turn, fairly between clients; 0 for 1024 per processor"`
	// MaxConnectionsPerPeer is 0 for no bound.
	MaxConnectionsPerPeer int `doc:"max_connections_per_peer" is:"integer 0 10000000" default:"0" value:"N" help:"most connections of one address that is not in trusted_proxies; 0 for no limit"`
}

// Drain says how the service ends.
type Drain struct {
	Delay     time.Duration `doc:"delay" is:"duration 0s 10m" default:"0s" value:"DURATION" help:"how long a stopping service reports itself not ready before it accepts no more connections, up to 10m"`
	KeepAlive time.Duration `doc:"keep_alive" is:"duration 0s 10m" default:"2s" value:"DURATION" help:"how long it then keeps idle connections open for one more request, up to 10m"`
	Timeout   time.Duration `doc:"timeout" is:"duration 1ms 1h" default:"30s" value:"DURATION" help:"longest wait for requests in progress, drain.keep_alive included, 1ms to 1h"`
}

// Store says where state lives.
type Store struct {
	// URL may hold a password: show it with [RedactURL] only.
	URL                  string        `doc:"url" flag:"store" is:"store-url" secret:"url" default:"memory://" value:"URL" help:"where state lives: memory://, redis://, redis-sentinel://, redis-cluster:// (rediss… with TLS) or unix://"`
	Username             string        `doc:"username" for:"redis" value:"NAME" help:"user name for Redis, if the URL has none"`
	Password             string        `doc:"password" for:"redis" secret:"all" value:"PASSWORD" help:"password for Redis, if the URL has none"`
	PasswordFile         string        `doc:"password_file" for:"redis" value:"PATH" help:"file with the password for Redis, read for each connection; or set STINT_STORE_PASSWORD"`
	SentinelUsername     string        `doc:"sentinel_username" for:"redis" value:"NAME" help:"user name for the sentinels themselves"`
	SentinelPassword     string        `doc:"sentinel_password" for:"redis" secret:"all" value:"PASSWORD" help:"password for the sentinels"`
	SentinelPasswordFile string        `doc:"sentinel_password_file" for:"redis" value:"PATH" help:"file with the password for the sentinels; or set STINT_STORE_SENTINEL_PASSWORD"`
	TLS                  StoreTLS      `doc:"tls"`
	Timeout              time.Duration `doc:"timeout" is:"duration 1ms 1m" default:"100ms" value:"DURATION" help:"longest time for one call of the store, 1ms to 1m"`
	KeyPrefix            string        `doc:"key_prefix" is:"key-prefix" default:"rate_limiter" value:"NAME" help:"start of every key's name in Redis"`
	LogEncoding          string        `doc:"log_encoding" is:"one-of packed zset stream" zero:"default" default:"default" value:"NAME" help:"how Redis keeps a sliding window log: packed, zset, stream or default"`
	Partitions           int           `doc:"partitions" is:"partitions" zero:"default" default:"default" value:"N" help:"into how many parts Redis splits each limit's clients: a power of two from 1 to 256, or default, which is what the other processes use"`
	DenialCache          int           `doc:"denial_cache" is:"integer 0 10000000" default:"65536" value:"N" help:"how many denials are remembered, to answer them without Redis; 0 for none"`
	MaxHolds             int           `doc:"max_holds" is:"integer 1 10000" default:"1000" value:"N" help:"how many live holds a client may have under one limit; a reserve beyond it is denied"`
	MaxMemory            int64         `doc:"max_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE" help:"most memory for state in the process, such as 1GiB, or default, which is 1GiB"`
}

// StoreTLS names the files that TLS is spoken with to the store, all in PEM, and "" where there is none.
type StoreTLS struct {
	CAFile     string `doc:"ca_file" for:"redis" value:"PATH" help:"PEM file of the authorities that must have signed Redis's certificate; the system's by default"`
	CertFile   string `doc:"cert_file" for:"redis" value:"PATH" help:"PEM file with the service's own certificate for Redis"`
	KeyFile    string `doc:"key_file" for:"redis" value:"PATH" help:"private key of store.tls.cert_file"`
	ServerName string `doc:"server_name" for:"redis" value:"NAME" help:"name that Redis's certificate must have; by default the host of its address"`
}

// Memory reports whether state lives in this process.
func (s Store) Memory() bool { return s.URL == memoryURL }

// Clustered reports whether state lives in a Redis Cluster, in several partitions.
func (s Store) Clustered() bool {
	scheme, _, _ := strings.Cut(s.URL, "://")
	return strings.HasSuffix(scheme, "-cluster") && s.Partitions != 1
}

const memoryURL = "memory://"

// ClientIP says how a client's address is found, as [clientip.Config] has it.
type ClientIP struct {
	TrustedProxies []netip.Prefix `doc:"trusted_proxies" is:"networks" value:"CIDR,..." help:"peers whose forwarded headers are believed"`
	Headers        []string       `doc:"client_ip_headers" is:"headers" default:"X-Forwarded-For" value:"NAME,..." help:"headers of trusted proxies that name the client; only those that the proxy sets itself"`
	IPv6Prefix     int            `doc:"ipv6_prefix" is:"integer 1 128" default:"64" value:"BITS" help:"how many bits of an IPv6 address identify a client"`
}

// Identity names the headers that say who the user is; "" is none.
type Identity struct {
	User   string `doc:"user" is:"header" value:"NAME" help:"header of trusted proxies that names the user"`
	APIKey string `doc:"api_key" is:"header" value:"NAME" help:"header of trusted proxies that holds the API key"`
	// Attributes are headers by the attribute that each holds.
	Attributes map[string]string `doc:"attributes" is:"attribute-headers" value:"NAME=HEADER,..." help:"headers of trusted proxies that hold further attributes of a request, such as plan=X-Plan, at most 16"`
}

// Headers are the rate limit header fields of an answer.
type Headers struct {
	XRateLimit bool `doc:"x_ratelimit" default:"true" help:"answer with X-RateLimit-Limit, -Remaining and -Reset"`
	IETF       bool `doc:"ietf" default:"true" help:"answer with RateLimit and RateLimit-Policy"`
	RetryAfter bool `doc:"retry_after" default:"true" help:"answer denials with Retry-After"`
}

// Fields are the fields as [server.Config] has them.
func (h Headers) Fields() (fields httplimit.Fields) {
	for field, is := range map[httplimit.Fields]bool{httplimit.XRateLimit: h.XRateLimit, httplimit.IETF: h.IETF, httplimit.RetryAfter: h.RetryAfter} {
		if is {
			fields |= field
		}
	}
	return fields
}

// API says which callers may name keys.
type API struct {
	ExplicitKeys bool   `doc:"explicit_keys" default:"true" help:"let callers name keys"`
	TokensFile   string `doc:"tokens_file" value:"PATH" help:"file of bearer tokens, one a line; callers who name keys need one of them"`
	// Tokens are read from TokensFile.
	Tokens []string
	// UnknownFallsBack has TOKEN_BUCKET decide for an algorithm that does not exist.
	UnknownFallsBack bool `doc:"unknown_algorithm" is:"one-of reject fallback" default:"reject" value:"POLICY" help:"what happens to a request with an unknown algorithm: reject (400) or fallback (TOKEN_BUCKET decides)"`
	Open             bool `doc:"open" default:"false" help:"let callers name keys without a token on any address"`
}

// Admin says which callers may use the admin listener.
type Admin struct {
	TokensFile string `doc:"tokens_file" value:"PATH" help:"file of bearer tokens, one a line with role and name; callers of the admin listener need one of them; required if it is not on loopback"`
	// Tokens are read from TokensFile.
	Tokens []server.AdminToken
}

// Log says what is logged, and how.
type Log struct {
	Format string     `doc:"format" is:"one-of text json" default:"text" value:"FORMAT" help:"text or json"`
	Level  slog.Level `doc:"level" is:"level" default:"info" value:"LEVEL" help:"debug, info, warn or error; debug logs every decision"`
	// Denials logs a sample of them.
	Denials bool `doc:"denials" is:"one-of off sampled" default:"off" value:"WHICH" help:"which denials are logged at info: off or sampled (10 at once, then one a second)"`
	// PlainClients shows clients as they are.
	PlainClients bool   `doc:"clients" is:"one-of hash plain" default:"hash" value:"FORM" help:"what the log shows of the clients of decisions: hash (an HMAC-SHA256 of their keys) or plain"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"file with the key of that HMAC, 16 bytes or more; without it each process makes its own at its start"`
	// Key is read from KeyFile.
	Key []byte
}

// Alerts says what a webhook is told. There is none without a URL.
type Alerts struct {
	// URL may hold a token: show it to nobody.
	URL        string `doc:"url" is:"webhook" secret:"all" value:"URL" help:"where alerts are sent, by http or https; set STINT_ALERTS_URL"`
	Secret     string `doc:"secret" secret:"all" value:"SECRET" help:"what signs alerts, 16 bytes or more"`
	SecretFile string `doc:"secret_file" value:"PATH" help:"file with what signs alerts; or set STINT_ALERTS_SECRET"`
	Denials    bool   `doc:"denials" default:"true" help:"alert of clients that are denied"`
	// NearLimit is 0 for off.
	NearLimit int `doc:"near_limit" is:"integer 1 99" zero:"off" default:"20" value:"PERCENT" help:"alert of clients that have this much of their limit left, or less, 1 to 99 percent, or off"`
	// HashClients needs a secret.
	HashClients bool          `doc:"clients" is:"one-of plain hash" default:"plain" value:"FORM" help:"what alerts say of clients: plain (their keys) or hash (the HMAC-SHA256 of their keys under the secret)"`
	Timeout     time.Duration `doc:"timeout" is:"duration 10ms 1m" default:"5s" value:"DURATION" help:"longest time for one attempt to send, 10ms to 1m"`
	MaxQueue    int           `doc:"max_queue" is:"integer 1 1000000" default:"10000" value:"N" help:"most alerts of each kind that wait; further ones are dropped and counted"`
	MaxBatch    int           `doc:"max_batch" is:"integer 1 10000" default:"100" value:"N" help:"most alerts in one request"`
	MaxTries    int           `doc:"max_tries" is:"integer 1 1000" default:"10" value:"N" help:"most attempts to send, with 1s to 1m between them; then the alerts are dropped and counted"`
}

// Metrics says what is measured besides what the service decides.
type Metrics struct {
	Labels map[string]string `doc:"labels"`
	// StoreHealth is 0 for never.
	StoreHealth time.Duration `doc:"store_health" is:"duration 1s 1h" zero:"off" default:"15s" value:"DURATION" help:"how often the store's own Redis is asked for its health (INFO), 1s to 1h, or off"`
}

type (
	defaults map[stint.Algorithm]stint.Limit
	policies map[string][]stint.Limit
	ruleList []rules.Rule
)
