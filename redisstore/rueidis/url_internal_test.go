package rueidis

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stint-go/stint"
)

func TestParseURL(t *testing.T) {
	for _, c := range []struct {
		url            string
		hosts          []string
		user, password string
		db             int
		tls            bool
		primary        string
		cluster        bool
	}{
		{url: "redis://localhost", hosts: []string{"localhost:6379"}},
		{url: "redis://localhost/", hosts: []string{"localhost:6379"}},
		{url: "redis://10.0.0.7:7000/5", hosts: []string{"10.0.0.7:7000"}, db: 5},
		{url: "redis://[::1]", hosts: []string{"[::1]:6379"}},
		{url: "redis://[2001:db8::7]:7000", hosts: []string{"[2001:db8::7]:7000"}},
		{url: "redis://:pw@h:1", hosts: []string{"h:1"}, password: "pw"},
		{url: "redis://me:p%40%2Fw%25@h:1/2", hosts: []string{"h:1"}, user: "me", password: "p@/w%", db: 2},
		{url: "redis://me:a:b@c@h", hosts: []string{"h:6379"}, user: "me", password: "a:b@c"},
		{url: "redis://me@h", hosts: []string{"h:6379"}, user: "me"},
		{url: "rediss://:pw@cache.example:7000/1", hosts: []string{"cache.example:7000"}, password: "pw", db: 1, tls: true},
		{url: "rediss://cache.example", hosts: []string{"cache.example:6379"}, tls: true},
		{url: "rediss://[::1]", hosts: []string{"[::1]:6379"}, tls: true},
		{url: "redis-sentinel://a,b:7,c/main", hosts: []string{"a:26379", "b:7", "c:26379"}, primary: "main"},
		{url: "redis-sentinel://:pw@a/main", hosts: []string{"a:26379"}, password: "pw", primary: "main"},
		{url: "redis-cluster://a,b:7,[::1]:8", hosts: []string{"a:6379", "b:7", "[::1]:8"}, cluster: true},
		{url: "redis-cluster://u:pw@a/", hosts: []string{"a:6379"}, user: "u", password: "pw", cluster: true},
		{url: "rediss-sentinel://:pw@a/main", hosts: []string{"a:26379"}, password: "pw", primary: "main", tls: true},
		{url: "rediss-cluster://a", hosts: []string{"a:6379"}, cluster: true, tls: true},
		{url: "unix:///run/redis.sock", hosts: []string{"/run/redis.sock"}},
		{url: "unix://me:p%40@/run/redis.sock?db=3", hosts: []string{"/run/redis.sock"}, user: "me", password: "p@", db: 3},
		{url: "unix://:pw@/r", hosts: []string{"/r"}, password: "pw"},
	} {
		l, err := parse(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if !slices.Equal(l.hosts, c.hosts) || l.user != c.user || l.password != c.password || l.database != c.db || l.tls != c.tls ||
			l.primary != c.primary || (l.topology == topologySentinel) != (c.primary != "") || (l.topology == topologyCluster) != c.cluster ||
			(l.network == "unix") != strings.HasPrefix(c.url, "unix:") {
			t.Errorf("%s: %+v; want %+v", c.url, l, c)
		}
	}
}

// badURLs hold a password, hunter2, wherever one could stand.
var badURLs = []string{
	"", "hunter2", "localhost:6379", ":hunter2@localhost:6379", "redis:/x:hunter2@localhost", "redis:x:hunter2@localhost",
	"http://x:hunter2@localhost", "REDIS://x:hunter2@localhost", "x:hunter2@localhost://", "hunter2://localhost",
	"redis://", "redis://x:hunter2@", "redis://x:hunter2@:6379", "redis://x:hunter2@localhost:", "redis://x:hunter2@localhost:port",
	"redis://x:hunter2@localhost:0", "redis://x:hunter2@localhost:65536", "redis://x:hunter2@localhost:-1", "redis://x:hunter2@a:1:2",
	"redis://x:hunter2@::1", "redis://x:hunter2@[::1", "redis://x:hunter2@a,b", "rediss://x:hunter2@a:1,b:1",
	"redis://x:hunter2@localhost/-1", "redis://x:hunter2@localhost/one", "redis://x:hunter2@localhost/1/2",
	"redis://x:hunter2@localhost/0?db=1", "redis://x:hunter2@localhost?db=1", "redis://x:hunter2/y@localhost",
	"redis://x:hunter2%@localhost", "redis://x:hunter2%zz@localhost", "redis://%x:hunter2@localhost",
	"redis-sentinel://x:hunter2@a,b", "redis-sentinel://x:hunter2@a,b/", "redis-sentinel://x:hunter2@a,,b/main",
	"redis-cluster://x:hunter2@a/0", "redis-cluster://x:hunter2@a,", "redis-cluster://x:hunter2@",
	"unix://", "unix:///", "unix://hunter2/redis.sock", "unix://x:hunter2@", "unix://x:hunter2@h/redis.sock",
	"unix://x:hunter2@/s?db=", "unix://x:hunter2@/s?db=-1", "unix://x:hunter2@/s?hunter2=1", "unixs://x:hunter2@/s",
	"rediss-sentinel://x:hunter2@a", "rediss-cluster://x:hunter2@a/1", "redisss://x:hunter2@a",
}

// A bad URL is refused with what is wrong and what is allowed; the error never
// repeats the URL, which may hold a password.
func TestBadURLs(t *testing.T) {
	for _, url := range badURLs {
		_, err := Open(Config{URL: url})
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: got %v, want %v", url, err, stint.ErrInvalid)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, "redis://host:port/db") || strings.Contains(text, "@") {
			t.Errorf("%q: %s", url, text)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, url := range badURLs {
		f.Add(url)
	}
	for _, url := range []string{"redis://u:p@h:1/2", "rediss://[::1]", "redis-sentinel://a,b:7/m", "redis-cluster://a,b", "unix:///s"} {
		f.Add(url)
	}
	f.Fuzz(func(t *testing.T, url string) {
		l, err := parse(url)
		if err == nil && len(l.hosts) == 0 {
			t.Errorf("%q names no server", url)
		}
		if err != nil && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: got %v, want %v", url, err, stint.ErrInvalid)
		}
	})
}
