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
// The tags say what a setting is: doc is its name in the file, default the built-in value as a flag would give it, is
// what it may be (see [document.Kinds]), and value stands for the value in a help text. help.txt says what the setting
// does, under its name in the file; the comments here say what it trades off.
type Config struct {
	Listen      string `doc:"listen" is:"address" default:"127.0.0.1:8080" value:"HOST:PORT"`
	GRPCListen  string `doc:"grpc_listen" is:"grpc-address" zero:"off" default:"off" value:"HOST:PORT"`
	RESPListen  string `doc:"resp_listen" is:"address" zero:"off" default:"off" value:"HOST:PORT"`
	AdminListen string `doc:"admin_listen" is:"address" zero:"off" default:"127.0.0.1:8079" value:"HOST:PORT"`

	TLS      TLS      `doc:"tls"`
	AdminTLS AdminTLS `doc:"admin_tls"`
	GRPCTLS  GRPCTLS  `doc:"grpc_tls"`
	RESPTLS  RESPTLS  `doc:"resp_tls"`
	HTTP     HTTP     `doc:"http"`
	Drain    Drain    `doc:"drain"`
	Store    Store    `doc:"store"`

	OnStoreFailure failover.Mode     `doc:"on_store_failure" is:"one-of open closed local" default:"open" value:"POLICY"`
	OnOverload     failover.Overload `doc:"on_overload" is:"one-of reject admit" default:"reject" value:"POLICY"`
	// Instances is 0 for auto.
	Instances int `doc:"instances" is:"integer 1 1000000" zero:"auto" default:"auto" value:"N"`
	// RulesFrom is a file or a folder, the URL of a Redis or a MongoDB, or RulesFromStore; "" is Rules if there are any,
	// else RulesFromStore.
	RulesFrom string `doc:"rules_from" is:"place" secret:"url" value:"PLACE"`
	// RulesCache is "" for none.
	RulesCache           string `doc:"rules_cache" value:"PATH"`
	RejectAmbiguousPaths bool   `doc:"ambiguous_paths" is:"one-of match reject" default:"match" value:"POLICY"`
	DenyByDefault        bool   `doc:"rules_default" is:"one-of allow deny" default:"allow" value:"DECISION"`

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
	Record          string `doc:"record" value:"FILE"`
	RecordPlainKeys bool   `doc:"record_keys" is:"one-of hash plain" default:"hash" value:"FORM"`

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
	CertFile     string `doc:"cert_file" value:"PATH"`
	KeyFile      string `doc:"key_file" value:"PATH"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH"`
}

// AdminTLS is what the admin listener does: TLS, unless something else was said.
type AdminTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH"`
	KeyFile      string `doc:"key_file" value:"PATH"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH"`
}

// RESPTLS is what the listener of the Redis protocol does: TLS, unless something else was said.
type RESPTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH"`
	KeyFile      string `doc:"key_file" value:"PATH"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH"`
}

// GRPCTLS is what the gRPC listener does: TLS, unless something else was said.
type GRPCTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH"`
	KeyFile      string `doc:"key_file" value:"PATH"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH"`
	ClientName   string `doc:"client_name" value:"NAME"`
}

// TLS are the files alone.
func (t GRPCTLS) TLS() server.TLS {
	return server.TLS{CertFile: t.CertFile, KeyFile: t.KeyFile, ClientCAFile: t.ClientCAFile}
}

// Envoy says how Envoy's rate limit service decides.
type Envoy struct {
	// Config is "" for none.
	Config     string       `doc:"config" value:"PATH"`
	Accounting string       `doc:"accounting" is:"accounting" default:"atomic" value:"NAME"`
	Merge      bool         `doc:"merge_domains" default:"false"`
	Shadow     bool         `doc:"shadow" default:"false"`
	Quota      bool         `doc:"quota" default:"false"`
	KeepDenied bool         `doc:"keep_denied" default:"false"`
	Metadata   bool         `doc:"metadata" default:"false"`
	NearRatio  int          `doc:"near_limit" is:"integer 1 100" default:"80" value:"PERCENT"`
	Headers    EnvoyHeaders `doc:"headers"`
	XDS        XDS          `doc:"xds"`
}

// XDS is a control plane that has the domains; none without a server.
type XDS struct {
	Server string `doc:"server" is:"address" zero:"off" default:"off" value:"HOST:PORT"`
	NodeID string `doc:"node_id" default:"default" value:"NAME"`
	TLS    XDSTLS `doc:"tls"`
}

// XDSTLS is what a control plane is asked with, all in PEM.
type XDSTLS struct {
	Enabled    bool   `doc:"enabled" default:"false"`
	CAFile     string `doc:"ca_file" value:"PATH"`
	CertFile   string `doc:"cert_file" value:"PATH"`
	KeyFile    string `doc:"key_file" value:"PATH"`
	ServerName string `doc:"server_name" value:"NAME"`
}

// EnvoyHeaders are the fields that Envoy is told to add to responses; "" is none.
type EnvoyHeaders struct {
	Limit     string `doc:"limit" is:"header" value:"NAME"`
	Remaining string `doc:"remaining" is:"header" value:"NAME"`
	Reset     string `doc:"reset" is:"header" value:"NAME"`
}

// HTTP bounds what clients of the REST API and of the admin listener may use.
type HTTP struct {
	ReadHeaderTimeout time.Duration `doc:"read_header_timeout" is:"duration 10ms 10m" default:"5s" value:"DURATION"`
	BodyTimeout       time.Duration `doc:"body_timeout" is:"duration 10ms 10m" default:"10s" value:"DURATION"`
	WriteTimeout      time.Duration `doc:"write_timeout" is:"duration 10ms 10m" default:"30s" value:"DURATION"`
	IdleTimeout       time.Duration `doc:"idle_timeout" is:"duration 10ms 1h" default:"2m" value:"DURATION"`
	MaxHeaderBytes    int64         `doc:"max_header_size" is:"size 1KiB 16MiB" default:"64KiB" value:"SIZE"`
	MaxBodyBytes      int64         `doc:"max_body_size" is:"size 1KiB 64MiB" default:"1MiB" value:"SIZE"`
	MaxBodyMemory     int64         `doc:"max_body_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE"`
	MaxStreams        int           `doc:"max_streams" is:"integer 1 10000" default:"100" value:"N"`
	MaxConnections    int           `doc:"max_connections" is:"integer 1 10000000" default:"16384" value:"N"`
	MaxOperations     int           `doc:"max_operations" is:"integer 0 10000000" default:"0" value:"N"`
	// MaxConnectionsPerPeer is 0 for no bound.
	MaxConnectionsPerPeer int `doc:"max_connections_per_peer" is:"integer 0 10000000" default:"0" value:"N"`
}

// Drain says how the service ends.
type Drain struct {
	Delay     time.Duration `doc:"delay" is:"duration 0s 10m" default:"0s" value:"DURATION"`
	KeepAlive time.Duration `doc:"keep_alive" is:"duration 0s 10m" default:"2s" value:"DURATION"`
	Timeout   time.Duration `doc:"timeout" is:"duration 1ms 1h" default:"30s" value:"DURATION"`
}

// Store says where state lives.
type Store struct {
	// URL may hold a password: show it with [RedactURL] only.
	URL                  string        `doc:"url" flag:"store" is:"store-url" secret:"url" default:"memory://" value:"URL"`
	Username             string        `doc:"username" for:"redis" value:"NAME"`
	Password             string        `doc:"password" for:"redis" secret:"all" value:"PASSWORD"`
	PasswordFile         string        `doc:"password_file" for:"redis" value:"PATH"`
	SentinelUsername     string        `doc:"sentinel_username" for:"redis" value:"NAME"`
	SentinelPassword     string        `doc:"sentinel_password" for:"redis" secret:"all" value:"PASSWORD"`
	SentinelPasswordFile string        `doc:"sentinel_password_file" for:"redis" value:"PATH"`
	TLS                  StoreTLS      `doc:"tls"`
	Timeout              time.Duration `doc:"timeout" is:"duration 1ms 1m" default:"100ms" value:"DURATION"`
	KeyPrefix            string        `doc:"key_prefix" is:"key-prefix" default:"rate_limiter" value:"NAME"`
	LogEncoding          string        `doc:"log_encoding" is:"one-of packed zset stream" zero:"default" default:"default" value:"NAME"`
	Partitions           int           `doc:"partitions" is:"partitions" zero:"default" default:"default" value:"N"`
	DenialCache          int           `doc:"denial_cache" is:"integer 0 10000000" default:"65536" value:"N"`
	MaxHolds             int           `doc:"max_holds" is:"integer 1 10000" default:"1000" value:"N"`
	MaxMemory            int64         `doc:"max_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE"`
}

// StoreTLS names the files that TLS is spoken with to the store, all in PEM, and "" where there is none.
type StoreTLS struct {
	CAFile     string `doc:"ca_file" for:"redis" value:"PATH"`
	CertFile   string `doc:"cert_file" for:"redis" value:"PATH"`
	KeyFile    string `doc:"key_file" for:"redis" value:"PATH"`
	ServerName string `doc:"server_name" for:"redis" value:"NAME"`
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
	TrustedProxies []netip.Prefix `doc:"trusted_proxies" is:"networks" value:"CIDR,..."`
	Headers        []string       `doc:"client_ip_headers" is:"headers" default:"X-Forwarded-For" value:"NAME,..."`
	IPv6Prefix     int            `doc:"ipv6_prefix" is:"integer 1 128" default:"64" value:"BITS"`
}

// Identity names the headers that say who the user is; "" is none.
type Identity struct {
	User   string `doc:"user" is:"header" value:"NAME"`
	APIKey string `doc:"api_key" is:"header" value:"NAME"`
	// Attributes are headers by the attribute that each holds.
	Attributes map[string]string `doc:"attributes" is:"attribute-headers" value:"NAME=HEADER,..."`
}

// Headers are the rate limit header fields of an answer.
type Headers struct {
	XRateLimit bool `doc:"x_ratelimit" default:"true"`
	IETF       bool `doc:"ietf" default:"true"`
	RetryAfter bool `doc:"retry_after" default:"true"`
}

// Fields are the fields as [server.Config] has them.
func (h Headers) Fields() (fields httplimit.Fields) {
	for field, is := range map[httplimit.Fields]bool{
		httplimit.XRateLimit: h.XRateLimit, httplimit.IETF: h.IETF, httplimit.RetryAfter: h.RetryAfter,
	} {
		if is {
			fields |= field
		}
	}
	return fields
}

// API says which callers may name keys.
type API struct {
	ExplicitKeys bool   `doc:"explicit_keys" default:"true"`
	TokensFile   string `doc:"tokens_file" value:"PATH"`
	// Tokens are read from TokensFile.
	Tokens []string
	// UnknownFallsBack has TOKEN_BUCKET decide for an algorithm that does not exist.
	UnknownFallsBack bool `doc:"unknown_algorithm" is:"one-of reject fallback" default:"reject" value:"POLICY"`
	Open             bool `doc:"open" default:"false"`
}

// Admin says which callers may use the admin listener.
type Admin struct {
	TokensFile string `doc:"tokens_file" value:"PATH"`
	// Tokens are read from TokensFile.
	Tokens []server.AdminToken
}

// Log says what is logged, and how.
type Log struct {
	Format string     `doc:"format" is:"one-of text json" default:"text" value:"FORMAT"`
	Level  slog.Level `doc:"level" is:"level" default:"info" value:"LEVEL"`
	// Denials logs a sample of them.
	Denials bool `doc:"denials" is:"one-of off sampled" default:"off" value:"WHICH"`
	// PlainClients shows clients as they are.
	PlainClients bool   `doc:"clients" is:"one-of hash plain" default:"hash" value:"FORM"`
	KeyFile      string `doc:"key_file" value:"PATH"`
	// Key is read from KeyFile.
	Key []byte
}

// Alerts says what a webhook is told. There is none without a URL.
type Alerts struct {
	// URL may hold a token: show it to nobody.
	URL        string `doc:"url" is:"webhook" secret:"all" value:"URL"`
	Secret     string `doc:"secret" secret:"all" value:"SECRET"`
	SecretFile string `doc:"secret_file" value:"PATH"`
	Denials    bool   `doc:"denials" default:"true"`
	// NearLimit is 0 for off.
	NearLimit int `doc:"near_limit" is:"integer 1 99" zero:"off" default:"20" value:"PERCENT"`
	// HashClients needs a secret.
	HashClients bool          `doc:"clients" is:"one-of plain hash" default:"plain" value:"FORM"`
	Timeout     time.Duration `doc:"timeout" is:"duration 10ms 1m" default:"5s" value:"DURATION"`
	MaxQueue    int           `doc:"max_queue" is:"integer 1 1000000" default:"10000" value:"N"`
	MaxBatch    int           `doc:"max_batch" is:"integer 1 10000" default:"100" value:"N"`
	MaxTries    int           `doc:"max_tries" is:"integer 1 1000" default:"10" value:"N"`
}

// Metrics says what is measured besides what the service decides.
type Metrics struct {
	Labels map[string]string `doc:"labels"`
	// StoreHealth is 0 for never.
	StoreHealth time.Duration `doc:"store_health" is:"duration 1s 1h" zero:"off" default:"15s" value:"DURATION"`
}

type (
	defaults map[stint.Algorithm]stint.Limit
	policies map[string][]stint.Limit
	ruleList []rules.Rule
)
