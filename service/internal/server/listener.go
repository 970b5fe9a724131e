package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http2"

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/rules"
	"github.com/stint-go/stint/service/internal/server/dashboard"
)

// The listeners, as the log and the metrics name them.
const (
	serviceHTTP  = "http"
	serviceGRPC  = "grpc"
	serviceRESP  = "resp"
	serviceAdmin = "admin"
)

const (
	// adminConnections bounds the connections of the admin listener.
	adminConnections = 256
	// adminPerPeer is how many of them one address may have of which no request was authorised yet.
	adminPerPeer = adminConnections / 2
)

const (
	// streamWindow is how much of the bodies of a connection of HTTP/2 may come before it is read.
	streamWindow = 64 << 10
	// streamFrame is how long a frame of HTTP/2 may be, the least that RFC 9113, section 4.2, allows.
	streamFrame = 16 << 10
)

// An openListener is a listener with what serves its connections.
type openListener struct {
	service  string
	listener net.Listener
	socket   syscall.Conn // the listener's; nil: it has none
	server   connServer
	http     *http.Server // the server of HTTP; nil of another protocol
	health   *rpcHealth   // nil: nobody is told
	tracker  *idleTracker
}

// A connServer serves the connections of a listener.
type connServer interface {
	// Serve serves until the listener is closed, and returns its error.
	Serve(net.Listener) error
	// Shutdown lets the requests in flight end, as long as the context allows; then it cuts them off, and says so.
	Shutdown(context.Context) error
}

// open opens the listeners, or none.
func (s *Server) open(ctx context.Context) (listeners []*openListener, err error) {
	defer func() {
		if err != nil {
			for _, f := range listeners {
				err = errors.Join(err, f.listener.Close())
			}
			listeners = nil
		}
	}()
	sharers := 1
	for _, address := range []string{s.config.GRPCListen, s.config.RESPListen} {
		if address != "" {
			sharers++
		}
	}
	most := fitting(s.config.HTTP.MaxConnections, sharers, s.config.Logger)
	ln, err := s.listen(ctx, "listen", s.config.Listen)
	if err != nil {
		return nil, err
	}
	s.addr = ln.Addr()
	s.service.authority.loopback.Store(isLoopback(s.addr))
	public := s.publicListener(ln, most)
	if listeners = append(listeners, public); s.config.TLS.Enabled() {
		if err := s.secure(public, "tls", s.config.TLS, s.config.HTTP.WriteTimeout); err != nil {
			return listeners, err
		}
	}
	if s.config.GRPCListen != "" {
		rpc, err := s.openGRPC(ctx, most)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, rpc)
	}
	if s.config.RESPListen != "" {
		opened, err := s.openRESP(ctx, most)
		if err != nil {
			return listeners, err
		}
		listeners = append(listeners, opened)
	}
	if s.config.AdminListen == "" {
		return listeners, nil
	}
	if ln, err = s.listen(ctx, "admin_listen", s.config.AdminListen); err != nil {
		return listeners, err
	}
	s.adminAddr = ln.Addr()
	if !isLoopback(s.adminAddr) && len(s.config.Admin.Tokens) == 0 {
		err = prefix.Errorf("admin_listen: %w", stint.Invalid("admin.tokens_file", "",
			"a file of tokens, since others than this machine reach "+s.adminAddr.String()))
		return listeners, errors.Join(err, ln.Close())
	}
	private, err := s.adminListener(ln)
	if err != nil {
		return listeners, errors.Join(err, ln.Close())
	}
	if listeners = append(listeners, private); s.config.AdminTLS.Enabled() {
		if err := s.secure(private, "admin_tls", s.config.AdminTLS, 0); err != nil {
			return listeners, err
		}
	}
	return listeners, nil
}

func (s *Server) publicListener(ln net.Listener, most int) *openListener {
	c := &s.config
	limiter := connLimiter{
		most: most, perPeer: c.HTTP.MaxConnectionsPerPeer,
		clients: s.service.clients, metrics: s.service.connections[serviceHTTP], logger: c.Logger,
	}
	tracker := newIdleTracker(c.HTTP.ReadHeaderTimeout, c.HTTP.IdleTimeout, c.HTTP.WriteTimeout, limiter)
	return s.newListener(serviceHTTP, ln, s.Handler(), tracker)
}

// adminListener lets the handler bound each request, as a profile takes as long as it was asked
// to. No proxy is trusted on this listener.
func (s *Server) adminListener(ln net.Listener) (*openListener, error) {
	c := &s.config
	clients, err := clientip.New(clientip.Config{IPv6Prefix: c.ClientIP.IPv6Prefix})
	if err != nil {
		return nil, err
	}
	limiter := connLimiter{
		most: adminConnections, perPeer: adminPerPeer, private: true,
		clients: clients, metrics: s.service.connections[serviceAdmin], logger: c.Logger,
	}
	if c.HTTP.MaxConnectionsPerPeer > 0 {
		limiter.perPeer = min(limiter.perPeer, c.HTTP.MaxConnectionsPerPeer)
	}
	tracker := newIdleTracker(c.HTTP.ReadHeaderTimeout, c.HTTP.IdleTimeout, 0, limiter)
	handler := &admin{
		guarded: isLoopback(s.adminAddr), tokens: newAdminTokens(c.Admin.Tokens),
		bodyTimeout: c.HTTP.BodyTimeout, writeTimeout: c.HTTP.WriteTimeout, tracker: tracker,
		rules: s.service.administration, rateLimit: s.service.rateLimit, origin: http.NewCrossOriginProtection(),
		stopping: s.stopping,
	}
	if handler.pages, err = dashboard.New(); err != nil {
		return nil, err
	}
	if !handler.pages.Built() {
		c.Logger.Info("this program was built without its dashboard; a release has it, and make build makes it")
	}
	if handler.ended, err = newEndedSessions(c.Store); err != nil {
		return nil, err
	}
	handler.simulator = &simulator{
		busy: make(chan struct{}, 1), recent: c.Activity, most: maxSimulatedEvents, heap: heapBytes, stop: s.stopping,
		rules: s.service.rules.Set, deny: c.DenyByDefault, options: rules.Options{IPv6Prefix: c.ClientIP.IPv6Prefix},
		clientIP: clientip.Config(c.ClientIP),
	}
	handler.register(c.Activity)
	f := s.newListener(serviceAdmin, ln, handler, tracker)
	f.http.ConnContext = withConn
	return f, nil
}

func (s *Server) newListener(
	service string,
	ln net.Listener,
	handler http.Handler,
	tracker *idleTracker,
) *openListener {
	server := s.newHTTP(closeOnDrain{handler, &s.service.draining})
	server.ConnState = tracker.changedHTTP
	socket, _ := ln.(syscall.Conn)
	return &openListener{
		service:  service,
		listener: tracker.listener(ln),
		socket:   socket,
		server:   httpServer{server},
		http:     server,
		tracker:  tracker,
	}
}

// closeConnection says that a connection ends with this answer; net/http makes a GOAWAY of it for HTTP/2.
var closeConnection = []string{"close"}

// closeOnDrain ends connections with their next answer while the server drains, so that their clients send
// nothing on them that would be lost.
type closeOnDrain struct {
	http.Handler
	draining *atomic.Bool
}

func (l closeOnDrain) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.draining.Load() {
		w.Header()["Connection"] = closeConnection
	}
	l.Handler.ServeHTTP(w, r)
}

// secure makes the listener speak TLS. A connection may then carry many requests at once,
// which the idle tracker can't tell apart, so net/http bounds each of them.
func (s *Server) secure(f *openListener, section string, files TLS, request time.Duration) error {
	certificates, err := openCertificates(section, files, s.config.Logger, time.Now)
	if err != nil {
		return prefix.Errorf("%w", err)
	}
	f.http.TLSConfig = certificates.Config()
	f.http.ReadHeaderTimeout, f.http.IdleTimeout = s.config.HTTP.ReadHeaderTimeout, s.config.HTTP.IdleTimeout
	f.http.WriteTimeout = request
	return f.countFrames()
}

// countFrames has the listener's server count the frames of connections of HTTP/2.
func (f *openListener) countFrames() error {
	server := &http2.Server{} //nolint:staticcheck // net/http serves HTTP/2 on no other connection than its own of TLS

	if err := http2.ConfigureServer(f.http, server); err != nil { //nolint:staticcheck // as above
		return prefix.Errorf("%w", err)
	}
	f.http.TLSNextProto[http2.NextProtoTLS] = func(from *http.Server, conn *tls.Conn, handler http.Handler) {
		// net/http hands over a connection's context in this way, as http2.ConfigureServer has it.
		ctx := context.Background()
		if h, ok := handler.(interface{ BaseContext() context.Context }); ok {
			ctx = h.BaseContext()
		}
		framed := newFramedConn(conn, nil, func() {
			if tracked, ok := conn.NetConn().(*trackedConn); ok {
				f.tracker.drop(tracked, noCalls)
			}
		})
		options := &http2.ServeConnOpts{Context: ctx, BaseConfig: from, Handler: handler} //nolint:staticcheck // as above
		server.ServeConn(secureConn{framed, conn}, options)                               //nolint:staticcheck // as above
	}
	return nil
}

// A secureConn tells a server of HTTP/2 of the TLS below the frames that are counted.
type secureConn struct {
	*framedConn
	tls *tls.Conn
}

// ConnectionState tells of the TLS.
func (c secureConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// An httpServer is the connServer of HTTP, which speaks TLS if it has certificates.
type httpServer struct{ *http.Server }

// Serve implements [connServer].
func (s httpServer) Serve(ln net.Listener) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(ln, "", "")
	}
	return s.Server.Serve(ln)
}

// Shutdown implements [connServer].
func (s httpServer) Shutdown(ctx context.Context) error {
	err := s.Server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	return err
}

func listen(ctx context.Context, param, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // dropNew knows plain sockets only
	ln, err := config.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("stint: %s: another program listens on %s; stop it, or choose another address with --%s, "+
			"such as 127.0.0.1:0 for a free port: %w",
			param, address, strings.ReplaceAll(param, "_", "-"), err)
	case err != nil:
		return nil, fmt.Errorf("stint: %s: can't listen on %s; choose an address of this machine with --%s: %w",
			param, address, strings.ReplaceAll(param, "_", "-"), err)
	}
	return ln, nil
}

func (s *Server) newHTTP(handler http.Handler) *http.Server {
	return &http.Server{ //nolint:gosec // the idle tracker bounds how long a head may take
		Handler:        handler,
		MaxHeaderBytes: int(s.config.HTTP.MaxHeaderBytes),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.config.HTTP.MaxStreams,
			// What comes before it is read is held in memory, for the connection as well as for each
			// stream, and so is one frame.
			MaxReceiveBufferPerConnection: streamWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReadFrameSize:              streamFrame,
			WriteByteTimeout:              s.config.HTTP.WriteTimeout, // for what is sent for no request, too
		},
		ErrorLog: log.New(errorLog{s.config.Logger}, "", 0),

		DisableGeneralOptionsHandler: true,
	}
}

// An errorLog takes what net/http has to say. What clients can bring about as often as
// they like is for debugging only.
type errorLog struct{ logger *slog.Logger }

func (l errorLog) Write(line []byte) (int, error) {
	text, level := strings.TrimSpace(string(line)), slog.LevelWarn
	if strings.HasPrefix(text, "http: TLS handshake error") || strings.HasPrefix(text, "http2: ") {
		level = slog.LevelDebug
	}
	l.logger.Log(context.Background(), level, text)
	return len(line), nil
}

// fitting is the bound on the connections of each of the public listeners, lowered to the number of files that the
// process may open for all of them.
func fitting(most, listeners int, logger *slog.Logger) int {
	files, known := maxOpenFiles()
	spare := (files - spareFiles) / int64(listeners)
	if !known || int64(most) <= spare {
		return most
	}
	fits := max(int(spare), 1)
	logger.Warn("http.max_connections is lowered: the process may not open more files; raise its limit (ulimit -n)",
		"connections", fits, "max_connections", most, "files", files)
	return fits
}

// spareFiles is how many files are kept for the store, the admin listener and the
// rest.
const spareFiles = adminConnections + 128
