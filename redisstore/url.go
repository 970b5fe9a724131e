package redisstore

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/stint-go/stint"
)

// urlForms is what Open reads, in words.
const urlForms = "redis://[user:pass@]host:port/db, rediss://… (TLS), redis-sentinel://host:port,host:port/NAME, " +
	"redis-cluster://host:port,host:port or unix:///path"

// Open connects to the server or servers of a URL:
//
//	redis://[user:pass@]host:port/db
//	rediss://[user:pass@]host:port/db       with TLS
//	redis-sentinel://[user:pass@]host:port,host:port/NAME
//	redis-cluster://[user:pass@]host:port,host:port
//	unix:///path/to/socket
//
// The port is 6379 (26379 for Sentinel) and db 0 by default. An error never repeats
// the URL, which may hold a password.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	options.ensureDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	client, cluster, err := parse(address)
	if err != nil {
		return nil, err
	}
	client.DisableCache = true // no client-side caching: state is only touched by the script
	client.DisableRetry = true // a take that may have been executed is never sent again
	conn, err := rueidis.NewClient(client)
	if err != nil {
		return nil, unavailable(err)
	}
	store, err := New(Rueidis(conn, cluster), options)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if err := store.Ping(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	store.listen() // so that the first denial can be remembered
	return store, nil
}

// parse reads a URL. Several hosts in one are not what net/url reads, so the parts
// are cut here.
func parse(address string) (options rueidis.ClientOption, cluster bool, err error) {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return options, false, invalidURL("no scheme")
	}
	authority, path, _ := strings.Cut(rest, "/")
	if scheme == "unix" {
		if authority != "" || path == "" {
			return options, false, invalidURL("a unix URL needs an absolute path")
		}
		options.InitAddress = []string{"/" + path}
		options.DialCtxFn = func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		return options, false, nil
	}
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, _ := strings.Cut(authority[:at], ":")
		if options.Username, err = url.PathUnescape(user); err == nil {
			options.Password, err = url.PathUnescape(password)
		}
		if err != nil {
			return options, false, invalidURL("user or password has a bad percent-encoding")
		}
		authority = authority[at+1:]
	}
	port := "6379"
	switch scheme {
	case "redis", "rediss":
		if options.SelectDB, err = database(path); err != nil {
			return options, false, err
		}
		if scheme == "rediss" {
			host, _, splitErr := net.SplitHostPort(authority)
			if splitErr != nil {
				host = authority
			}
			options.TLSConfig = &tls.Config{ServerName: strings.Trim(host, "[]"), MinVersion: tls.VersionTLS12}
		}
		if strings.Contains(authority, ",") {
			return options, false, invalidURL("one host:port is allowed with " + scheme)
		}
	case "redis-sentinel":
		if path == "" {
			return options, false, invalidURL("the name of the primary is missing")
		}
		port = "26379"
		options.Sentinel.MasterSet = path
	case "redis-cluster":
		if path != "" {
			return options, false, invalidURL("a cluster has no database")
		}
		cluster = true
	default:
		return options, false, invalidURL("unknown scheme")
	}
	options.ForceSingleClient = scheme == "redis" || scheme == "rediss"
	for _, host := range strings.Split(authority, ",") {
		host, err := withPort(host, port)
		if err != nil {
			return options, false, err
		}
		options.InitAddress = append(options.InitAddress, host)
	}
	return options, cluster, nil
}

func database(path string) (int, error) {
	if path == "" {
		return 0, nil
	}
	db, err := strconv.Atoi(path)
	if err != nil || db < 0 {
		return 0, invalidURL("the database is not a number of 0 or more")
	}
	return db, nil
}

// withPort checks a host:port and adds the port if it has none.
func withPort(host, port string) (string, error) {
	name, number, err := net.SplitHostPort(host)
	if err != nil {
		name, number = host, port
		if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
			name = host[1 : len(host)-1]
		} else if strings.Contains(host, ":") {
			return "", invalidURL("a host is not host:port")
		}
	}
	if strings.ContainsAny(name, "[]?# ") {
		return "", invalidURL("a host is not host:port")
	}
	if n, err := strconv.Atoi(number); err != nil || n < 1 || n > 65535 || name == "" {
		return "", invalidURL("a host is not host:port")
	}
	return net.JoinHostPort(name, number), nil
}

// invalidURL says what is wrong with a URL without repeating it.
func invalidURL(what string) error {
	return &stint.InvalidError{Param: "store URL", Value: "malformed (" + what + ")", Allowed: urlForms}
}
