package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/document"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/server"
)

// A Config is everything that `stint serve` can be told, checked. [Default] makes
// one with the built-in values, [Load] one with what the sources say.
//
// The tags say all about a setting: doc is its name in the file, default the built-in value as a flag would give it, is what it may
// be (see [document.Kinds]), value stands for the value in a help text, and help says what the setting does.
type Config struct {
	Listen      string `doc:"listen" is:"address" default:"127.0.0.1:8080" value:"HOST:PORT" help:"address of the REST API, metrics and health; port 0 picks a free one"`
	GRPCListen  string `doc:"grpc_listen" is:"not-yet gRPC" default:"off" value:"HOST:PORT" help:"address of the gRPC services; not offered by this version"`
	RESPListen  string `doc:"resp_listen" is:"not-yet the Redis protocol" default:"off" value:"HOST:PORT" help:"address of the Redis protocol; not offered by this version"`
	AdminListen string `doc:"admin_listen" is:"address" zero:"off" default:"127.0.0.1:8079" value:"HOST:PORT" help:"address of the admin listener, or off"`

	TLS      TLS      `doc:"tls"`
	AdminTLS AdminTLS `doc:"admin_tls"`
	HTTP     HTTP     `doc:"http"`
	Drain    Drain    `doc:"drain"`
	Store    Store    `doc:"store"`

	OnStoreFailure failover.Mode     `doc:"on_store_failure" is:"one-of open closed local" default:"open" value:"POLICY" help:"what decides checks while the store is unreachable: open (admit), closed (503) or local (this process's share)"`
	OnOverload     failover.Overload `doc:"on_overload" is:"one-of reject admit" default:"reject" value:"POLICY" help:"what a check gets that this process is too busy to have decided in time: reject (503) or admit (as on_store_failure says)"`
	// Instances is 0 for auto.
	Instances int `doc:"instances" is:"integer 1 1000000" zero:"auto" default:"1" value:"N" help:"how many processes share the limits, or auto to count those that share the store; for on_store_failure local"`
	// RulesFrom is a file or a folder, the URL of a Redis or a MongoDB, or RulesFromStore; "" is Rules if there are any, else
	// RulesFromStore.
	RulesFrom string `doc:"rules_from" is:"place" secret:"url" value:"PLACE" help:"where rules are kept that change: a file or a folder of them, redis://… as for the store, mongodb://…, or the word store, which is the store itself and the default without rules in the configuration"`
	// RulesCache is "" for none.
	RulesCache           string `doc:"rules_cache" value:"PATH" help:"file that keeps the last rules read from rules_from, to begin with when that is unreachable; without it the service is not ready until rules were read"`
	RejectAmbiguousPaths bool   `doc:"ambiguous_paths" is:"one-of match reject" default:"match" value:"POLICY" help:"what becomes of a path that programs take apart in different ways: match (the rules of all its variants hold) or reject (400)"`
	DenyByDefault        bool   `doc:"rules_default" is:"one-of allow deny" default:"allow" value:"DECISION" help:"what becomes of a request that no rule matches: allow, or deny (429)"`

	ClientIP ClientIP `doc:",inline"`
	Identity Identity `doc:"identity"`
	Headers  Headers  `doc:"headers"`
	API      API      `doc:"api"`
	Admin    Admin    `doc:"admin"`
	Log      Log      `doc:"log"`

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
	CertFile     string `doc:"cert_file" value:"PATH" help:"certificate in PEM with which the listeners speak TLS, its issuers behind it; followed when it changes"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"authorities that have to vouch for clients' certificates; without it clients need none"`
}

// AdminTLS is what the admin listener does: TLS, unless something else was said.
type AdminTLS struct {
	CertFile     string `doc:"cert_file" value:"PATH" help:"certificate of the admin listener, or off for plain HTTP; without it, all of tls holds"`
	KeyFile      string `doc:"key_file" value:"PATH" help:"private key of admin_tls.cert_file"`
	ClientCAFile string `doc:"client_ca_file" value:"PATH" help:"authorities that have to vouch for admins' certificates"`
}

// HTTP bounds what clients of the REST API and of the admin listener may use.
type HTTP struct {
	ReadHeaderTimeout time.Duration `doc:"read_header_timeout" is:"duration 10ms 10m" default:"5s" value:"DURATION" help:"longest until a connection's first head has come, 10ms to 10m"`
	BodyTimeout       time.Duration `doc:"body_timeout" is:"duration 10ms 10m" default:"10s" value:"DURATION" help:"longest that a request's body may take to come, 10ms to 10m"`
	WriteTimeout      time.Duration `doc:"write_timeout" is:"duration 10ms 10m" default:"30s" value:"DURATION" help:"longest from a request's head to the end of its response, 10ms to 10m"`
	IdleTimeout       time.Duration `doc:"idle_timeout" is:"duration 10ms 1h" default:"2m" value:"DURATION" help:"how long a connection is kept between requests, 10ms to 1h"`
	MaxHeaderBytes    int64         `doc:"max_header_size" is:"size 1KiB 16MiB" default:"64KiB" value:"SIZE" help:"most that a request's head may have, 1KiB to 16MiB; longer ones are answered 431"`
	MaxBodyBytes      int64         `doc:"max_body_size" is:"size 1KiB 64MiB" default:"1MiB" value:"SIZE" help:"most that a request's body may have, 1KiB to 64MiB; longer ones are answered 413"`
	MaxBodyMemory     int64         `doc:"max_body_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE" help:"most memory that all bodies under way may use, at least 4 times http.max_body_size, 16 times http.max_header_size and 32KiB together; further ones are answered 503; default is 64MiB, or the least if that is more"`
	MaxStreams        int           `doc:"max_streams" is:"integer 1 10000" default:"100" value:"N" help:"how many requests one connection of HTTP/2 has at once"`
	MaxConnections    int           `doc:"max_connections" is:"integer 1 10000000" default:"16384" value:"N" help:"how many connections the REST API has at once; the longest idle ones make room"`
	MaxOperations     int           `doc:"max_operations" is:"integer 0 10000000" default:"0" value:"N" help:"how many operations are decided at once; more wait for their turn, fairly between clients; 0 for 1024 for each processor"`
	// MaxConnectionsPerPeer is 0 for no bound.
	MaxConnectionsPerPeer int `doc:"max_connections_per_peer" is:"integer 0 10000000" default:"0" value:"N" help:"how many of them one address may have that is no trusted proxy; 0 for no bound"`
}

// Drain says how the service ends.
type Drain struct {
	Delay     time.Duration `doc:"delay" is:"duration 0s 10m" default:"0s" value:"DURATION" help:"how long a service that is stopped reports itself not ready before it closes its listeners, up to 10m"`
	KeepAlive time.Duration `doc:"keep_alive" is:"duration 0s 10m" default:"2s" value:"DURATION" help:"how long it then keeps connections for their next request, whose answer ends them, up to 10m"`
	Timeout   time.Duration `doc:"timeout" is:"duration 1ms 1h" default:"30s" value:"DURATION" help:"longest that requests in flight are waited for, drain.keep_alive included, 1ms to 1h"`
}

// Store says where state lives.
type Store struct {
	// URL may hold a password: show it with [RedactURL] only.
	URL                  string        `doc:"url" flag:"store" is:"store-url" secret:"url" default:"memory://" value:"URL" help:"where state lives: memory://, redis://, redis-sentinel://, redis-cluster:// (rediss… with TLS) or unix://"`
	Username             string        `doc:"username" for:"redis" value:"NAME" help:"user that Redis knows the service as, if the URL names none"`
	Password             string        `doc:"password" for:"redis" secret:"all" value:"PASSWORD" help:"the user's password, if the URL has none"`
	PasswordFile         string        `doc:"password_file" for:"redis" value:"PATH" help:"file of the user's password, read for every connection; or give the password in STINT_STORE_PASSWORD"`
	SentinelUsername     string        `doc:"sentinel_username" for:"redis" value:"NAME" help:"user that the sentinels themselves know the service as"`
	SentinelPassword     string        `doc:"sentinel_password" for:"redis" secret:"all" value:"PASSWORD" help:"that user's password"`
	SentinelPasswordFile string        `doc:"sentinel_password_file" for:"redis" value:"PATH" help:"file of that user's password; or give it in STINT_STORE_SENTINEL_PASSWORD"`
	TLS                  StoreTLS      `doc:"tls"`
	Timeout              time.Duration `doc:"timeout" is:"duration 1ms 1m" default:"100ms" value:"DURATION" help:"longest that one call of the store may take, 1ms to 1m"`
	KeyPrefix            string        `doc:"key_prefix" is:"key-prefix" default:"rate_limiter" value:"NAME" help:"start of every key's name in Redis"`
	LogEncoding          string        `doc:"log_encoding" is:"one-of packed zset stream" zero:"default" default:"default" value:"NAME" help:"how Redis keeps a sliding window log: packed, zset, stream or default"`
	Partitions           int           `doc:"partitions" is:"partitions" zero:"default" default:"default" value:"N" help:"in how many parts Redis keeps each limit's clients: a power of two from 1 to 256, or default, which is what the other processes have"`
	DenialCache          int           `doc:"denial_cache" is:"integer 0 10000000" default:"65536" value:"N" help:"how many denials are remembered, to answer them without Redis; 0 for none"`
	MaxMemory            int64         `doc:"max_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE" help:"most memory that states in the process may use, such as 1GiB, or default"`
}

// StoreTLS names the files that TLS is spoken with to the store, all in PEM, and "" where there is none.
type StoreTLS struct {
	CAFile     string `doc:"ca_file" for:"redis" value:"PATH" help:"certificates of the authorities that Redis is believed by; the system's by default"`
	CertFile   string `doc:"cert_file" for:"redis" value:"PATH" help:"the service's own certificate for Redis"`
	KeyFile    string `doc:"key_file" for:"redis" value:"PATH" help:"the key of that certificate"`
	ServerName string `doc:"server_name" for:"redis" value:"NAME" help:"name that Redis's certificate has to have; by default the host of its address"`
}

// Memory reports whether state lives in this process.
func (s Store) Memory() bool { return s.URL == memoryURL }

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

// API says who may name keys.
type API struct {
	ExplicitKeys bool   `doc:"explicit_keys" default:"true" help:"let callers name keys"`
	TokensFile   string `doc:"tokens_file" value:"PATH" help:"file of bearer tokens, one a line, that callers who name keys must show one of"`
	// Tokens are read from TokensFile.
	Tokens []string
	Open   bool `doc:"open" default:"false" help:"let callers name keys without a token on any address"`
}

// Admin says who may administer.
type Admin struct {
	TokensFile string `doc:"tokens_file" value:"PATH" help:"file of bearer tokens, one a line, each with its role and name, that callers of the admin listener must show one of; needed when it is not on loopback"`
	// Tokens are read from TokensFile.
	Tokens []server.AdminToken
}

// Log says how the log is written.
type Log struct {
	Format string     `doc:"format" is:"one-of text json" default:"text" value:"FORMAT" help:"text or json"`
	Level  slog.Level `doc:"level" is:"level" default:"info" value:"LEVEL" help:"debug, info, warn or error"`
}

type (
	defaults map[stint.Algorithm]stint.Limit
	policies map[string][]stint.Limit
	ruleList []rules.Rule
)
