package testredis

import (
	"os"
	"path/filepath"
	"testing"
)

// Socket makes the server listen on a Unix socket as well. [Server.Socket] is its
// path, which is short, as the paths of sockets have to be.
func Socket(t testing.TB) Option {
	t.Helper()
	dir, err := os.MkdirTemp("", "stint") //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "redis.sock")
	return func(s *Server) {
		s.socket = path
		Config("unixsocket", path)(s)
	}
}

// Socket is the path of the server's Unix socket, "" if it has none.
func (s *Server) Socket() string { return s.socket }
