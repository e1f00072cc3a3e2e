package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/monolith-go/monolith/internal/failure"
)

// ErrListen wraps the errors of [Serve] when the address cannot be listened on.
var ErrListen = failure.New(failure.Unavailable, "cannot listen")

// ServerOptions say what is served and where.
type ServerOptions struct {
	// Listen is host:port; without a host 127.0.0.1, with port 0 a free one.
	Listen string
	// Pprof adds /debug/pprof.
	Pprof bool
	// Registry is what /metrics shows; the Go runtime's and the process's own metrics are added to it.
	Registry *prometheus.Registry
	// Logger gets a line with the address; nil: none is written.
	Logger *slog.Logger
}

// Server serves /metrics, /healthz, which answers as long as the process lives, /readyz, which does once it has what it works with ([Server.Ready]), and, if asked, /debug/pprof. It owns one goroutine, which Close joins.
type Server struct {
	http    *http.Server
	addr    string
	done    chan error
	missing atomic.Pointer[error] // what /readyz says; nil: nothing was said yet
}

// Ready says what is missing until the process can work, nil for nothing; it may be called again and again, by any goroutine. Before the first call the process is not ready.
func (s *Server) Ready(missing error) { s.missing.Store(&missing) }

// readyz answers with what is missing.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	text := "ok"
	switch missing := s.missing.Load(); {
	case missing == nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		text = "the process begins"
	case *missing != nil:
		w.WriteHeader(http.StatusServiceUnavailable)
		text = (*missing).Error()
	}
	_, _ = io.WriteString(w, text+"\n") // a client that has gone away needs no answer
}

// Serve begins to serve. Errors: one that wraps [ErrListen] when the address is taken or wrong.
func Serve(ctx context.Context, o ServerOptions) (*Server, error) {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w on %q: %w", ErrListen, o.Listen, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if err := errors.Join(
		o.Registry.Register(collectors.NewGoCollector()),
		o.Registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})),
	); err != nil {
		return nil, fmt.Errorf("telemetry: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("telemetry: %w: %w; end what listens there (another run, perhaps), or set metrics.listen to another address of this machine, with port 0 to a free one", ErrListen, err)
	}
	logger := o.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		http: &http.Server{
			ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, // scrapes come more often
			ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		},
		addr: l.Addr().String(),
		done: make(chan error, 1),
	}
	s.http.Handler = s.handler(o)
	logger.Info("metrics endpoint is up", "url", "http://"+s.addr+"/metrics")
	if at, ok := l.Addr().(*net.TCPAddr); o.Pprof && ok && !at.IP.IsLoopback() {
		logger.Warn("profiles (metrics.pprof) are for whoever reaches the metrics endpoint: they show the command line, and slow the process down while they are taken; listen at 127.0.0.1, or take metrics.pprof out", "listen", s.addr)
	}
	go func() { s.done <- s.http.Serve(l) }()
	return s, nil
}

func (s *Server) handler(o ServerOptions) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n")) // a client that has gone away needs no answer
	})
	mux.HandleFunc("GET /readyz", s.readyz)
	if o.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// Addr is host:port as it is listened on.
func (s *Server) Addr() string { return s.addr }

// Close stops listening, gives running requests until ctx ends, and joins the server's goroutine.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	if serveErr := <-s.done; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
