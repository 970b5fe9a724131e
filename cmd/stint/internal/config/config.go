package config

import (
	"log/slog"
	"time"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/failover"
	"github.com/stint-go/stint/httplimit"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/rules/notation"
	"github.com/stint-go/stint/server"
)

// A Config is everything that `stint serve` can be told, checked. [Default] makes
// one with the built-in values, [Load] one with what the sources say.
type Config struct {
	// Listen is HOST:PORT of the REST API, metrics and health.
	Listen string
	// AdminListen is HOST:PORT of the admin listener; "" is off.
	AdminListen string
	// AdminAsked says that some source gave AdminListen. When none did, a service may
	// do without the admin listener if its address is taken.
	AdminAsked bool
	// TLS is what the REST API speaks TLS with.
	TLS server.TLS
	// AdminTLS is what the admin listener does: TLS, unless something else was said.
	AdminTLS server.TLS
	// HTTP bounds what clients may use.
	HTTP HTTP
	// Drain says how the service ends.
	Drain Drain
	// Store says where state lives.
	Store Store
	// OnStoreFailure is what a check answers while the store is unreachable.
	OnStoreFailure failover.Mode
	// OnOverload is what a check answers that this process is too busy to have decided in time.
	OnOverload failover.Overload
	// Instances is how many processes share the limits; 0 is as many as share the store.
	// It matters to failover.Local.
	Instances int
	// ClientIP says how a client's address is found.
	ClientIP clientip.Config
	// Identity names the headers that say who the user is.
	Identity Identity
	// Headers are the rate limit header fields of an answer.
	Headers httplimit.Fields
	// API says who may name keys, with the tokens read from TokensFile.
	API server.API
	// TokensFile is where the tokens came from; "" is nowhere.
	TokensFile string
	// AdminTokens are what the admin listener needs one of, read from AdminTokensFile.
	AdminTokens []server.AdminToken
	// AdminTokensFile is where they came from; "" is nowhere.
	AdminTokensFile string
	// Log says how the log is written.
	Log Log
	// Defaults holds the limit of each algorithm that a check without a policy is
	// decided by.
	Defaults map[stint.Algorithm]stint.Limit
	// Policies are what a check may name.
	Policies map[string][]stint.Limit
	// Rules are those of the file, well written; rules.Compile checks what they say.
	Rules []rules.Rule
	// RulesAt says where each of Rules begins.
	RulesAt []notation.Position
	// RulesFrom says where rules are kept that change while they are in force: a file or a folder of
	// them, the URL of a Redis or a MongoDB, or RulesFromStore; "" is Rules if there are any, else
	// RulesFromStore.
	RulesFrom string
	// RulesCache is a file that holds the last rules read from a server, to begin with while that is unreachable; "" is
	// none.
	RulesCache string
	// RejectAmbiguousPaths answers 400 to requests whose path programs take apart in different ways.
	RejectAmbiguousPaths bool
}

// RulesFromStore is where rules are kept in the store of the states: in the process with
// memory://, else in its Redis.
const RulesFromStore = "store"

// HTTP bounds what clients of the REST API and of the admin listener may use.
type HTTP struct {
	// ReadHeaderTimeout, BodyTimeout, WriteTimeout and IdleTimeout bound the time to a
	// connection's first head, of a body, of a request, and between requests.
	ReadHeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
	// MaxHeaderBytes and MaxBodyBytes bound a request's head and body.
	MaxHeaderBytes, MaxBodyBytes int64
	// MaxBodyMemory bounds the memory of all bodies; 0 is that of server.Config.
	MaxBodyMemory int64
	// MaxStreams bounds the requests under way on a connection of HTTP/2.
	MaxStreams int
	// MaxConnections bounds the open connections, and MaxConnectionsPerPeer those of
	// one address; 0 is no bound on those.
	MaxConnections, MaxConnectionsPerPeer int
	// MaxOperations bounds the operations that are decided at once; 0 is 1024 for each processor.
	MaxOperations int
}

// Drain says how the service ends.
type Drain struct {
	// Delay is how long it reports itself not ready before it closes its listeners.
	Delay time.Duration
	// KeepAlive is how long it then keeps connections for their next request.
	KeepAlive time.Duration
	// Timeout bounds the wait for requests in flight, KeepAlive included.
	Timeout time.Duration
}

// Store says where state lives.
type Store struct {
	// URL is such as memory:// or redis://host:6379/0. It may hold a password: show
	// it with [RedactURL] only.
	URL string
	// Username and Password are who the service is to Redis, and PasswordFile is where
	// the password is, if the URL does not say. "" is none.
	Username, Password, PasswordFile string
	// SentinelUsername, SentinelPassword and SentinelPasswordFile are the same for the
	// sentinels themselves.
	SentinelUsername, SentinelPassword, SentinelPasswordFile string
	// TLS is what TLS is spoken with.
	TLS TLS
	// Timeout bounds one call of the store, 1ms to 1m.
	Timeout time.Duration
	// KeyPrefix starts the name of every key in Redis.
	KeyPrefix string
	// LogEncoding is how a sliding window log is laid out in Redis: "packed", "zset"
	// or "stream"; "" is the store's default.
	LogEncoding string
	// Partitions is in how many parts Redis keeps the clients of each limit; 0 for the default.
	Partitions int
	// DenialCache is how many denials of a store in Redis are remembered; 0 is none.
	DenialCache int
	// MaxMemory bounds a store in memory in bytes; 0 is the store's default.
	MaxMemory int64
}

// TLS names the files that TLS is spoken with, all in PEM, and "" where there is none.
type TLS struct {
	// CAFile has the authorities that servers are believed by; "" is the system's.
	CAFile string
	// CertFile and KeyFile have the service's own certificate and its key.
	CertFile, KeyFile string
	// ServerName is what a server's certificate is for; "" is the host of the address.
	ServerName string
}

// reachSettings are the settings about who the service is to the servers of a store, and
// with what it speaks TLS to them.
var reachSettings = []string{
	"store.username", "store.password", "store.password_file",
	"store.sentinel_username", "store.sentinel_password", "store.sentinel_password_file",
	"store.tls.ca_file", "store.tls.cert_file", "store.tls.key_file", "store.tls.server_name",
}

// reaches reports whether any of reachSettings is set.
func (s Store) reaches() bool {
	return s.TLS != TLS{} || s.Username+s.Password+s.PasswordFile+s.SentinelUsername+s.SentinelPassword+s.SentinelPasswordFile != ""
}

// Memory reports whether state lives in this process.
func (s Store) Memory() bool { return s.URL == memoryURL }

const memoryURL = "memory://"

// Identity names header fields; "" is none.
type Identity struct {
	User   string
	APIKey string
}

// Log says how the log is written.
type Log struct {
	// Format is "text" or "json".
	Format string
	// Level is the least level that is written.
	Level slog.Level
}

// Default returns the built-in configuration.
func Default() Config {
	config := Config{Defaults: server.DefaultLimits(), Policies: map[string][]stint.Limit{}}
	var none notation.Faults // a test holds the built-in values against their setters
	for _, s := range settings(&config) {
		s.apply(notation.Value{Kind: notation.KindUntyped, Text: s.Default}, &none)
	}
	return config
}
