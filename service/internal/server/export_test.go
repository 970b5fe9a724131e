package server

import (
	"context"
	"net"
	"net/http"
	"syscall"

	"github.com/stint-go/stint/service/internal/server/resp"
)

// SetListener has the server accept connections of ln, whatever its configuration says.
func (s *Server) SetListener(ln net.Listener) {
	s.listeners.Listen = func(context.Context, string, string) (net.Listener, error) { return ln, nil }
}

// RESP is the Redis protocol without a listener, whose clients are on this machine or are not.
func (s *Server) RESP(loopback bool) *resp.Server {
	config := s.rest.RESP(loopback, func(net.Conn, http.ConnState) {})
	config.Raw = func(nc net.Conn) syscall.RawConn {
		if conn, ok := nc.(interface{ Raw() syscall.RawConn }); ok {
			return conn.Raw()
		}
		return nil
	}
	return resp.New(config)
}
