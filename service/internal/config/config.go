// Package config reads the configuration of the service from a YAML file, the environment and
// command-line flags.
//
// A flag beats the environment, which beats the file, which beats the built-in value. Reading is
// strict: an unknown name, a wrong type and a value out of range are faults, and so is a setting
// whose capability this version does not have. All faults of all sources are reported at once,
// those of the file with line and column. No message shows a password or a token.
//
// The main types are [Config], what `stint serve` runs by; [Sources], where it is read from; and
// [Setting], one scalar of it as the command line knows it. To add a setting, add a field with its
// tags to Config or to one of the structs in it, and a text to help.txt: flags, variables, the help, and,
// by `go test -run TestReference -rewrite`, the page of settings, the JSON schema and the setting's line
// in docs/stint.example.yaml are made of these. The parts of the service are given the Config
// itself. A rule that involves several settings belongs into the checks of load.go.
//
// A Config is a value: nothing changes it after [Load], and it may be read by several goroutines.
// Nothing here is kept between two calls of Load, so that a reload is a second Load whose result is
// compared with the first by [Differing].
package config

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
)

// A Config is everything that `stint serve` can be told, checked. [Default] makes one with the built-in values, [Load]
// one with what the sources say.
//
// The tags say what a setting is: doc is its name in the file, default the built-in value as a flag
// would give it, is what it may be (see [document.Kinds]), and value stands for the value in a help
// text. help.txt says what the setting does, under its name in the file; the comments here say what
// it trades off.
type Config struct {
	// Listen is the address of the REST API, which also serves /metrics and the health checks. On
	// another address than loopback callers need tokens (see API) to name keys, since everybody on the
	// network may reach it. Port 0 lets the system choose; the log says which port it is.
	Listen string `doc:"listen" is:"address" default:"127.0.0.1:8080" value:"HOST:PORT"`
	// GRPCListen is the address of Envoy's rate limit service, "" for off. A socket of the file system
	// (unix:PATH) spares a proxy on the same machine the TCP stack, and is protected by the
	// permissions of the folder that it is in.
	GRPCListen string `doc:"grpc_listen" is:"grpc-address" zero:"off" default:"off" value:"HOST:PORT"`
	// RESPListen is the address of the Redis protocol, "" for off.
	RESPListen string `doc:"resp_listen" is:"address" zero:"off" default:"off" value:"HOST:PORT"`
	// AdminListen is the address of the admin listener and the dashboard, "" for off. It is separate
	// from Listen so that the network can keep clients away from it.
	AdminListen string `doc:"admin_listen" is:"address" zero:"off" default:"127.0.0.1:8079" value:"HOST:PORT"`

	// The listeners' certificates, bounds and ends, and the store; each type says more.
	TLS      TLS     `doc:"tls"`
	AdminTLS TLS     `doc:"admin_tls"`
	GRPCTLS  GRPCTLS `doc:"grpc_tls"`
	RESPTLS  TLS     `doc:"resp_tls"`
	HTTP     HTTP    `doc:"http"`
	Drain    Drain   `doc:"drain"`
	Store    Store   `doc:"store"`

	// OnStoreFailure decides while the store is unreachable. Open keeps the service up and lets
	// everything through, closed keeps the limits and answers 503, local does a bit of both: each
	// process decides by its share of the limits. A rule may choose for itself.
	OnStoreFailure failover.Mode `doc:"on_store_failure" is:"one-of open closed local" default:"open" value:"POLICY"`
	// OnOverload decides when this process, not the store, is the one that is too slow. Reject
	// protects what stands behind the limits; admit is for services where a wrong 503 costs more than
	// a request too many.
	OnOverload Overload `doc:"on_overload" is:"one-of reject admit" default:"reject" value:"POLICY"`
	// Instances is 0 for auto. Local divides limits by it: too small a number admits too much in an
	// outage, too large a one too little. Auto counts the processes that share the store, and keeps
	// the last count through the outage.
	Instances int `doc:"instances" is:"integer 1 1000000" zero:"auto" default:"auto" value:"N"`
	// RulesFrom is a file or a folder, the URL of a Redis or a MongoDB, or RulesFromStore; "" is Rules
	// if there are any, else RulesFromStore. A file suits rules that are deployed with the service,
	// the store rules that are edited while it runs.
	RulesFrom string `doc:"rules_from" is:"place" secret:"url" value:"PLACE"`
	// RulesCache is "" for none. With a cache a process can start while the place of its rules is
	// unreachable; the price is that it may start with old ones.
	RulesCache string `doc:"rules_cache" value:"PATH"`
	// RejectAmbiguousPaths refuses paths that two programs could take for different ones, such as
	// /a%2Fb. Otherwise all rules that match one of the readings hold, which limits too much rather
	// than too little.
	RejectAmbiguousPaths bool `doc:"ambiguous_paths" is:"one-of match reject" default:"match" value:"POLICY"`
	// DenyByDefault denies requests that no rule matches. False, the default, lets one rule after the
	// other be introduced; true finds what was forgotten.
	DenyByDefault bool `doc:"rules_default" is:"one-of allow deny" default:"allow" value:"DECISION"`

	// The protocols' own settings, who clients are, and what operators see.
	Envoy    Envoy    `doc:"envoy"`
	ClientIP ClientIP `doc:",inline"`
	Identity Identity `doc:"identity"`
	Headers  Headers  `doc:"headers"`
	API      API      `doc:"api"`
	Admin    Admin    `doc:"admin"`
	Log      Log      `doc:"log"`
	Metrics  Metrics  `doc:"metrics"`
	Alerts   Alerts   `doc:"alerts"`

	// Record is "" for none. A line a decision is queued, and dropped rather than slow decisions down.
	// Eight files of 128 MiB take 1 GiB at most.
	Record string `doc:"record" value:"FILE"`
	// RecordPlainKeys keeps the clients' keys in the record as they are. Hashes, the default, still
	// tell clients apart, so that a replay decides the same.
	RecordPlainKeys bool `doc:"record_keys" is:"one-of hash plain" default:"hash" value:"FORM"`

	// Defaults holds the limit of each algorithm that a check without a policy is decided by.
	Defaults defaults `doc:"defaults"`
	// Policies are what a check may name.
	Policies policies `doc:"policies"`
	// Rules are those of the file, well written; rules.Compile checks what they say.
	Rules ruleList `doc:"rules"`
	// File is the path of the file that was read, "" if none was.
	File string
	// AdminAsked says that some source gave AdminListen. When none did, a service may
	// do without the admin listener if its address is taken.
	AdminAsked bool
}

// RulesFromStore is where rules are kept in the store of the states: in the process with
// memory://, else in its Redis.
const RulesFromStore = "store"

// TLS is what a listener speaks TLS with, by files in PEM. The zero value is none: it speaks plainly. That of the REST
// API is also every other listener's, unless its own section says something else: CertFile "off" is plain there, such
// as behind a proxy on the same machine that speaks TLS itself, or for clients of Redis that speak none.
type TLS struct {
	// CertFile and KeyFile are read again when they change, so that a renewed certificate needs no
	// restart. Both or neither must be given. CertFile holds the certificate, followed by those of its issuers.
	CertFile string `doc:"cert_file" value:"PATH"`
	KeyFile  string `doc:"key_file" value:"PATH"`
	// ClientCAFile has the authorities of mutual TLS; "" asks clients for no certificate.
	ClientCAFile string `doc:"client_ca_file" value:"PATH"`
}

// validate reports what is missing. section is the configuration's, such as tls.
func (t TLS) validate(section string) error {
	switch {
	case t.CertFile == "" && (t.KeyFile != "" || t.ClientCAFile != ""):
		return stint.Invalid(section+".cert_file", "", "a file, as "+section+" has others")
	case t.CertFile != "" && t.KeyFile == "":
		return stint.Invalid(section+".key_file", "", "the file of the private key of "+section+".cert_file")
	}
	return nil
}

// GRPCTLS is what the gRPC listener does: TLS, unless something else was said.
type GRPCTLS struct {
	TLS `doc:",inline"`
	// ClientName narrows ClientCAFile, whose authorities may have signed certificates for others than
	// the proxies. "" accepts all of them.
	ClientName string `doc:"client_name" value:"NAME"`
}

// Envoy says how Envoy's rate limit service decides.
type Envoy struct {
	// Config is "" for none.
	Config string `doc:"config" value:"PATH"`
	// Accounting says whether the limits that would have admitted a denied request count it. Atomic
	// counts nothing of it, so that one limit that is used up does not use up the others; reference
	// counts all, for figures that have to equal those of the service that is replaced.
	Accounting string `doc:"accounting" is:"one-of atomic reference" default:"atomic" value:"NAME"`
	// Merge, Shadow, Quota, KeepDenied and Metadata are the reference service's switches, off by
	// default there, too.
	Merge      bool `doc:"merge_domains" default:"false"`
	Shadow     bool `doc:"shadow" default:"false"`
	Quota      bool `doc:"quota" default:"false"`
	KeepDenied bool `doc:"keep_denied" default:"false"`
	Metadata   bool `doc:"metadata" default:"false"`
	// NearRatio, in percent of a limit, is for the statistics only; it decides nothing.
	NearRatio int          `doc:"near_limit" is:"integer 1 100" default:"80" value:"PERCENT"`
	Headers   EnvoyHeaders `doc:"headers"`
	XDS       XDS          `doc:"xds"`
}

// XDS is a control plane that has the domains; none without a server.
type XDS struct {
	// Server is "" for none. A control plane takes the place of Config: a service has one of them.
	Server string `doc:"server" is:"address" zero:"off" default:"off" value:"HOST:PORT"`
	// NodeID is how a control plane that serves several services tells them apart.
	NodeID string `doc:"node_id" default:"default" value:"NAME"`
	TLS    XDSTLS `doc:"tls"`
}

// XDSTLS is what a control plane is asked with, all in PEM.
type XDSTLS struct {
	// Enabled is for a control plane whose certificate the system's authorities have signed, where no
	// file has to be named.
	Enabled  bool   `doc:"enabled" default:"false"`
	CAFile   string `doc:"ca_file" value:"PATH"`
	CertFile string `doc:"cert_file" value:"PATH"`
	KeyFile  string `doc:"key_file" value:"PATH"`
	// ServerName is needed where Server is an address, since certificates rarely have those.
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
	// The four timeouts bound how long a client may occupy a connection without asking anything.
	// ReadHeaderTimeout and BodyTimeout protect from clients that send a byte now and then; they have
	// to be longer than what slow networks need for a small request.
	ReadHeaderTimeout time.Duration `doc:"read_header_timeout" is:"duration 10ms 10m" default:"5s" value:"DURATION"`
	BodyTimeout       time.Duration `doc:"body_timeout" is:"duration 10ms 10m" default:"10s" value:"DURATION"`
	// WriteTimeout also bounds the decision itself, so it must be longer than Store.Timeout and than
	// what rules let requests wait.
	WriteTimeout time.Duration `doc:"write_timeout" is:"duration 10ms 10m" default:"30s" value:"DURATION"`
	// IdleTimeout should be longer than that of a proxy in front, or it may send a request on a
	// connection that is just being closed.
	IdleTimeout time.Duration `doc:"idle_timeout" is:"duration 10ms 1h" default:"2m" value:"DURATION"`
	// The sizes bound what one request may occupy, in bytes. MaxBodyMemory bounds it for all requests
	// together, so that MaxConnections times MaxBodyBytes need not fit into memory.
	MaxHeaderBytes int64 `doc:"max_header_size" is:"size 1KiB 16MiB" default:"64KiB" value:"SIZE"`
	MaxBodyBytes   int64 `doc:"max_body_size" is:"size 1KiB 64MiB" default:"1MiB" value:"SIZE"`
	MaxBodyMemory  int64 `doc:"max_body_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE"`
	// MaxStreams, MaxConnections and MaxOperations bound what happens at once. A connection costs
	// memory and is cheap to replace, so that the one that has been idle longest makes room; an
	// operation costs processor time, so that further ones wait and clients take turns.
	MaxStreams     int `doc:"max_streams" is:"integer 1 10000" default:"100" value:"N"`
	MaxConnections int `doc:"max_connections" is:"integer 1 10000000" default:"16384" value:"N"`
	MaxOperations  int `doc:"max_operations" is:"integer 0 10000000" default:"0" value:"N"`
	// MaxConnectionsPerPeer is 0 for no bound. A proxy that is not in trusted_proxies is one peer with
	// all of its clients, so a bound needs the proxies to be named.
	MaxConnectionsPerPeer int `doc:"max_connections_per_peer" is:"integer 0 10000000" default:"0" value:"N"`
}

// Drain says how the service ends.
type Drain struct {
	// Delay gives load balancers the time to notice that the service is not ready; it has to be longer
	// than the interval of their health checks.
	Delay time.Duration `doc:"delay" is:"duration 0s 10m" default:"0s" value:"DURATION"`
	// KeepAlive lets clients finish with their connections instead of finding them closed: their next
	// request is answered with Connection: close.
	KeepAlive time.Duration `doc:"keep_alive" is:"duration 0s 10m" default:"2s" value:"DURATION"`
	// Timeout ends what is still in progress then. It has to be shorter than the time after which the
	// platform kills the process, less Delay.
	Timeout time.Duration `doc:"timeout" is:"duration 1ms 1h" default:"30s" value:"DURATION"`
}

// Store says where state lives.
type Store struct {
	// URL may hold a password: show it with [RedactURL] only.
	URL string `doc:"url" flag:"store" is:"store-url" secret:"url" default:"memory://" value:"URL"`
	// Passwords may stand in the URL, in the settings or in files; files are read for each connection,
	// so that a new password needs no restart.
	Username             string `doc:"username" for:"redis" value:"NAME"`
	Password             string `doc:"password" for:"redis" secret:"all" value:"PASSWORD"`
	PasswordFile         string `doc:"password_file" for:"redis" value:"PATH"`
	SentinelUsername     string `doc:"sentinel_username" for:"redis" value:"NAME"`
	SentinelPassword     string `doc:"sentinel_password" for:"redis" secret:"all" value:"PASSWORD"`
	SentinelPasswordFile string `doc:"sentinel_password_file" for:"redis" value:"PATH"`
	// TLS is for the schemes that begin with rediss.
	TLS StoreTLS `doc:"tls"`
	// Timeout bounds each call; after it the operation is decided as OnStoreFailure says. It adds to a
	// request's latency only while the store is slow, and has to be longer than a round trip with the
	// store busy.
	Timeout time.Duration `doc:"timeout" is:"duration 1ms 1m" default:"100ms" value:"DURATION"`
	// KeyPrefix keeps services that share a Redis apart. All processes of one service need the same.
	KeyPrefix string `doc:"key_prefix" is:"key-prefix" default:"rate_limiter" value:"NAME"`
	// LogEncoding and Partitions are the state's layout, one value for all processes, which is kept in
	// Redis: the default adopts what is there, and an explicit value that differs is an error.
	//
	// More partitions spread a policy's clients over more nodes of a cluster, and cost a script call
	// each for a batch.
	LogEncoding string `doc:"log_encoding" is:"one-of packed zset stream" zero:"default" default:"default" value:"NAME"`
	Partitions  int    `doc:"partitions" is:"partitions" zero:"default" default:"default" value:"N"`
	// DenialCache saves the round trip for clients that are denied again and again.
	DenialCache int `doc:"denial_cache" is:"integer 0 10000000" default:"65536" value:"N"`
	// MaxHolds bounds the list of holds that a decision has to walk over, and what a client can make
	// Redis keep.
	MaxHolds int `doc:"max_holds" is:"integer 1 10000" default:"1000" value:"N"`
	// MaxMemory bounds state in the process, in bytes: memory://, and OnStoreFailure local. When it is
	// full, states that matter least are dropped, whose clients begin anew.
	MaxMemory int64 `doc:"max_memory" is:"size 1MiB" zero:"default" default:"default" value:"SIZE"`
}

// StoreTLS names the files that TLS is spoken with to the store, all in PEM, and "" where there is
// none.
type StoreTLS struct {
	// CAFile is "" for the authorities of the system; CertFile and KeyFile are for a Redis that asks
	// for certificates.
	CAFile   string `doc:"ca_file" for:"redis" value:"PATH"`
	CertFile string `doc:"cert_file" for:"redis" value:"PATH"`
	KeyFile  string `doc:"key_file" for:"redis" value:"PATH"`
	// ServerName is needed where Redis is reached by an address.
	ServerName string `doc:"server_name" for:"redis" value:"NAME"`
}

const memoryURL = "memory://"

// ClientIP says how a client's address is found, as [clientip.Config] has it.
type ClientIP struct {
	// TrustedProxies has to name exactly the proxies in front. One too many lets its clients choose
	// whose limit they use up; one too few counts all clients of a proxy as one.
	TrustedProxies []netip.Prefix `doc:"trusted_proxies" is:"networks" value:"CIDR,..."`
	// Headers are read only of trusted proxies. A header that a proxy passes on as it came is a
	// client's to choose.
	Headers []string `doc:"client_ip_headers" is:"headers" default:"X-Forwarded-For" value:"NAME,..."`
	// IPv6Prefix counts a network as one client, since a household has 2^64 addresses and could use
	// another for each request.
	IPv6Prefix int `doc:"ipv6_prefix" is:"integer 1 128" default:"64" value:"BITS"`
}

// Identity names the headers that say who the user is; "" is none.
type Identity struct {
	// User and APIKey hold the parts {user} and {api_key} of rules' scopes. They are believed of
	// trusted proxies only, like addresses.
	User   string `doc:"user" is:"header" value:"NAME"`
	APIKey string `doc:"api_key" is:"header" value:"NAME"`
	// Attributes are headers by the attribute that each holds.
	Attributes map[string]string `doc:"attributes" is:"attribute-headers" value:"NAME=HEADER,..."`
}

// Headers are the rate limit header fields of an answer.
type Headers struct {
	// XRateLimit are the fields that most client libraries know; X-RateLimit-Reset is in Unix seconds.
	XRateLimit bool `doc:"x_ratelimit" default:"true"`
	// IETF are the fields of the IETF's draft, which say it for each limit that was asked: 0 for none, else
	// [httplimit.IETF] or [httplimit.IETF166].
	IETF httplimit.Fields `doc:"ietf" is:"ietf" default:"true"`
	// RetryAfter is RFC 9110's, section 10.2.3, in whole seconds, rounded up so that a client that
	// obeys it is not too early.
	RetryAfter bool `doc:"retry_after" default:"true"`
}

// API says which callers may name keys.
type API struct {
	// ExplicitKeys false leaves clients what the service finds out of them, such as their address;
	// then a client can't use up what is another one's.
	ExplicitKeys bool   `doc:"explicit_keys" default:"true"`
	TokensFile   string `doc:"tokens_file" value:"PATH"`
	// Tokens are read from TokensFile.
	Tokens []string
	// UnknownFallsBack has TOKEN_BUCKET decide for an algorithm that does not exist. It is for clients
	// that were written for a service which does so; otherwise a mistyped name would be decided by a
	// limit that nobody meant.
	UnknownFallsBack bool `doc:"unknown_algorithm" is:"one-of reject fallback" default:"reject" value:"POLICY"`
	// Open gives up the tokens on other addresses than loopback, where the network admits only those
	// who may name keys.
	Open bool `doc:"open" default:"false"`
}

// Admin says which callers may use the admin listener.
type Admin struct {
	TokensFile string `doc:"tokens_file" value:"PATH"`
	// Tokens are read from TokensFile.
	Tokens []AdminToken
}

// Log says what is logged, and how.
type Log struct {
	Format string `doc:"format" is:"one-of text json" default:"text" value:"FORMAT"`
	// Level debug costs a line a decision; the queue before the log drops lines rather than slow
	// decisions down.
	Level slog.Level `doc:"level" is:"level" default:"info" value:"LEVEL"`
	// Denials logs a sample of them.
	Denials bool `doc:"denials" is:"one-of off sampled" default:"off" value:"WHICH"`
	// PlainClients shows clients as they are. Keys may be addresses, names or API keys, so the default
	// is a hash: the same client has the same hash in all lines of a process.
	PlainClients bool `doc:"clients" is:"one-of hash plain" default:"hash" value:"FORM"`
	// With one key for all processes, lines of several processes and of several starts can be joined
	// by client.
	KeyFile string `doc:"key_file" value:"PATH"`
	// Key is read from KeyFile.
	Key []byte
}

// Alerts says what a webhook is told. There is none without a URL.
type Alerts struct {
	// URL may hold a token: show it to nobody.
	URL string `doc:"url" is:"webhook" secret:"all" value:"URL"`
	// Secret signs each batch, so that the receiver can tell that it came from this service. Give one
	// of Secret and SecretFile.
	Secret     string `doc:"secret" secret:"all" value:"SECRET"`
	SecretFile string `doc:"secret_file" value:"PATH"`
	Denials    bool   `doc:"denials" default:"true"`
	// NearLimit is 0 for off. It is told once for each client, rule and window.
	NearLimit int `doc:"near_limit" is:"integer 1 99" zero:"off" default:"20" value:"PERCENT"`
	// HashClients needs a secret.
	HashClients bool `doc:"clients" is:"one-of plain hash" default:"plain" value:"FORM"`
	// Timeout, MaxQueue, MaxBatch and MaxTries bound what a receiver that is slow or gone may cost:
	// alerts wait in memory, are sent in batches, and are dropped and counted rather than delay a
	// decision.
	Timeout  time.Duration `doc:"timeout" is:"duration 10ms 1m" default:"5s" value:"DURATION"`
	MaxQueue int           `doc:"max_queue" is:"integer 1 1000000" default:"10000" value:"N"`
	MaxBatch int           `doc:"max_batch" is:"integer 1 10000" default:"100" value:"N"`
	MaxTries int           `doc:"max_tries" is:"integer 1 1000" default:"10" value:"N"`
}

// Metrics says what is measured besides what the service decides.
type Metrics struct {
	Labels map[string]string `doc:"labels"`
	// StoreHealth is 0 for never. INFO is one command for each server, whatever the number of
	// processes that scrape.
	StoreHealth time.Duration `doc:"store_health" is:"duration 1s 1h" zero:"off" default:"15s" value:"DURATION"`
}

type (
	defaults map[stint.Algorithm]stint.Limit
	policies map[string][]stint.Limit
	ruleList []rules.Rule
)
