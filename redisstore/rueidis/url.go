package rueidis

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

// urlForms is what a store URL may be, in words. It has no @, which would have it taken for one
// with a password.
const urlForms = "redis://host:port/db, redis-sentinel://host:port,host:port/NAME, " +
	"redis-cluster://host:port,host:port, each with TLS as rediss…, or unix:///path?db=N; " +
	"with a user and a password before the host or path"

// topology is how servers work together.
type topology uint8

const (
	topologySingle topology = iota
	topologySentinel
	topologyCluster
)

// location is what a store URL says.
type location struct {
	topology       topology
	network        string   // tcp or unix
	hosts          []string // host:port of each, or the path of a socket
	tls            bool
	user, password string
	hasPassword    bool // whether there is a password, which may be empty
	database       int
	primary        string // the name that sentinels know
}

// schemes are those of store URLs.
var schemes = map[string]struct {
	topology topology
	network  string
	port     string // by default
	tls      bool
}{
	"redis":           {topologySingle, "tcp", "6379", false},
	"rediss":          {topologySingle, "tcp", "6379", true},
	"redis-sentinel":  {topologySentinel, "tcp", "26379", false},
	"rediss-sentinel": {topologySentinel, "tcp", "26379", true},
	"redis-cluster":   {topologyCluster, "tcp", "6379", false},
	"rediss-cluster":  {topologyCluster, "tcp", "6379", true},
	"unix":            {topologySingle, "unix", "", false},
}

// parse reads a URL. net/url does not read several hosts, so the parts are cut here.
func parse(address string) (l location, err error) {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return l, invalidURL("no scheme")
	}
	kind, known := schemes[scheme]
	if !known {
		return l, invalidURL("unknown scheme")
	}
	l.topology, l.network, l.tls = kind.topology, kind.network, kind.tls
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, hasPassword := strings.Cut(authority[:at], ":")
		if l.user, err = url.PathUnescape(user); err == nil {
			l.password, err = url.PathUnescape(password)
		}
		if err != nil {
			return l, invalidURL("user or password has a bad percent-encoding")
		}
		l.hasPassword, authority = hasPassword, authority[at+1:]
	}
	switch {
	case l.network == "unix":
		if authority != "" || path == "" {
			return l, invalidURL("a unix URL needs an absolute path")
		}
		path, query, asked := strings.Cut(path, "?")
		l.hosts = []string{"/" + path}
		if asked {
			number, isDB := strings.CutPrefix(query, "db=")
			if !isDB || number == "" {
				return l, invalidURL("a unix URL has no parameter but db")
			}
			l.database, err = database(number)
		}
		return l, err
	case l.topology == topologySentinel && path == "":
		return l, invalidURL("the name of the primary is missing")
	case l.topology == topologySentinel:
		l.primary = path
	case l.topology == topologyCluster && path != "":
		return l, invalidURL("a cluster has no database")
	case l.topology == topologySingle:
		if l.database, err = database(path); err != nil {
			return l, err
		}
		if strings.Contains(authority, ",") {
			return l, invalidURL("one host:port is allowed with " + scheme)
		}
	}
	for _, host := range strings.Split(authority, ",") {
		if host, err = withPort(host, kind.port); err != nil {
			return l, err
		}
		l.hosts = append(l.hosts, host)
	}
	return l, nil
}

// database is the number behind the slash of a URL; without one it is 0.
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
