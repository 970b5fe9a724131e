package rueidis

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/stint-go/stint"
)

// urlForms is what a store URL may be, in words.
const urlForms = "redis://[user:pass@]host:port/db, redis-sentinel://host:port,host:port/NAME, " +
	"redis-cluster://host:port,host:port, each with TLS as rediss…, or unix://[user:pass@]/path?db=N"

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

// parse reads a URL. Several hosts in one are not what net/url reads, so the parts
// are cut here.
func parse(address string) (location, error) {
	scheme, rest, found := strings.Cut(address, "://")
	if !found {
		return location{}, invalidURL("no scheme")
	}
	l := location{network: "tcp"}
	authority, path, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user, password, secret := strings.Cut(authority[:at], ":")
		var err error
		if l.user, err = url.PathUnescape(user); err == nil {
			l.password, err = url.PathUnescape(password)
		}
		if err != nil {
			return location{}, invalidURL("user or password has a bad percent-encoding")
		}
		l.hasPassword, authority = secret, authority[at+1:]
	}
	l.tls = strings.HasPrefix(scheme, "rediss")
	port := "6379"
	var err error
	switch scheme {
	case "unix":
		l.network = "unix"
		if authority != "" || path == "" {
			return location{}, invalidURL("a unix URL needs an absolute path")
		}
		path, query, asked := strings.Cut(path, "?")
		if asked {
			number, isDB := strings.CutPrefix(query, "db=")
			if !isDB || number == "" {
				return location{}, invalidURL("a unix URL has no parameter but db")
			}
			if l.database, err = database(number); err != nil {
				return location{}, err
			}
		}
		l.hosts = []string{"/" + path}
		return l, nil
	case "redis", "rediss":
		if l.database, err = database(path); err != nil {
			return location{}, err
		}
		if strings.Contains(authority, ",") {
			return location{}, invalidURL("one host:port is allowed with " + scheme)
		}
	case "redis-sentinel", "rediss-sentinel":
		if path == "" {
			return location{}, invalidURL("the name of the primary is missing")
		}
		port = "26379"
		l.topology, l.primary = topologySentinel, path
	case "redis-cluster", "rediss-cluster":
		if path != "" {
			return location{}, invalidURL("a cluster has no database")
		}
		l.topology = topologyCluster
	default:
		return location{}, invalidURL("unknown scheme")
	}
	for _, host := range strings.Split(authority, ",") {
		host, err := withPort(host, port)
		if err != nil {
			return location{}, err
		}
		l.hosts = append(l.hosts, host)
	}
	return l, nil
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
