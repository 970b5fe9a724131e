package redisstore

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
		tls            string // the server's name
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
		{url: "rediss://:pw@cache.example:7000/1", hosts: []string{"cache.example:7000"}, password: "pw", db: 1, tls: "cache.example"},
		{url: "rediss://cache.example", hosts: []string{"cache.example:6379"}, tls: "cache.example"},
		{url: "rediss://[::1]", hosts: []string{"[::1]:6379"}, tls: "::1"},
		{url: "redis-sentinel://a,b:7,c/main", hosts: []string{"a:26379", "b:7", "c:26379"}, primary: "main"},
		{url: "redis-sentinel://:pw@a/main", hosts: []string{"a:26379"}, password: "pw", primary: "main"},
		{url: "redis-cluster://a,b:7,[::1]:8", hosts: []string{"a:6379", "b:7", "[::1]:8"}, cluster: true},
		{url: "redis-cluster://u:pw@a/", hosts: []string{"a:6379"}, user: "u", password: "pw", cluster: true},
		{url: "unix:///run/redis.sock", hosts: []string{"/run/redis.sock"}},
	} {
		options, cluster, err := parse(c.url)
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		tls := ""
		if options.TLSConfig != nil {
			tls = options.TLSConfig.ServerName
		}
		if !slices.Equal(options.InitAddress, c.hosts) || options.Username != c.user || options.Password != c.password ||
			options.SelectDB != c.db || tls != c.tls || options.Sentinel.MasterSet != c.primary || cluster != c.cluster {
			t.Errorf("%s: hosts %q, user %q, password %q, db %d, TLS %q, primary %q, cluster %t; want %+v", c.url,
				options.InitAddress, options.Username, options.Password, options.SelectDB, tls, options.Sentinel.MasterSet, cluster, c)
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
	"unix://", "unix:///", "unix://x:hunter2@/run/redis.sock", "unix://hunter2/redis.sock",
}

// A bad URL is refused with what is wrong and what is allowed; the error never
// repeats the URL, which may hold a password.
func TestBadURLs(t *testing.T) {
	for _, url := range badURLs {
		_, err := Open(t.Context(), url, Options{})
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: got %v, want %v", url, err, stint.ErrInvalid)
			continue
		}
		if text := err.Error(); strings.Contains(text, "hunter2") || !strings.Contains(text, "redis://[user:pass@]host:port/db") {
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
		options, _, err := parse(url)
		if err == nil && len(options.InitAddress) == 0 {
			t.Errorf("%q names no server", url)
		}
		if err != nil && !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%q: got %v, want %v", url, err, stint.ErrInvalid)
		}
	})
}

// Options outside what is allowed are all reported, by name, and nothing is dialled.
func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		options Options
		params  []string
	}{
		{Options{KeyPrefix: "a b"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "a{b"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "a}"}, []string{"key_prefix"}},
		{Options{KeyPrefix: "naïve"}, []string{"key_prefix"}},
		{Options{KeyPrefix: strings.Repeat("k", 65)}, []string{"key_prefix"}},
		{Options{LogEncoding: "PACKED"}, []string{"log_encoding"}},
		{Options{KeyPrefix: "\n", LogEncoding: "list"}, []string{"key_prefix", "log_encoding"}},
		{Options{Partitions: -1}, []string{"partitions"}},
		{Options{Partitions: MaxPartitions + 1}, []string{"partitions"}},
		{Options{MaxBatch: -1, Flights: -1, MaxQueue: -1}, []string{"max_batch", "flights", "max_queue"}},
		{Options{MaxBatch: MaxMaxBatch + 1, Flights: MaxFlights + 1}, []string{"max_batch", "flights"}},
	} {
		_, err := Open(t.Context(), "redis://127.0.0.1:1", c.options)
		if !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("%+v: got %v, want %v", c.options, err, stint.ErrInvalid)
			continue
		}
		for _, param := range c.params {
			if !strings.Contains(err.Error(), param+" is ") {
				t.Errorf("%+v: %v does not name %s", c.options, err, param)
			}
		}
		if _, err := New(nil, c.options); !errors.Is(err, stint.ErrInvalid) {
			t.Errorf("New with %+v: got %v, want %v", c.options, err, stint.ErrInvalid)
		}
	}
}
