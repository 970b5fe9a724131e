// Package listen is the listeners of the service: who may have a connection, for how long, and how all of them end.
//
// [Listeners] open the listeners of HTTP, of the admin API, of gRPC and of the Redis protocol, by the program's
// configuration, and serve what they are given on them. Each bounds how long its connections take (connections.go),
// their number, of all clients and of one (conn_limiter.go), what a connection of HTTP/2 and of gRPC may hold
// (frames.go, grpc_*.go), and speaks TLS by files that are followed (package certificates). Stop drains: no request is
// lost that was sent before. The package knows nothing of what requests ask.
package listen

import (
	"cmp"
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

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"

	"github.com/stint-go/stint/clientip"
	"github.com/stint-go/stint/internal/prefix"
	"github.com/stint-go/stint/service/internal/certificates"
	"github.com/stint-go/stint/service/internal/component"
	"github.com/stint-go/stint/service/internal/config"
	"github.com/stint-go/stint/service/internal/follow"
	"github.com/stint-go/stint/service/internal/kernel"
)

// The listeners, as the log and the metrics name them.
const (
	HTTP  = "http"
	GRPC  = "grpc"
	RESP  = "resp"
	Admin = "admin"
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

// Listeners are those of a service, open and then serving. They are opened, started and stopped by one goroutine, in
// this order; make them with [New].
type Listeners struct {
	// Listen opens a socket, by the name of its setting. Tests replace it.
	Listen func(ctx context.Context, param, address string) (net.Listener, error)

	config      *config.Config
	clients     *clientip.Resolver
	connections map[string]*connMetrics // by the listener's service
	logger      *slog.Logger
	registry    prometheus.Registerer
	// certificates are those of the listeners that speak TLS, by service. They are all there before any listener serves.
	certificates map[string]*certificates.Certificates
	dropNew      func(socket syscall.Conn) error // replaced by tests
	most         int                             // connections of each public listener; 0 is not known yet
	draining     atomic.Bool

	open []*openListener
	// ended has what each ended with, and failed says that one did before Stop.
	ended        chan error
	failed       bool
	stopWatching func()
}

// An openListener is a listener with what serves its connections.
type openListener struct {
	service  string
	listener net.Listener
	socket   syscall.Conn // the listener's; nil: it has none
	server   Server
	http     *http.Server // the server of HTTP; nil of another protocol
	health   *rpcHealth   // nil: nobody is told
	tracker  *idleTracker
}

// A Server serves the connections of a listener.
type Server interface {
	// Serve serves until the listener is closed, and returns its error.
	Serve(ln net.Listener) error
	// Shutdown lets the requests in flight end, as long as the context allows; then it cuts them off, and says so.
	Shutdown(ctx context.Context) error
}

// New makes listeners of which none is open. clients are as whom connections are counted.
func New(
	c *config.Config, clients *clientip.Resolver, logger *slog.Logger, registry prometheus.Registerer,
) (*Listeners, error) {
	connections, err := newConnMetrics(registry)
	return &Listeners{
		Listen: listen, dropNew: kernel.DropNew, config: c, clients: clients, connections: connections, logger: logger,
		registry: registry, certificates: map[string]*certificates.Certificates{},
	}, err
}

// Draining reports whether each connection is to end with its next answer.
func (l *Listeners) Draining() bool { return l.draining.Load() }

// limiter bounds the connections of a public listener.
func (l *Listeners) limiter(service string) connLimiter {
	if l.most == 0 {
		sharers := 1
		for _, address := range []string{l.config.GRPCListen, l.config.RESPListen} {
			if address != "" {
				sharers++
			}
		}
		l.most = fitting(l.config.HTTP.MaxConnections, sharers, l.logger)
	}
	return connLimiter{
		most: l.most, perPeer: l.config.HTTP.MaxConnectionsPerPeer,
		clients: l.clients, metrics: l.connections[service], logger: l.logger,
	}
}

// HTTP opens the listener of the REST API, and returns its address.
func (l *Listeners) HTTP(ctx context.Context, handler http.Handler) (net.Addr, error) {
	ln, err := l.Listen(ctx, "listen", l.config.Listen)
	if err != nil {
		return nil, err
	}
	return ln.Addr(), l.secure(l.addPublic(ln, handler), "tls", l.config.TLS, l.config.HTTP.WriteTimeout)
}

// addPublic has a handler answer on a listener as on that of the REST API.
func (l *Listeners) addPublic(ln net.Listener, handler http.Handler) *openListener {
	bounds := l.config.HTTP
	return l.add(HTTP, ln, handler,
		newIdleTracker(bounds.ReadHeaderTimeout, bounds.IdleTimeout, bounds.WriteTimeout, l.limiter(HTTP)))
}

// Admin opens the admin listener, and returns its address. It lets the handler bound each request, as a profile takes
// as long as it was asked to. No proxy is trusted on this listener. handle makes the handler for its address, which has
// connections on which it has answered one who may ask known by [Authorise].
func (l *Listeners) Admin(
	ctx context.Context, handle func(net.Addr) (http.Handler, error),
) (net.Addr, error) {
	ln, err := l.Listen(ctx, "admin_listen", l.config.AdminListen)
	if err != nil {
		return nil, err
	}
	clients, err := clientip.New(clientip.Config{IPv6Prefix: l.config.ClientIP.IPv6Prefix})
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	handler, err := handle(ln.Addr())
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	bounds := l.config.HTTP
	limiter := connLimiter{
		most: adminConnections, perPeer: min(adminPerPeer, cmp.Or(bounds.MaxConnectionsPerPeer, adminPerPeer)), private: true,
		clients: clients, metrics: l.connections[Admin], logger: l.logger,
	}
	f := l.add(Admin, ln, handler, newIdleTracker(bounds.ReadHeaderTimeout, bounds.IdleTimeout, 0, limiter))
	f.http.ConnContext = withConn
	return ln.Addr(), l.secure(f, "admin_tls", l.config.AdminTLS, 0)
}

// RESP opens the listener of the Redis protocol, which has bounds of its own, so that the clients of one protocol do
// not take the other's connections. serve makes its server, which tells the states of connections.
func (l *Listeners) RESP(
	ctx context.Context, serve func(addr net.Addr, state func(net.Conn, http.ConnState)) Server,
) (net.Addr, error) {
	ln, err := l.Listen(ctx, "resp_listen", l.config.RESPListen)
	if err != nil {
		return nil, err
	}
	// As a server of Redis does, it lets clients be silent: when there are too many, those that were longest go. A
	// handshake, and a command that has begun, come in time.
	tracker := newIdleTracker(l.config.HTTP.BodyTimeout, 0, l.config.HTTP.WriteTimeout, l.limiter(RESP))
	opened := l.opened(RESP, ln, tracker)
	if opened.server = serve(ln.Addr(), tracker.changed); l.config.RESPTLS.Enabled() {
		files, err := l.openCertificates("resp_tls", RESP, l.config.RESPTLS)
		if err != nil {
			return nil, err
		}
		opened.listener = tls.NewListener(opened.listener, files.Config())
	}
	return ln.Addr(), nil
}

// add adds a listener whose requests of HTTP a handler answers.
func (l *Listeners) add(service string, ln net.Listener, handler http.Handler, tracker *idleTracker) *openListener {
	server := l.newHTTP(closeOnDrain{handler, &l.draining})
	server.ConnState = tracker.changedHTTP
	f := l.opened(service, ln, tracker)
	f.server, f.http = httpServer{server}, server
	return f
}

// opened adds a listener, which lacks its server.
func (l *Listeners) opened(service string, ln net.Listener, tracker *idleTracker) *openListener {
	f := &openListener{service: service, listener: tracker.listener(ln), tracker: tracker}
	f.socket, _ = ln.(syscall.Conn)
	l.open = append(l.open, f)
	return f
}

// Close closes the listeners that are open and do not serve yet.
func (l *Listeners) Close() (err error) {
	for _, f := range l.open {
		err = errors.Join(err, f.listener.Close())
	}
	return err
}

// Start has the listeners accept connections.
func (l *Listeners) Start() {
	l.ended = make(chan error, len(l.open))
	var runs []func(context.Context)
	for _, f := range l.open {
		go func() { l.ended <- f.server.Serve(f.listener) }()
		if runs = append(runs, f.tracker.run); f.health != nil {
			runs = append(runs, f.health.run)
		}
	}
	l.stopWatching = component.Run(context.Background(), runs...) // while they drain, too
}

// Wait returns when ctx is done, or with the error of a listener that failed.
func (l *Listeners) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.ended:
		l.failed = true
		return err
	}
}

// Stop ends the listeners that were started. It waits for load balancers, and for the next requests of connections that
// are kept alive, only when no listener failed. In order:
//
//  1. answers end their connections, by Connection: close or with HTTP/2 by GOAWAY, for Drain.Delay;
//  2. the listeners are closed, once what the kernel has accepted for them is accepted;
//  3. idle connections are kept for one more request, for Drain.KeepAlive;
//  4. what is left is shut down, and cut off when Drain.Timeout is over;
//  5. last is called, which has what is left of that time.
//
// All of it ends with ctx. It returns an error when a listener fails, and when requests had to be cut off.
func (l *Listeners) Stop(ctx context.Context, last func(context.Context)) error {
	defer l.stopWatching()
	failed, serving := l.drain(ctx, last), len(l.open)
	if l.failed {
		serving--
	}
	for range serving {
		if err := <-l.ended; !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// secure makes the listener speak TLS, if it has files for it. A connection may then carry many requests at once,
// which the idle tracker can't tell apart, so net/http bounds each of them.
func (l *Listeners) secure(f *openListener, section string, files config.TLS, request time.Duration) error {
	if !files.Enabled() {
		return nil
	}
	opened, err := l.openCertificates(section, f.service, files)
	if err != nil {
		return err
	}
	f.http.TLSConfig = opened.Config()
	f.http.ReadHeaderTimeout, f.http.IdleTimeout = l.config.HTTP.ReadHeaderTimeout, l.config.HTTP.IdleTimeout
	f.http.WriteTimeout = request
	return f.countFrames()
}

// openCertificates opens the files of a listener's TLS.
func (l *Listeners) openCertificates(section, service string, files config.TLS) (*certificates.Certificates, error) {
	opened, err := certificates.Open(section, service, files, l.logger, time.Now)
	if err != nil {
		return nil, prefix.Errorf("%w", err)
	}
	for _, collector := range opened.Collectors() {
		err = errors.Join(err, l.registry.Register(collector))
	}
	l.certificates[service] = opened
	return opened, err
}

// Certificates are where those of the listeners that speak TLS stand, by service, for the health.
func (l *Listeners) Certificates() map[string]follow.State {
	states := map[string]follow.State{}
	for service, opened := range l.certificates {
		states[service] = opened.State()
	}
	return states
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

// An httpServer is the [Server] of HTTP, which speaks TLS if it has certificates.
type httpServer struct{ *http.Server }

// Serve implements [Server].
func (s httpServer) Serve(ln net.Listener) error {
	if s.TLSConfig != nil {
		return s.ServeTLS(ln, "", "")
	}
	return s.Server.Serve(ln)
}

// Shutdown implements [Server].
func (s httpServer) Shutdown(ctx context.Context) error {
	err := s.Server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	return err
}

func listen(ctx context.Context, param, address string) (net.Listener, error) {
	var config net.ListenConfig
	config.SetMultipathTCP(false) // kernel.DropNew knows plain sockets only
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

func (l *Listeners) newHTTP(handler http.Handler) *http.Server {
	return &http.Server{ //nolint:gosec // the idle tracker bounds how long a head may take
		Handler:        handler,
		MaxHeaderBytes: int(l.config.HTTP.MaxHeaderBytes),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: l.config.HTTP.MaxStreams,
			// What comes before it is read is held in memory, for the connection as well as for each
			// stream, and so is one frame.
			MaxReceiveBufferPerConnection: streamWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReadFrameSize:              streamFrame,
			WriteByteTimeout:              l.config.HTTP.WriteTimeout, // for what is sent for no request, too
		},
		ErrorLog: log.New(errorLog{l.logger}, "", 0),

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
	files, known := kernel.MaxOpenFiles()
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
