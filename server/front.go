package server

import (
	"context"
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

	"github.com/stint-go/stint"
	"github.com/stint-go/stint/clientip"
)

// The listeners, as the log and the metrics name them.
const (
	serviceHTTP  = "http"
	serviceAdmin = "admin"
)

const (
	// adminConnections is how many connections the admin listener has room for.
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

// A front is one listener with what serves its connections.
type front struct {
	service  string
	listener net.Listener
	server   *http.Server
	watch    *watch
}

// open opens the listeners, or none.
func (s *Server) open(ctx context.Context) (fronts []*front, err error) {
	defer func() {
		if err != nil {
			for _, f := range fronts {
				err = errors.Join(err, f.listener.Close())
			}
			fronts = nil
		}
	}()
	ln, err := s.listen(ctx, "listen", s.config.Listen)
	if err != nil {
		return nil, err
	}
	s.addr = ln.Addr()
	s.service.authority.loopback.Store(isLoopback(s.addr))
	public := s.publicFront(ln)
	if fronts = append(fronts, public); s.config.TLS.Enabled() {
		if err := s.secure(public, "tls", s.config.TLS, s.config.WriteTimeout); err != nil {
			return fronts, err
		}
	}
	if s.config.AdminListen == "" {
		return fronts, nil
	}
	if ln, err = s.listen(ctx, "admin_listen", s.config.AdminListen); err != nil {
		return fronts, err
	}
	s.adminAddr = ln.Addr()
	private, err := s.adminFront(ln)
	if err != nil {
		return fronts, errors.Join(err, ln.Close())
	}
	if fronts = append(fronts, private); s.config.AdminTLS.Enabled() {
		if err := s.secure(private, "admin_tls", s.config.AdminTLS, 0); err != nil {
			return fronts, err
		}
	}
	if !isLoopback(s.adminAddr) && len(s.config.AdminTokens) == 0 {
		return fronts, fmt.Errorf("server: admin_listen: %w", stint.Invalid("admin.tokens_file", "",
			"a file of tokens, since others than this machine reach "+s.adminAddr.String()))
	}
	return fronts, nil
}

func (s *Server) publicFront(ln net.Listener) *front {
	c := &s.config
	room := room{
		most: fitting(c.MaxConnections, c.Logger), perPeer: c.MaxConnectionsPerPeer,
		clients: s.service.clients, metrics: s.service.connections, logger: c.Logger,
	}
	return s.newFront(serviceHTTP, ln, s.service, newWatch(c.ReadHeaderTimeout, c.IdleTimeout, c.WriteTimeout, room))
}

// adminFront lets the handler bound each request, as a profile takes as long as it was asked
// to. No proxy is trusted here: nobody says on this listener for whom it speaks.
func (s *Server) adminFront(ln net.Listener) (*front, error) {
	c := &s.config
	clients, err := clientip.New(clientip.Config{IPv6Prefix: c.ClientIP.IPv6Prefix})
	if err != nil {
		return nil, err
	}
	room := room{
		most: adminConnections, perPeer: adminPerPeer, private: true,
		clients: clients, metrics: s.service.adminConnections, logger: c.Logger,
	}
	if c.MaxConnectionsPerPeer > 0 {
		room.perPeer = min(room.perPeer, c.MaxConnectionsPerPeer)
	}
	watch := newWatch(c.ReadHeaderTimeout, c.IdleTimeout, 0, room)
	handler := &admin{
		guarded: isLoopback(s.adminAddr), tokens: newAdminTokens(c.AdminTokens),
		bodyTimeout: c.BodyTimeout, writeTimeout: c.WriteTimeout, watch: watch,
		rules: s.service.administration,
	}
	if handler.signIn, err = newSignIn(handler.tokens); err != nil {
		return nil, err
	}
	if c.Activity != nil {
		handler.activity = c.Activity.Handler(handler.authorizeActivity)
	}
	f := s.newFront(serviceAdmin, ln, handler, watch)
	f.server.ConnContext = withConn
	return f, nil
}

func (s *Server) newFront(service string, ln net.Listener, handler http.Handler, watch *watch) *front {
	server := s.httpServer(lastAnswers{handler, &s.service.draining})
	server.ConnState = watch.changed
	return &front{service: service, listener: watch.listener(ln), server: server, watch: watch}
}

// closeConnection says that a connection ends with this answer; net/http makes a GOAWAY of it for HTTP/2.
var closeConnection = []string{"close"}

// lastAnswers ends connections with their next answer while the server drains, so that their clients send
// nothing on them that would be lost.
type lastAnswers struct {
	http.Handler
	draining *atomic.Bool
}

func (l lastAnswers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if l.draining.Load() {
		w.Header()["Connection"] = closeConnection
	}
	l.Handler.ServeHTTP(w, r)
}

// secure makes the front speak TLS. A connection may then carry many requests at once,
// which the watch can't tell apart, so net/http bounds each of them.
func (s *Server) secure(f *front, section string, files TLS, request time.Duration) error {
	certificates, err := OpenCertificates(section, files, s.config.Logger, "h2", "http/1.1")
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	f.server.TLSConfig = certificates.Config()
	f.server.ReadHeaderTimeout, f.server.IdleTimeout = s.config.ReadHeaderTimeout, s.config.IdleTimeout
	f.server.WriteTimeout = request
	return nil
}

// serve serves until the server is stopped or the listener fails.
func (f *front) serve() error {
	if f.server.TLSConfig != nil {
		return f.server.ServeTLS(f.listener, "", "")
	}
	return f.server.Serve(f.listener)
}

func listen(ctx context.Context, param, address string) (net.Listener, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("server: %s: another program listens on %s; stop it, or choose another address with --%s, such as 127.0.0.1:0 for a free port: %w",
			param, address, strings.ReplaceAll(param, "_", "-"), err)
	case err != nil:
		return nil, fmt.Errorf("server: %s: can't listen on %s; choose an address of this machine with --%s: %w",
			param, address, strings.ReplaceAll(param, "_", "-"), err)
	}
	return ln, nil
}

func (s *Server) httpServer(handler http.Handler) *http.Server {
	return &http.Server{ //nolint:gosec // the watch bounds how long a head may take
		Handler:        handler,
		MaxHeaderBytes: s.config.MaxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: s.config.MaxStreams,
			// What comes before it is read is held in memory, for the connection as well as for each
			// stream, and so is one frame.
			MaxReceiveBufferPerConnection: streamWindow,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReadFrameSize:              streamFrame,
			WriteByteTimeout:              s.config.WriteTimeout, // for what is sent for no request, too
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

// fitting is the bound on connections that the process's open files leave room for.
func fitting(most int, logger *slog.Logger) int {
	files, known := maxOpenFiles()
	if !known || int64(most) <= files-spareFiles {
		return most
	}
	fits := max(int(files-spareFiles), 1)
	logger.Warn("http.max_connections is lowered: the process may not open more files; raise its limit (ulimit -n)",
		"connections", fits, "max_connections", most, "files", files)
	return fits
}

// spareFiles is how many files are kept for the store, the admin listener and the
// rest.
const spareFiles = adminConnections + 128
